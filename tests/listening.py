"""An OpenTelemetry SDK of this process that keeps what it is told, and listens only when asked to.

A provider can be named once in a process, so one stays for all tests; those that do not ask for it
pay for no spans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

SCOPE = "skillhouse"


class _Switch(Sampler):
    """Takes every span while it is on, and none otherwise."""

    is_on = False

    def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE if self.is_on else Decision.DROP)

    def get_description(self) -> str:
        return "switch"


class Listener:
    """What telemetry was told since the test began."""

    def __init__(self) -> None:
        self._switch = _Switch()
        self._exporter = InMemorySpanExporter()
        delta = AggregationTemporality.DELTA
        self._reader = InMemoryMetricReader({Counter: delta, Histogram: delta})
        provider = TracerProvider(sampler=self._switch)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([self._reader]))

    @contextmanager
    def on(self) -> Iterator[Listener]:
        self._exporter.clear()
        self._reader.get_metrics_data()
        self._switch.is_on = True
        try:
            yield self
        finally:
            self._switch.is_on = False

    def everyone(self) -> Sequence[ReadableSpan]:
        """The spans of all who told of any."""
        return self._exporter.get_finished_spans()

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Our spans, in the order in which they began."""
        found = [
            span
            for span in self._exporter.get_finished_spans()
            if span.instrumentation_scope is not None and span.instrumentation_scope.name == SCOPE
        ]
        return sorted(found, key=lambda span: span.start_time or 0)

    def span(self, beginning: str) -> ReadableSpan:
        """Return the one span whose name begins so."""
        (found,) = [span for span in self.spans if span.name.startswith(beginning)]
        return found

    def tree(self) -> list[str]:
        """Return kind, name, status and attributes of each span, indented below its parent."""
        depths: dict[int, int] = {}
        lines = []
        for span in self.spans:
            assert span.context is not None
            depth = depths.get(span.parent.span_id, -1) + 1 if span.parent else 0
            depths[span.context.span_id] = depth
            state = "" if span.status.is_unset else f" [{span.status.status_code.name}]"
            lines.append(f"{'  ' * depth}{span.kind.name} {span.name}{state}")
            lines += [
                f"{'  ' * depth}  . {name} = {json.dumps(value)}"
                for name, value in sorted((span.attributes or {}).items())
            ]
        return lines

    def all_text(self) -> str:
        """Return everything that was told, for looking for what must not be there."""
        told = [span.to_json() for span in self.spans]
        return "\n".join([*told, json.dumps(self.points(), default=str)])

    def points(self) -> dict[str, list[tuple[dict[str, Any], int]]]:
        """Return attributes and value, of a histogram the count, of what was measured since."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], int]]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics if scope.scope.name == SCOPE else ():
                    points = metric.data.data_points
                    found[metric.name] = [(dict(p.attributes or {}), _value(p)) for p in points]
        return found


def _value(point: Any) -> int:
    return int(point.count if isinstance(point, HistogramDataPoint) else point.value)


@cache
def listener() -> Listener:
    """Return the one of this process."""
    return Listener()
