"""What every test may use: the shared data and a way to say what it needs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.listening import Listener

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Beside the project where it is developed; a user's clone has none."""

# Every run tries the same examples, so a failure is there for the next person as well.
settings.register_profile("house", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("house")


ALL_SLOW = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.slow\b", re.MULTILINE)

RECURSION_LIMIT = sys.getrecursionlimit()


def pytest_collection_finish() -> None:
    """Take back the limit that py_ecc lifts when a test of signatures is imported.

    With it, a text that is nested deeply ends the process instead of raising an error.
    """
    sys.setrecursionlimit(RECURSION_LIMIT)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no module of which nothing runs in the fast part: collecting them takes its time too."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return True if ALL_SLOW.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.fixture(scope="session")
def need() -> Callable[[object, str], None]:
    """Return `need(found, reason)`: skips the test where what it needs is missing, and fails in CI.

    For kernel features, browsers and services; `.ci/run` sets CI.
    """

    def check(found: object, reason: str) -> None:
        if found:
            return
        if os.environ.get("CI"):
            pytest.fail(f"missing in CI: {reason}")
        pytest.skip(reason)

    return check


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the directory of the shared data; skip the test in a clone that has none."""
    directory = SHARED / "data"
    if not directory.is_dir():
        pytest.skip("no ../shared/data beside this clone")
    return directory


@pytest.fixture
def heard() -> Iterator[Listener]:
    """Return what telemetry is told while the test runs."""
    from tests.listening import listener  # noqa: PLC0415 - most tests need no SDK.

    with listener().on() as listening:
        yield listening
