"""What holds for the examples in docstrings and for tests/: what is read, and how a hang ends."""

from __future__ import annotations

import faulthandler
import fnmatch
import functools
import gc
import os
import signal
import sys
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest
from hypothesis import settings

HANG_SECONDS = 240
"""Longest setup, call or teardown of one test; on a loaded machine the slowest take a minute."""
CI_SKIPS = Path(__file__).with_name("tests") / "ci_skips.toml"
RECURSION_LIMIT = sys.getrecursionlimit()

# Every run tries the same examples, so a failure is there for the next person as well.
settings.register_profile("house", derandomize=True, deadline=None, max_examples=60)
# `./x test nightly`: other examples each time, and more. A test's own number of examples holds.
settings.register_profile(
    "nightly", derandomize=False, deadline=None, max_examples=600, database=None, print_blob=True
)
settings.register_profile("fast", derandomize=True, deadline=None, max_examples=20)
settings.load_profile("house")


def pytest_collection() -> None:
    # What is read stays, and rewriting the asserts makes much more: the collector, which walks all
    # of it again and again, took two fifths of the time of reading the tests.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    # py_ecc lifts the limit when a test of signatures is imported. With that limit, a text that is
    # nested deeply ends the process instead of raising an error.
    sys.setrecursionlimit(RECURSION_LIMIT)
    # Modules and tests stay until the end; each full collection would walk all of them.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples only where there are some: looking imports the module."""
    collectors = yield
    if file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8"):
        return [collector for collector in collectors if type(collector) is pytest.Module]
    return collectors


@functools.cache
def allowed_skips() -> tuple[tuple[str, str], ...]:
    """Return the patterns of node ids and reasons that CI may skip."""
    listed = tomllib.loads(CI_SKIPS.read_text(encoding="utf-8"))["skip"]
    return tuple((entry["tests"], entry["reason"]) for entry in listed)


def fail_unlisted_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a skip in CI a failure, unless tests/ci_skips.toml has it."""
    if not report.skipped or hasattr(report, "wasxfail") or not os.environ.get("CI"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    for tests, reasons in allowed_skips():
        if fnmatch.fnmatchcase(report.nodeid, tests) and fnmatch.fnmatchcase(reason, reasons):
            return
    report.outcome = "failed"
    report.longrepr = f"skipped in CI, which tests/ci_skips.toml does not allow: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_unlisted_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_unlisted_skip(report)
    return report


def hang_seconds(item: pytest.Item) -> int:
    """Return the limit of a test: `HANG_SECONDS`, unless its mark `takes` names a longer one."""
    mark = item.get_closest_marker("takes")
    return HANG_SECONDS if mark is None else int(mark.args[0])


@contextmanager
def ended_if_it_hangs(seconds: int) -> Iterator[None]:
    """Fail what takes longer than its limit; its stderr has the stacks of all threads.

    The test fails alone, and its process goes on with the next one. Only code in C that never
    returns to Python cannot be ended so.
    """
    if sys.platform == "win32":  # It has no such timer.
        yield
        return
    late = False

    def fail(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal late
        late = True
        pytest.fail(f"took longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    faulthandler.register(signal.SIGALRM, file=sys.__stderr__ or 2, chain=True)
    # Again every 5 seconds, because an event loop may keep the first exception to itself.
    signal.setitimer(signal.ITIMER_REAL, seconds, 5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
        signal.signal(signal.SIGALRM, before)
    if late:
        pytest.fail(f"took longer than {seconds} seconds")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with ended_if_it_hangs(hang_seconds(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with ended_if_it_hangs(hang_seconds(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    with ended_if_it_hangs(hang_seconds(item)):
        return (yield)
