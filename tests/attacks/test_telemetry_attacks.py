"""Attacks on whoever reads traces: what skills, models and clients write must not act there.

Each is first tried on what a plain instrumentation does (`naive`), where it works.
"""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanProcessor,
    TracerProvider,
)

from skillhouse.floor import tracing
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.presentation.service_log import service_logging
from tests.harness import Screen
from tests.house.places import make_places, write_skill
from tests.listening import Listener

SECRET = "correct-horse-battery-staple"
CLEAR_SCREEN = "\x1b[2J\x1b[H"


def naive(name: str, **attributes: str) -> None:
    """Tell as a plain instrumentation does: as given, with the exception's text."""
    with trace.get_tracer("naive").start_as_current_span(name) as span:
        span.set_attributes(attributes)
        raise ValueError(f"no such file: {attributes}")


def naively_told(heard: Listener, **attributes: str) -> str:
    with pytest.raises(ValueError, match="no such"):
        naive("execute_tool", **attributes)
    return "".join(span.to_json() for span in heard.everyone())


def house_at(base: Path, *rules: Rule) -> Skillhouse:
    layer = Layer(name="user", rules=rules)
    return Skillhouse(configured(make_places(base)), layers=(layer,))


def test_a_description_cannot_write_to_the_terminal_that_shows_a_trace(
    tmp_path: Path, heard: Listener
):
    hostile = f"Tells{CLEAR_SCREEN}\u202eweather\u2028{'x' * 900}"
    assert "\\u001b" in naively_told(heard, description=hostile)
    text = json.dumps(hostile)
    write_skill(tmp_path / "home/.claude/skills/weather", text)
    with house_at(tmp_path) as house:
        house.call_sync("skill", {"name": "weather"})
    told = heard.all_text()
    assert "execute_tool skill weather" in told
    assert not {"\x1b", "\u202e", "\u2028"} & set(told)
    assert not any(mark in told for mark in ("\\u001b", "\\u202e", "\\u2028"))


@pytest.mark.slow
def test_a_model_cannot_put_what_it_has_read_into_traces(tmp_path: Path, heard: Listener):
    """A trace goes to a third party: a name of the model's own making must not reach it."""
    assert SECRET in naively_told(heard, path=SECRET)
    allow = Rule(effect=Effect.ALLOW, action="*", pattern="*")
    with house_at(tmp_path, allow) as house:
        for name, arguments in (
            ("skill", {"name": SECRET}),
            ("read", {"path": SECRET}),
            ("read", {SECRET: "x"}),
            ("write", {"path": f"{SECRET}/../../{SECRET}", "content": SECRET}),
            ("list", {"path": SECRET}),
            ("edit", {"path": SECRET, "old": SECRET, "new": "x"}),
            ("exec", {"command": f"./{SECRET}"}),
            ("search_skills", {"query": SECRET}),
            ("fetch", {"url": f"http://127.0.0.1:9/{SECRET}"}),
            ("fetch", {"url": "http://a.test", "headers": {SECRET: SECRET}}),
        ):
            house.call_sync(name, arguments)
    calls = [span for span in heard.spans if span.name.startswith("execute_tool")]
    assert len(calls) == 10
    assert SECRET not in heard.all_text()


@pytest.mark.slow
def test_an_id_of_any_length_costs_a_trace_little(tmp_path: Path, heard: Listener):
    long = "x" * 10_000_000
    assert len(naively_told(heard, id=long)) > len(long)
    with house_at(tmp_path) as house:
        house.call_sync("list", {}, call_id=long, session_id=long, trace=long)
    assert len(heard.all_text()) < 20_000


def test_a_client_cannot_make_the_house_take_any_text_for_a_parent(heard: Listener):
    for parent in ("00-" + "f" * 32 + "-" + "f" * 16 + "-ff-" + "x" * 1_000_000, "\x00", "٠٠-"):
        with tracing.span("a", parent=parent):
            pass
    assert all(span.parent is None for span in heard.spans)


def test_names_cannot_multiply_the_series_of_figures(tmp_path: Path, heard: Listener):
    """A label for each argument would make a series for each call: a known way to fill a store."""
    with house_at(tmp_path) as house:
        for number in range(30):
            house.call_sync(
                "read", {"path": f"{number}.txt"}, call_id=f"c{number}", session_id=f"s{number}"
            )
    assert {name: len(points) for name, points in heard.points().items()} == {
        "skillhouse.tool.calls": 1,
        "gen_ai.execute_tool.duration": 1,
    }


class Broken(SpanProcessor):
    """An operator's own processor that fails, as one whose disk is full."""

    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        del span, parent_context
        if self.where == "start":
            raise OSError("the exporter is broken")

    def on_end(self, span: ReadableSpan) -> None:
        del span
        if self.where == "end":
            raise OSError("the exporter is broken")


@pytest.mark.parametrize("where", ["start", "end"])
def test_what_hears_of_a_call_cannot_take_its_result(tmp_path: Path, heard: Listener, where: str):
    """The effect has happened: a model that reads of a failure would do it again."""
    allow = Rule(effect=Effect.ALLOW, action="*", pattern="*")
    with house_at(tmp_path, allow) as house:
        house.call_sync("write", {"path": "a.txt", "content": "once"})
        broken = Broken(where)
        provider = trace.get_tracer_provider()
        assert isinstance(provider, TracerProvider)
        provider.add_span_processor(broken)
        try:
            with (
                pytest.raises(OSError, match="broken"),
                trace.get_tracer("naive").start_as_current_span("x"),
            ):
                pass
            result = house.call_sync("write", {"path": "b.txt", "content": "once"})
        finally:
            # A provider forgets nobody.
            broken.where = ""
    assert result.status == "ok"
    assert (tmp_path / "project/b.txt").exists()


def logged(stream: io.StringIO, handler: logging.Handler) -> str:
    """Return what a log says of an error whose message a client wrote."""
    log = logging.getLogger("skillhouse.attack")
    hostile = f"no{CLEAR_SCREEN}\n2026-11-22 [info] all is well \x9b2J\u202e"
    logging.getLogger().addHandler(handler)
    try:
        log.warning("the client did not ask its user: %s", hostile)
        try:
            raise ValueError(hostile)
        except ValueError:
            log.exception("tools/call")
    finally:
        logging.getLogger().removeHandler(handler)
    return stream.getvalue()


def test_a_client_cannot_write_to_the_terminal_that_shows_the_log():
    stream: io.StringIO = io.StringIO()
    plain = logged(stream, logging.StreamHandler(stream))
    assert CLEAR_SCREEN in plain
    assert "\n2026-11-22 [info] all is well" in plain

    stream = Screen()
    said = logged(stream, service_logging(stream, str))
    assert CLEAR_SCREEN not in said
    assert not {"\x9b", "\u202e"} & set(said)
    assert "\n2026-11-22 [info] all is well" not in said

    stream = io.StringIO()
    assert logged(stream, service_logging(stream, str)).isascii()
