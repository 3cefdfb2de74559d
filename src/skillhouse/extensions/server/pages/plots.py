"""Geometry of the plots: bars and ranges over time, as numbers that a template writes as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from skillhouse.audit import Bucket

WIDTH, HEIGHT = 720, 120
"""Units of a plot; its lines of text are outside of it, so that they keep their size."""
_GAP = 0.2
"""Share of a bucket's width that is left free."""
DECADES = (1, 10, 100, 1_000, 10_000, 100_000)
"""Milliseconds of the lines of the scale of latencies."""


class Bar(NamedTuple):
    """One rectangle, in units of the plot, with y downwards."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    """What is counted, or `p50` and `p95` for the two parts of a latency."""


class Stack(NamedTuple):
    """The bars of one bucket."""

    start: str
    counts: Mapping[str, int]
    bars: tuple[Bar, ...]


def stacks(buckets: Sequence[Bucket], counts: Sequence[Mapping[str, int]]) -> tuple[Stack, ...]:
    """Return a stack for each bucket, as high as its sum; `counts` has the parts from below up.

    >>> from skillhouse.audit.series import Bucket
    >>> stacks([Bucket(start="")], [{"ok": 1, "denied": 1}])[0].bars
    (Bar(x=72.0, y=60.0, width=576.0, height=60.0, kind='ok'), Bar(x=72.0, y=0.0, width=576.0, \
height=60.0, kind='denied'))
    """
    most = max((sum(one.values()) for one in counts), default=0) or 1
    found = []
    for at, (bucket, parts) in enumerate(zip(buckets, counts, strict=True)):
        bars, below = [], 0.0
        x, width = _place(at, len(buckets))
        for kind, count in parts.items():
            height = HEIGHT * count / most
            below += height
            if count:
                bars.append(Bar(x, round(HEIGHT - below, 2), width, round(height, 2), kind))
        found.append(Stack(bucket.start, parts, tuple(bars)))
    return tuple(found)


def latencies(buckets: Sequence[Bucket]) -> tuple[Stack, ...]:
    """Return for each bucket how long calls took, on a scale of tens: half of them, and 95 %."""
    top = max((one.p95_ms or 0 for one in buckets), default=0)
    found = []
    for at, bucket in enumerate(buckets):
        half, most = bucket.p50_ms, bucket.p95_ms
        x, width = _place(at, len(buckets))
        bars: tuple[Bar, ...] = ()
        counts: dict[str, int] = {}
        if half is not None and most is not None:
            counts = {"p50": half, "p95": most}
            tops = [_height(value, top) for value in (half, most)]
            bars = (
                Bar(x, round(HEIGHT - tops[1], 2), width, round(tops[1], 2), "p95"),
                Bar(x, round(HEIGHT - tops[0], 2), width, round(tops[0], 2), "p50"),
            )
        found.append(Stack(bucket.start, counts, bars))
    return tuple(found)


def scale(buckets: Sequence[Bucket]) -> tuple[tuple[int, float], ...]:
    """Return the lines of the scale of latencies: milliseconds, and y of the plot."""
    top = max((one.p95_ms or 0 for one in buckets), default=0)
    shown = [value for value in DECADES if value <= top]
    return tuple((value, round(HEIGHT - _height(value, top), 2)) for value in shown)


def _place(at: int, buckets: int) -> tuple[float, float]:
    step = WIDTH / buckets
    return round(step * (at + _GAP / 2), 2), round(step * (1 - _GAP), 2)


def _height(milliseconds: int, top: int) -> float:
    """Return the height of a latency on a logarithmic scale that begins below 1 ms."""
    return HEIGHT * math.log10(1 + milliseconds) / math.log10(1 + max(top, 9))
