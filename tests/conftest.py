"""What every test may use: the shared data and a way to say what it needs."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.balanced import BALANCED, ONE_SERVER, RUNNING

if TYPE_CHECKING:
    from skillhouse.sandbox import SandboxStatus
    from tests.extensions.postgres.state_servers import StatePool
    from tests.listening import Listener
    from tests.replicated import Replicas

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Beside the project where it is developed; a user's clone has none."""
REPLICAS: pytest.StashKey[Replicas] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--state",
        choices=["sqlite", "postgresql"],
        help="where the states of tests and of what they start are: in files (the default), or in "
        "databases (that of --replicas)",
    )
    parser.addoption(
        "--replicas",
        action="store_true",
        help="where a test starts a server, or calls one in its own process: two `skillhouse up` "
        "of one state behind HAProxy",
    )


def pytest_configure(config: pytest.Config) -> None:
    is_replicated = config.getoption("--replicas")
    if config.option.state is None:
        config.option.state = "postgresql" if is_replicated else "sqlite"
    if is_replicated:
        from tests.balanced import replicate  # noqa: PLC0415 - by option.
        from tests.replicated import replicated_applications  # noqa: PLC0415 - by option.

        replicate(is_wanted=True)
        # Before the modules of tests, which import what makes applications.
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[REPLICAS] = stack.enter_context(replicated_applications())
    if is_replicated or config.option.state != "sqlite":
        config.pluginmanager.register(StatesOnServers())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set()
    if config.getoption("--state") != "sqlite":
        left_out.add("file_state")
    if config.getoption("--replicas"):
        left_out.add("one_server")
    for item in items:
        for one in item.iter_markers("one_server"):
            assert set(one.args) & set(ONE_SERVER), f"{item.nodeid}: why one server?"
        # No fixture of all tests: few name a profile. The rows of a table share the list.
        names = item.fixturenames if isinstance(item, pytest.Function) else ["own_profile"]
        if "own_profile" not in names and item.get_closest_marker("under"):
            names.insert(0, "own_profile")
    # Not skipped: CI fails for a skip, and what they show is shown without the option.
    gone = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how many tests had two servers, and why others had not."""
    if not config.getoption("--replicas"):
        return
    ran = {one.nodeid for one in terminalreporter.stats.get("passed", ())}
    why = Counter(
        mark.args[0]
        for item in terminalreporter.stats.get("deselected", ())
        if (mark := item.get_closest_marker("one_server"))
    )
    left_out = ", ".join(f"{number} `{name}`" for name, number in sorted(why.items())) or "0"
    terminalreporter.write_line(
        f"replicas: {len(ran & BALANCED)} tests through HAProxy to two servers, "
        f"{len(ran - BALANCED)} without a server; left out for one server: {left_out}"
    )


class StatesOnServers:
    """What each test has where its states, or those of what it starts, are not in files."""

    @pytest.fixture(scope="session", autouse=True)
    @staticmethod
    def state_pool(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[StatePool | None]:
        """Have the states of tests, and of what they start, where the option `--state` says."""
        if request.config.getoption("--state") == "sqlite":
            yield None
            return
        from tests.extensions.postgres.state_servers import StatePool  # noqa: PLC0415 - by option.

        pool = StatePool(request.getfixturevalue("postgres_server"))
        with pool.every_state_served(tmp_path_factory.getbasetemp()):
            yield pool

    @pytest.fixture(autouse=True)
    @staticmethod
    def states_of_test(
        request: pytest.FixtureRequest, state_pool: StatePool | None
    ) -> Iterator[None]:
        """Take back the states of a test at its end; those of wider fixtures stay."""
        yield
        if RUNNING:
            BALANCED.add(request.node.nodeid)
        replicas = request.config.stash.get(REPLICAS, None)
        directory = (request.node.funcargs or {}).get("tmp_path")
        if replicas is not None and directory:
            replicas.end_below(directory)
        if state_pool is not None and directory:
            state_pool.forget_below(directory)


@pytest.fixture
def own_profile(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test that has the mark `under` by the profile that it names."""
    from tests.house.places import under  # noqa: PLC0415 - most tests name none.

    with under(*request.node.get_closest_marker("under").args):
        yield


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
def anyio_backend() -> str:
    """Return the library of the event loop in which tests that are coroutines run."""
    return "asyncio"


@pytest.fixture
def bwrap(need: Callable[[object, str], None]) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")


@pytest.fixture
def git(need: Callable[[object, str], None]) -> None:
    need(shutil.which("git"), "no git")


@pytest.fixture
def node(need: Callable[[object, str], None]) -> None:
    need(shutil.which("node"), "no node here")


@pytest.fixture(scope="session")
def status(need: Callable[[object, str], None]) -> SandboxStatus:
    """What runs code here; the self-test takes seconds, and its result is the same for all."""
    from tests.house.coded import best_sandbox  # noqa: PLC0415 - most tests run no code.

    return best_sandbox(need)


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
