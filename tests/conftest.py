"""What every test may use: the shared data and a way to say what it needs."""

from __future__ import annotations

import os
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
# `./x test nightly`: other examples each time, and more. A test's own number of examples holds.
settings.register_profile(
    "nightly", derandomize=False, deadline=None, max_examples=600, database=None, print_blob=True
)
settings.register_profile("fast", derandomize=True, deadline=None, max_examples=20)
settings.load_profile("house")


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


@pytest.fixture(scope="session")
def postgres_server(need: Callable[[object, str], None]) -> Iterator[str]:
    """Return the address of a PostgreSQL server that runs for these tests alone."""
    from tests.postgres import cluster, program  # noqa: PLC0415 - most tests need no database.

    need(program("initdb") and program("pg_ctl"), "no PostgreSQL server is installed")
    with cluster() as address:
        yield address


@pytest.fixture
def heard() -> Iterator[Listener]:
    """Return what telemetry is told while the test runs."""
    from tests.listening import listener  # noqa: PLC0415 - most tests need no SDK.

    with listener().on() as listening:
        yield listening
