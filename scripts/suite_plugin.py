"""Pytest plugin of scripts/suite.py: writes outcomes and costs, leaves out what can wait."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator

import pytest
from scripts.suite_record import Record


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    record = Record.read()
    left_out = {"default": record.later, "ci": record.after_ci, "fast": record.not_fast}
    listed = left_out.get(os.environ.get("SUITE_PART", ""), frozenset())
    items[:] = [item for item in items if not listed & ids_of(item.nodeid)]


def ids_of(node: str) -> set[str]:
    """Return a test's id, and the same without its parameters."""
    return {node, node.partition("[")[0]}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        note(report.nodeid, report.outcome)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:  # A module that skips itself whole is said by pytest alone.
        note(report.nodeid, "failed")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before, begun = _cpu(), time.monotonic()
    result = yield
    write([item.nodeid, round(_cpu() - before, 2), round(time.monotonic() - begun, 2)])
    return result


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def note(node: str, outcome: str) -> None:
    """Append an outcome."""
    write([node, outcome])


def write(row: list[object]) -> None:
    """Append a line to the reports; each is written at once, so a crash loses none."""
    if place := os.environ.get("SUITE_REPORTS"):
        with open(place, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
