"""Pytest plugin of scripts/suite.py: writes outcomes and costs, leaves out what can wait."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from scripts.suite_record import ROOT, Record

_wanted: set[str] = set()
"""The files of this process and every directory above one; empty where single tests are named."""


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest walk the folders once: it reads a file's whole folder again for each it is given.

    Of the fast part that was two fifths of the time of reading, and files of src that are given
    were read as tests beside their examples.
    """
    files = [ROOT / argument for argument in config.args]
    # The name of a test may be longer than that of any file.
    if not any("::" in argument for argument in config.args) and all(map(Path.is_file, files)):
        _wanted.update(map(str, files), (str(above) for file in files for above in file.parents))
        config.args = sorted({str(ROOT / file.relative_to(ROOT).parts[0]) for file in files})


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return str(collection_path) not in _wanted if _wanted else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
    """Make no rows of a table that is left out whole."""
    return [] if f"{collector.nodeid}::{name}" in left_out() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not left_out() & ids_of(item.nodeid)]


@functools.cache
def left_out() -> frozenset[str]:
    """Return the files and tests that the part of this run leaves out."""
    record = Record.read()
    listed = {"default": record.later, "ci": record.after_ci, "fast": record.not_fast}
    return listed.get(os.environ.get("SUITE_PART", ""), frozenset())


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
        os.write(_opened(place), json.dumps(row).encode() + b"\n")


@functools.cache
def _opened(place: str) -> int:
    return os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
