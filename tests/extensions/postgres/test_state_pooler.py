"""Tests of a state behind PgBouncer in transaction mode, where each transaction may be on another
connection of the server's: no prepared statement, no setting and no lock of a session holds."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.extensions.postgres.poolers import pooler
from tests.extensions.postgres.state_servers import served

from skillhouse import store
from skillhouse.extensions.postgres import state_server
from skillhouse.extensions.postgres.state_server import PostgresState
from skillhouse.extensions.postgres.state_watch import NOT_HEARD, hears
from skillhouse.floor import StateError
from skillhouse.store import STATE, STATE_FILE, commit_stamp, pooled

pytestmark = [pytest.mark.slow, pytest.mark.file_state]


@pytest.fixture
def pooled_url(
    need: Callable[[object, str], None], postgres_server: str, state_url: str
) -> Iterator[str]:
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/bin:/usr/bin")
    need(program, "no PgBouncer is installed")
    assert program is not None
    with pooler(program, postgres_server, state_url) as url:
        yield url


def test_writers_of_one_pool_wait_for_each_other_and_prepare_nothing(
    tmp_path: Path, pooled_url: str
) -> None:
    path = tmp_path / STATE_FILE
    faults: list[Exception] = []

    def add() -> None:
        try:
            for _ in range(20):
                with pooled(path, STATE) as kept, kept.transaction() as connection:
                    found = connection.execute("SELECT at_ms FROM tier_mark").fetchone()
                    connection.execute("UPDATE tier_mark SET at_ms = ?", (found[0] + 1,))
        except Exception as error:  # noqa: BLE001 - shown below.
            faults.append(error)

    with served(tmp_path, pooled_url):
        with pooled(path, STATE) as kept, kept.transaction() as connection:
            connection.execute("INSERT INTO tier_mark VALUES ('sum', 0)")
        threads = [threading.Thread(target=add) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        with pooled(path, STATE) as kept:
            assert kept.rows("SELECT at_ms FROM tier_mark") == [(120,)]


def test_notices_come_by_the_address_of_the_server_itself(
    tmp_path: Path, pooled_url: str, state_url: str
) -> None:
    assert (hears(pooled_url), hears(state_url)) == (NOT_HEARD, "yes")
    path, other = tmp_path / "a" / STATE_FILE, tmp_path / "b" / STATE_FILE
    server = PostgresState(path, lambda: pooled_url, lambda: state_url)
    assert store.serve_state(path, lambda: server)
    try:
        for _ in range(state_server.WATCH_AFTER + 1):
            commit_stamp(path)
        assert server.watch is not None
        end = time.monotonic() + 5
        while server.watch.commits() is None:
            assert time.monotonic() < end, server.watch.fault
            time.sleep(0.01)
        before = commit_stamp(path)
        with (
            served(other.parent, pooled_url),
            pooled(other, STATE) as kept,
            kept.transaction() as connection,
        ):
            connection.execute("INSERT INTO notice VALUES ('a', 'b')")
        end = time.monotonic() + 1
        while commit_stamp(path) == before:
            assert time.monotonic() < end
            time.sleep(0.005)
    finally:
        store.forget_state(path)


def test_without_that_address_each_look_asks_the_server(tmp_path: Path, pooled_url: str) -> None:
    path, other = tmp_path / "a" / STATE_FILE, tmp_path / "b" / STATE_FILE
    with served(path.parent, pooled_url) as server:
        for _ in range(state_server.WATCH_AFTER + 1):
            commit_stamp(path)
        end = time.monotonic() + 5
        while server.watch is None or not server.watch.fault:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert (server.watch.fault, server.watch.commits()) == (NOT_HEARD, None)
        before = commit_stamp(path)
        with (
            served(other.parent, pooled_url),
            pooled(other, STATE) as kept,
            kept.transaction() as connection,
        ):
            connection.execute("INSERT INTO notice VALUES ('a', 'b')")
        assert commit_stamp(path) != before


def test_a_dry_run_leaves_nothing_on_the_connections_of_the_pool(
    tmp_path: Path, pooled_url: str, state_url: str
) -> None:
    """A table of a session would be used by whoever gets that connection next, and end with it."""
    path = tmp_path / "dry" / STATE_FILE
    pooled_only = PostgresState(path, lambda: pooled_url, is_dry=True)
    with pytest.raises(StateError, match="listen_url"), pooled_only.use():
        pass
    dry = PostgresState(path, lambda: pooled_url, lambda: state_url, is_dry=True)
    with dry.use() as kept:
        assert kept.rows("SELECT count(*) FROM tier_mark") == [(0,)]
        with kept.transaction() as connection:
            connection.execute("INSERT INTO tier_mark VALUES ('dry', 1)")
    dry.close()
    assert not path.exists()
    with (
        served(tmp_path, pooled_url),
        pooled(tmp_path / STATE_FILE, STATE) as used,
        used.transaction() as writing,
    ):
        writing.execute("INSERT INTO tier_mark VALUES ('sum', 5)")
    direct = PostgresState(tmp_path / "direct" / STATE_FILE, lambda: state_url)
    with direct.use() as kept:
        assert kept.rows("SELECT name, at_ms FROM tier_mark") == [("sum", 5)]
    direct.close()
