"""A state on a server: what machines that share it, or names that models give, could do to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from skillhouse import store
from skillhouse.approval import ApprovalBroker
from skillhouse.extensions.postgres.state_server import PostgresState
from skillhouse.floor import StateError, system_clock
from skillhouse.store import STATE, STATE_FILE, Store, pooled
from skillhouse.tiers.tier_ledger import TierStore, stop
from tests.approval.questions import question
from tests.extensions.postgres.state_servers import new_database, served

pytestmark = [pytest.mark.slow, pytest.mark.file_state]


@pytest.fixture
def state_url(postgres_server: str) -> str:
    return new_database(postgres_server)


@pytest.fixture
def path(tmp_path: Path, state_url: str) -> Iterator[Path]:
    with served(tmp_path, state_url):
        yield tmp_path / STATE_FILE


def at_once(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


LOOK = "SELECT count(*) FROM sign_used"


def test_two_machines_that_look_and_then_take_do_not_both_take(path: Path, state_url: str) -> None:
    naive: list[int] = []
    together = threading.Barrier(4)

    def naively() -> None:
        # As each statement is on PostgreSQL by default: who looked before a commit sees nothing.
        with psycopg.connect(state_url) as connection:
            connection.execute("BEGIN")
            if connection.execute(LOOK.encode()).fetchone() == (0,):
                together.wait(10)
                naive.append(1)

    taken: list[int] = []

    def take() -> None:
        with pooled(path, STATE) as kept, kept.transaction() as connection:
            if connection.execute("SELECT count(*) FROM sign_used").fetchone() == (0,):
                time.sleep(0.05)
                connection.execute("INSERT INTO sign_used VALUES ('approval', 1)")
                taken.append(1)

    with pooled(path, STATE):
        pass
    at_once(4, naively)
    at_once(4, take)
    assert (len(naive), len(taken)) == (4, 1)


@pytest.mark.parametrize(
    "name",
    [
        "'; DROP TABLE approval; --",
        "%s %(a)s %% ? :name $1",
        "x' OR '1'='1",
        "\\'; SELECT pg_sleep(9); --",
        '"user"',
        "E'\\n'",
    ],
)
def test_a_name_of_a_model_is_a_value_and_no_part_of_a_statement(path: Path, name: str) -> None:
    broker = ApprovalBroker(path.parent)
    kept = broker.open(question(f"/w/{name}", user=name, title=name))
    assert broker.get(kept.id).request.title == name
    assert broker.get(kept.id).request.user == name
    with pooled(path, STATE) as rows:
        found = rows.rows("SELECT count(*) FROM approval WHERE user_name = ?", (name,))
        assert found == [(1,)]
        assert rows.rows("SELECT count(*) FROM approval WHERE user_name = :n", {"n": "x"}) == [(0,)]


def stopped_at(directory: Path) -> TierStore:
    return TierStore(directory / STATE_FILE, system_clock)


def test_a_wrong_address_is_no_way_out_of_a_stop(
    tmp_path: Path, postgres_server: str, state_url: str
) -> None:
    """An empty database says that nothing is stopped, and that no approval was used."""
    with served(tmp_path, state_url), stopped_at(tmp_path).turn() as (connection, now_ms):
        stop(connection, "mika", "a test", now_ms)
    other = new_database(postgres_server)
    # Naively: whatever answers is the state, as on a machine that had none before.
    with served(tmp_path / "naive", other):
        assert stopped_at(tmp_path / "naive").stopped() == ""
    with served(tmp_path, other), pytest.raises(StateError, match="another state than the one"):
        stopped_at(tmp_path).stopped()


def test_a_program_that_knows_of_no_server_makes_no_state_of_its_own(
    tmp_path: Path, state_url: str
) -> None:
    with served(tmp_path, state_url), stopped_at(tmp_path).turn() as (connection, now_ms):
        stop(connection, "mika", "a test", now_ms)
    # Naively: no file, so an empty state is made, in which nothing is stopped.
    naive = tmp_path / "naive" / STATE_FILE
    Store(naive, STATE).close()
    assert TierStore(naive, system_clock).stopped() == ""
    with pytest.raises(StateError, match="was moved to a server"):
        Store(tmp_path / STATE_FILE, STATE)


def test_a_stop_of_one_machine_holds_on_another_at_its_next_look(
    tmp_path: Path, state_url: str
) -> None:
    with served(tmp_path / "a", state_url), served(tmp_path / "b", state_url):
        assert stopped_at(tmp_path / "b").stopped() == ""
        with stopped_at(tmp_path / "a").turn() as (connection, now_ms):
            stop(connection, "mika", "a test", now_ms)
        assert stopped_at(tmp_path / "b").stopped() == "a test (by mika)"


def test_a_machine_whose_clock_is_wrong_prolongs_no_question(
    tmp_path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own clock would say that an approval of long ago holds still."""
    own = time.time
    with served(tmp_path, state_url):
        now = store.state_clock(tmp_path / STATE_FILE, lambda: own() - 86_400)
        before = now()
        monkeypatch.setattr(time, "time", lambda: own() - 86_400)
        assert time.time() < before - 80_000
        assert abs(now() - before) < 60
        with pooled(tmp_path / STATE_FILE, STATE) as kept, kept.transaction():
            at_ms = kept.server_ms()
        assert at_ms is not None
        assert abs(at_ms / 1000 - before) < 60


def test_the_address_of_the_state_is_in_no_error(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    secret = "correct-horse"
    url = f"postgresql://user:{secret}@127.0.0.1:1/d"
    server = PostgresState(path, lambda: url)
    store.serve_state(path, lambda: server)
    try:
        with pytest.raises(StateError) as caught, pooled(path, STATE):
            pass
    finally:
        store.forget_state(path)
    assert secret not in str(caught.value)
