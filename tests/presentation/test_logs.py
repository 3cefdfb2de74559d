"""Tests of logs.py: what a service says in its log."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillhouse.audit import AuditDraft, AuditLog
from skillhouse.floor import tracing
from skillhouse.presentation.service_log import AuditNews, service_logging
from tests.harness import Screen, ran
from tests.listening import Listener

SECRET = "correct-horse-battery"
PACKAGE = Path(__file__).resolve().parents[2] / "src/skillhouse"


@contextmanager
def logging_to(stream: io.StringIO, base: Path) -> Iterator[logging.Logger]:
    logger = logging.getLogger("skillhouse")
    level = logger.level
    with AuditLog(base / "audit.jsonl", secrets=lambda: [SECRET]) as log:
        handler = service_logging(stream, log.clean)
        try:
            yield logging.getLogger("skillhouse.tests")
        finally:
            logging.getLogger().removeHandler(handler)
            logger.setLevel(level)


def test_a_collector_gets_json_without_secrets(tmp_path: Path):
    stream = io.StringIO()
    with logging_to(stream, tmp_path) as logger:
        logger.debug("not said")
        logger.info("took %s and sk-0123456789abcdefghij", SECRET)
        try:
            raise ValueError(f"no {SECRET}")
        except ValueError:
            logger.exception("a call\nfailed")
        logging.getLogger("another").info("not said either")
        logging.getLogger("another").warning("said")
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "took [REDACTED] and [REDACTED]",
        "level": "info",
        "logger": "skillhouse.tests",
    }
    assert second["event"] == "a call\nfailed"
    assert second["exception"].endswith("ValueError: no [REDACTED]")
    assert third["logger"] == "another"
    assert SECRET not in stream.getvalue()


def test_a_person_gets_lines(tmp_path: Path):
    stream = Screen()
    with logging_to(stream, tmp_path) as logger:
        logger.warning("took %s", SECRET)
    assert "took [REDACTED]" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_line_names_the_span_that_it_is_from(tmp_path: Path, heard: Listener):
    stream = io.StringIO()
    with logging_to(stream, tmp_path) as logger:
        with tracing.span("a") as span:
            logger.info("inside")
            _, trace_id, span_id, _ = span.traceparent.split("-")
        logger.info("outside")
    inside, outside = map(json.loads, stream.getvalue().splitlines())
    assert (inside["trace_id"], inside["span_id"]) == (trace_id, span_id)
    assert "trace_id" not in outside


def test_no_room_formats_its_log_records():
    using = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "import structlog" in path.read_text(encoding="utf-8")
    }
    assert using == {"presentation/service_log.py"}
    telling = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "opentelemetry import" in path.read_text(encoding="utf-8")
    }
    assert telling == {"floor/tracing.py"}


@pytest.mark.slow
def test_the_command_line_loads_neither():
    code = (
        "import sys, skillhouse.extensions.server.up_verb, skillhouse; skillhouse.Skillhouse;"
        "print([n for n in sys.modules if n.startswith(('structlog', 'opentelemetry'))])"
    )
    done = ran([sys.executable, "-I", "-c", code], check=True)
    assert done.stdout.strip() == "[]"


def test_a_service_says_once_that_the_audit_log_is_down_and_that_it_is_well_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "audit.jsonl").mkdir()
    log = AuditLog(tmp_path / "audit.jsonl", warn=lambda _: None, retry_seconds=0)
    news = AuditNews(log)
    with caplog.at_level(logging.INFO, "skillhouse"):
        news.look()
        log.append_or_keep(AuditDraft(kind="intent", tool="read"))
        news.look()
        news.look()
        (tmp_path / "audit.jsonl").rmdir()
        log.flush()
        news.look()
        news.look()
    levels = [record.levelname for record in caplog.records]
    # The outage has a code of its own when something was refused for it.
    assert levels.count("INFO") == 1
    assert 1 <= levels.count("WARNING") <= 2
    assert "audit log" in caplog.text
    assert str(tmp_path) not in caplog.text
    log.close()
