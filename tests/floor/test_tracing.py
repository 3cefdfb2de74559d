"""Tests of floor/tracing.py: what is told, where somebody listens, and what never is."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest

from skillhouse.floor import SkillError, tracing
from skillhouse.floor.tracing import CALLS, DURATION, SECONDS_BUCKETS
from tests.harness import ran
from tests.listening import Listener

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def said(statement: str) -> str:
    """Return what a new Python prints; the tests' own has an SDK."""
    done = ran([sys.executable, "-I", "-c", statement], check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_without_a_listener_opentelemetry_is_not_even_loaded():
    code = f"""
import sys
from skillhouse.floor import tracing
with tracing.span("a", parent={TRACEPARENT!r}) as span:
    span.set({{"b": 1}}); span.fail("c"); span.rename("d")
    assert (span.is_heard, span.traceparent) == (False, "")
tracing.count({CALLS!r}, {{}}); tracing.observe({DURATION!r}, 1.0, {{}})
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert said(code) == "[]"


@pytest.mark.slow
def test_the_api_without_an_sdk_hears_nothing():
    code = f"""
import opentelemetry.trace
from skillhouse.floor import tracing
with tracing.span("a") as span:
    assert not span.is_heard
tracing.count({CALLS!r}, {{}}); tracing.observe({DURATION!r}, 1.0, {{}})
print("fine")
"""
    assert said(code) == "fine"


@pytest.mark.slow
def test_an_sdk_that_is_named_later_hears_what_follows():
    code = """
import sys
from skillhouse.floor import tracing
with tracing.span("before"): pass
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
with tracing.span("loaded"): pass
kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with tracing.span("after"): pass
print([span.name for span in kept.get_finished_spans()])
"""
    assert said(code) == "['after']"


def test_spans_lie_within_each_other(heard: Listener):
    with tracing.span("outer"), tracing.span("inner", kind="client"):
        pass
    with tracing.span("next"):
        pass
    assert heard.tree() == ["INTERNAL outer", "  CLIENT inner", "INTERNAL next"]


def test_a_parent_from_outside_begins_the_trace_where_it_is(heard: Listener):
    with tracing.span("a", parent=TRACEPARENT) as span:
        assert span.traceparent.split("-")[1] == TRACE
        # The SDK of a protocol opened `a` for the same parent.
        with tracing.span("b", parent=TRACEPARENT):
            pass
    a, b = heard.spans
    assert (a.parent and f"{a.parent.span_id:016x}") == "00f067aa0ba902b7"
    assert a.parent is not None
    assert a.parent.is_remote
    assert (b.parent and b.parent.span_id) == (a.context and a.context.span_id)


@pytest.mark.parametrize(
    "parent",
    [
        "", "x", TRACEPARENT.upper(), f"01{TRACEPARENT[2:]}", f"{TRACEPARENT}\n",
        f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE}-{'0' * 16}-01", "00" * 10_000,
    ],
)  # fmt: skip
def test_a_parent_that_is_none_says_nothing(heard: Listener, parent: str):
    with tracing.span("a", parent=parent):
        pass
    assert heard.span("a").parent is None


def test_what_strangers_wrote_is_cleaned_and_cut(heard: Listener):
    with tracing.span("a\n\x1b[31m" + "b" * 500) as span:
        span.set({"text": "x\u202e\ud800\u200by\n z" + "c" * 5_000, "list": ["d" * 500] * 100})
        span.fail("e\n" * 500)
    (found,) = heard.spans
    told = dict(found.attributes or {})
    assert len(found.name) == tracing.NAME_MAX
    assert found.name.startswith("a [31mb")
    assert str(told["text"]).startswith("xy zc")
    assert len(str(told["text"])) == tracing.TEXT_MAX
    assert told["list"] == ("d" * tracing.NAME_MAX,) * tracing.ITEMS_MAX
    assert len(str(told["error.type"])) <= tracing.NAME_MAX


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("password is hunter2"), "ValueError"),
        (SystemExit("password is hunter2"), "SystemExit"),
    ],
)
def test_the_text_of_an_exception_is_told_to_nobody(
    heard: Listener, error: BaseException, code: str
):
    with pytest.raises(type(error)), tracing.span("a"):
        raise error
    assert heard.tree() == ["INTERNAL a [ERROR]", f'  . error.type = "{code}"']
    assert heard.spans[0].status.description is None
    assert "hunter2" not in heard.all_text()


def test_our_own_errors_have_codes(heard: Listener, tmp_path):
    with pytest.raises(SkillError), tracing.span("a"):
        raise SkillError("unverified", tmp_path, "password is hunter2")
    assert heard.tree()[1:] == ['  . error.type = "unverified"']


def test_figures_have_the_buckets_of_the_conventions(heard: Listener):
    tracing.count(CALLS, {"gen_ai.tool.name": "a\nb"})
    tracing.observe(DURATION, 0.03, {"gen_ai.tool.name": "a"})
    assert heard.points() == {
        CALLS: [({"gen_ai.tool.name": "a b"}, 1)],
        DURATION: [({"gen_ai.tool.name": "a"}, 1)],
    }
    assert (SECONDS_BUCKETS[0], SECONDS_BUCKETS[-1], len(SECONDS_BUCKETS)) == (0.01, 81.92, 14)
    assert all(b == pytest.approx(2 * a) for a, b in pairwise(SECONDS_BUCKETS))
