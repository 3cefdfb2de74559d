"""Pytest plugin of scripts/suite.py: writes outcomes, and leaves out what is left to CI."""

from __future__ import annotations

import json
import os

import pytest
from scripts.suite_record import Record


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    record = Record.read()
    left_out = {"default": record.later, "fast": record.not_fast}
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


def note(node: str, outcome: str) -> None:
    """Append an outcome; each line is written at once, so a crash loses none."""
    if place := os.environ.get("SUITE_REPORTS"):
        with open(place, "a", encoding="utf-8") as file:
            file.write(json.dumps([node, outcome]) + "\n")
