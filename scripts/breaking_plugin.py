"""Pytest plugin for scripts/breaking.py: which tests claim what, how they end, whose lines are run.

`BREAKING_CLAIMS`, `BREAKING_OUTCOMES` and `BREAKING_PROOF` name the files to write. Under coverage
each test is a context of its own, in the processes that it starts too (`context =
${BREAKING_TEST-}`). With `BREAKING_PROOF` the first failed assertion ends the run.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

SHARED = "(shared)"
"""The context of fixtures that serve more than one test."""
outcomes: dict[str, tuple[bool, float]] = {}
"""By test without parameters: whether all of it passed, and its seconds."""


def pytest_collection_finish(session: pytest.Session) -> None:
    found: dict[str, dict[str, None]] = {}
    for item in session.items:
        for marker in item.iter_markers("req"):
            for number in marker.args:
                found.setdefault(str(number), {})[base(item.nodeid)] = None
    write("BREAKING_CLAIMS", {number: list(nodes) for number, nodes in found.items()})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    passed, seconds = outcomes.get(base(report.nodeid), (True, 0.0))
    passed = passed and report.passed and not hasattr(report, "wasxfail")
    outcomes[base(report.nodeid)] = (passed, seconds + report.duration)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if (
        call.when == "call"
        and error is not None
        and (found := failed_assertion(error, item.config.rootpath / "tests"))
    ):
        write("BREAKING_PROOF", {"test": base(item.nodeid), "assertion": found})
        if os.environ.get("BREAKING_PROOF"):
            item.session.shouldstop = "an assertion failed"
    return report


def failed_assertion(error: BaseException, tests: Path) -> str:
    """Return the first line of a failed assertion of a test; "" for any other exception.

    An assertion is an `assert` of a file below `tests`, or pytest's own, such as `DID NOT RAISE`.
    What the package raises is none, even where it is what made the test fail.
    """
    if isinstance(error, BaseExceptionGroup):
        parts = (failed_assertion(part, tests) for part in error.exceptions)
        return next(filter(None, parts), "")
    if isinstance(error, pytest.fail.Exception):
        return first_line(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not isinstance(error, AssertionError) or trace is None:
        return ""
    is_ours = Path(trace.tb_frame.f_code.co_filename).is_relative_to(tests)
    return first_line(error) if is_ours else ""


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def pytest_sessionfinish() -> None:
    write("BREAKING_OUTCOMES", outcomes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    switch(base(item.nodeid))
    try:
        return (yield)
    finally:
        switch(SHARED)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any],
) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    before = os.environ["BREAKING_TEST"]
    switch(SHARED)
    try:
        return (yield)
    finally:
        switch(before)


def switch(context: str) -> None:
    os.environ["BREAKING_TEST"] = context
    if measured := coverage.Coverage.current():
        measured.switch_context(context)


def base(nodeid: str) -> str:
    """Return the test without its parameters."""
    return nodeid.partition("[")[0]


def write(variable: str, content: object) -> None:
    if path := os.environ.get(variable):
        Path(path).write_text(json.dumps(content))
