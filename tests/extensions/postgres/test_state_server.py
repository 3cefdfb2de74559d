"""Tests of a state on a PostgreSQL server: what it keeps, who waits for whom, and what a loss of
the server or of a connection does."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.approval.questions import question, said
from tests.extensions.postgres.state_servers import new_database, served, workers

from skillhouse import store
from skillhouse.approval import Answer, ApprovalBroker
from skillhouse.extensions.postgres import state_server, state_session, state_tables
from skillhouse.extensions.postgres.state_server import WATCH_AFTER, PostgresState
from skillhouse.extensions.postgres.state_tables import for_postgres, make
from skillhouse.floor import StateError, structs
from skillhouse.store import (
    STATE,
    STATE_FILE,
    Schema,
    StateConflictError,
    commit_stamp,
    pooled,
    state_clock,
)

pytestmark = [pytest.mark.slow, pytest.mark.file_state]

CONNECTED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'skillhouse %'
"""
NOTE = "INSERT INTO notice VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path, state_url: str) -> Iterator[Path]:
    """Return the place of a state that is on a server."""
    with served(tmp_path, state_url):
        yield tmp_path / STATE_FILE


def write(path: Path, name: str, text: object = "text") -> None:
    with pooled(path, STATE) as kept, kept.transaction() as connection:
        connection.execute(NOTE, (name, text))


def together(path: Path, *steps: Callable[[], object] | tuple[str, object]) -> None:
    """Write rows in one transaction; a function is called between them."""
    with pooled(path, STATE) as kept, kept.transaction() as connection:
        for step in steps:
            if isinstance(step, tuple):
                connection.execute(NOTE, step)
            else:
                step()


def names(path: Path) -> list[str]:
    with pooled(path, STATE) as kept:
        return [name for (name,) in kept.rows("SELECT name FROM notice ORDER BY name")]


def until(holds: Callable[[], Any], seconds: float = 10) -> Any:
    """Wait for what another thread or process does."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.005)
    return found


@pytest.mark.parametrize("engine", ["file", "server"])
def test_both_engines_give_the_same_values_for_the_same_statements(
    tmp_path: Path, state_url: str, engine: str
) -> None:
    def used() -> list[Any]:
        with pooled(tmp_path / STATE_FILE, STATE) as kept:
            with kept.transaction() as connection:
                connection.execute("INSERT INTO skill_setting VALUES (?, ?)", ("a%?", True))
                connection.execute("INSERT INTO skill_setting VALUES (:s, :e)", {"s": "B", "e": 0})
                connection.execute("INSERT INTO skill_setting VALUES ('\u00e9:x', 1)")
                changed = connection.execute("UPDATE skill_setting SET is_enabled = 1").rowcount
                none = connection.execute("DELETE FROM skill_setting WHERE skill = 'no'").rowcount
                connection.execute("INSERT INTO export VALUES (?, ?)", ("t", b"\x00\xff"))
                first = connection.execute("SELECT skill FROM skill_setting ORDER BY skill")
                one = first.fetchone()
                rest = list(first)
            return [
                (changed, none, one, rest),
                kept.rows(
                    "SELECT skill FROM skill_setting WHERE skill LIKE 'a%' AND skill = ?", ("a%?",)
                ),
                kept.rows("SELECT sum(is_enabled), count(*), max(is_enabled) FROM skill_setting"),
                kept.rows("SELECT is_enabled = 1, EXISTS (SELECT 1 FROM trust) FROM skill_setting"),
                kept.rows("SELECT record FROM export"),
                kept.rows("SELECT name FROM notice"),
            ]

    expected = [
        (3, 0, ("B",), [("a%?",), ("\u00e9:x",)]),
        [("a%?",)],
        [(3, 3, 1)],
        [(1, 0)] * 3,
        [(b"\x00\xff",)],
        [],
    ]
    if engine == "file":
        found = used()
    else:
        with served(tmp_path, state_url):
            found = used()
    assert found == expected
    assert [type(value) for row in found[2] + found[3] for value in row] == [int] * 9


@pytest.mark.parametrize("engine", ["file", "server"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [(("a", "again"), StateConflictError), (("b", "half \ud83d"), StateError)],
)
def test_what_cannot_be_kept_is_an_error_and_takes_back_all_of_it(
    tmp_path: Path, state_url: str, engine: str, values: tuple[str, str], kind: type[StateError]
) -> None:
    def used() -> None:
        path = tmp_path / STATE_FILE
        write(path, "a")
        with pytest.raises(kind):
            together(path, ("before", "text"), values)
        assert names(path) == ["a"]

    if engine == "file":
        used()
    else:
        with served(tmp_path, state_url):
            used()


@pytest.mark.parametrize("value", ["a\0b", 1 << 64])
def test_what_postgresql_has_no_place_for_is_an_error(path: Path, value: object) -> None:
    with (
        pytest.raises(StateError, match="the state on the server cannot be used"),
        pooled(path, STATE) as kept,
        kept.transaction() as connection,
    ):
        connection.execute("INSERT INTO tier_mark VALUES (?, ?)", ("a", value))
    assert names(path) == []


def test_an_error_of_the_block_takes_its_changes_back_and_keeps_the_connection(path: Path) -> None:
    class ThisError(Exception):
        pass

    def fail() -> None:
        raise ThisError

    server = store.state_server(path)
    assert isinstance(server, PostgresState)
    with server.use() as session:
        connection = session.connection
    with pytest.raises(ThisError):
        together(path, ("a", "text"), fail)
    assert names(path) == []
    with server.use() as session:
        assert session.connection is connection


def test_two_that_look_and_then_write_see_each_other(path: Path) -> None:
    """Without the lock of all writers both would find nothing, and both would write."""
    took: list[int] = []

    def take() -> None:
        with pooled(path, STATE) as kept, kept.transaction() as connection:
            found = connection.execute("SELECT count(*) FROM notice").fetchone()
            time.sleep(0.02)
            if found == (0,):
                connection.execute(NOTE, (str(threading.get_ident()), "text"))
                took.append(1)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(took), len(names(path))) == (1, 1)


def test_threads_that_use_a_server_first_at_once_leave_one_mark(path: Path) -> None:
    found: list[object] = []

    def use() -> None:
        try:
            found.append(names(path))
        except StateError as error:
            found.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[]] * 8
    assert state_server.file_mark(path) not in (None, "")


def test_a_commit_of_ours_changes_the_stamp_at_once_and_a_look_does_not(path: Path) -> None:
    before = commit_stamp(path)
    names(path)
    with pooled(path, STATE) as kept, kept.transaction() as connection:
        connection.execute("UPDATE notice SET text = '' WHERE name = 'no'")
    assert commit_stamp(path) == before
    for at in range(20):
        write(path, str(at))
        after = commit_stamp(path)
        assert after != before
        before = after


def differs(path: Path, stamp: tuple[int, ...]) -> bool:
    return commit_stamp(path) != stamp


def test_a_commit_of_another_process_changes_the_stamp_in_memory(
    path: Path, tmp_path: Path, state_url: str
) -> None:
    for _ in range(state_server.WATCH_AFTER + 1):
        commit_stamp(path)
    with served(tmp_path / "other", state_url):
        for at in range(20):
            before = commit_stamp(path)
            write(tmp_path / "other" / STATE_FILE, str(at))
            until(partial(differs, path, before), seconds=1)


def ended(url: str, purpose: str = "") -> int:
    """End the connections of processes to a database; return how many there were."""
    with psycopg.connect(url) as connection:
        return len(
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND application_name LIKE %s",
                (f"skillhouse state{purpose}%",),
            ).fetchall()
        )


def test_a_connection_that_was_lost_while_idle_is_made_once_more(
    path: Path, state_url: str
) -> None:
    write(path, "a")
    assert ended(state_url) == 1
    assert names(path) == ["a"]
    write(path, "b")
    assert names(path) == ["a", "b"]


def test_a_connection_that_is_lost_in_a_transaction_is_an_error_and_writes_nothing(
    path: Path, state_url: str
) -> None:
    with pytest.raises(StateError):
        together(path, ("a", "text"), lambda: ended(state_url), ("b", "text"))
    assert names(path) == []


def test_the_watch_reads_the_counter_after_it_lost_its_connection(
    path: Path, tmp_path: Path, state_url: str
) -> None:
    for _ in range(state_server.WATCH_AFTER + 1):
        commit_stamp(path)
    server = store.state_server(path)
    assert isinstance(server, PostgresState)
    watch = server.watch
    assert watch is not None
    until(lambda: watch.commits() is not None)
    before = commit_stamp(path)
    with served(tmp_path / "other", state_url):
        assert ended(state_url, " notices") == 1
        write(tmp_path / "other" / STATE_FILE, "while it was away")
        assert until(lambda: commit_stamp(path) != before, seconds=1)
    until(lambda: watch.commits() is not None)


def test_a_counter_that_is_behind_after_a_fail_over_is_another_stamp(
    path: Path, tmp_path: Path, state_url: str
) -> None:
    """A promoted copy may lack the last commits: the next ones have numbers that were there."""
    with served(tmp_path / "other", state_url):
        for at in range(3):
            write(tmp_path / "other" / STATE_FILE, str(at))
        for _ in range(state_server.WATCH_AFTER + 1):
            commit_stamp(path)
        server = store.state_server(path)
        assert isinstance(server, PostgresState)
        watch = server.watch
        assert watch is not None
        before = until(lambda: watch.commits() and commit_stamp(path))
        with psycopg.connect(state_url) as connection:
            connection.execute("UPDATE skillhouse_state SET commits = commits - 1")
        ended(state_url)
        write(tmp_path / "other" / STATE_FILE, "a revocation")
        until(watch.commits)
        assert commit_stamp(path) != before


def test_what_uses_a_state_after_its_close_leaves_no_connection(
    tmp_path: Path, state_url: str
) -> None:
    server = PostgresState(tmp_path / STATE_FILE, lambda: state_url)
    with server.use() as late:
        server.close()
        for _ in range(WATCH_AFTER + 2):
            server.stamp()
    assert late.connection.closed
    assert server.watch is None
    # Within one transaction a server shows its connections as they were at the first look.
    with psycopg.connect(state_url, autocommit=True) as other:
        until(lambda: other.execute(CONNECTED).fetchone() == (0,))


def test_a_fork_begins_with_connections_of_its_own(path: Path) -> None:
    write(path, "parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            write(path, "child")
            code = 0 if names(path) == ["child", "parent"] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(path, "parent again")
    assert len(names(path)) == 3


def test_all_connections_in_use_is_an_error_after_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_server, "WAIT_SECONDS", 0.1)
    with (
        contexts(state_server.CONNECTIONS_MAX, lambda: pooled(path, STATE)),
        pytest.raises(StateError, match="all 10 connections of this process were in use"),
    ):
        names(path)
    assert names(path) == []


@contextmanager
def contexts(count: int, make_one: Callable[[], Any]) -> Iterator[None]:
    from contextlib import ExitStack  # noqa: PLC0415 - here alone.

    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(make_one())
        yield


def test_who_is_stopped_in_a_transaction_holds_up_the_others_for_a_while_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is frozen between looking and writing must not hold the lock for good."""
    begins = state_session.BEGIN.replace(f"'{state_session.IDLE_MS}'", "'300'")
    assert begins != state_session.BEGIN
    monkeypatch.setattr(state_session, "BEGIN", begins)
    with pytest.raises(StateError):
        together(path, ("frozen", ""), lambda: write(path, "other"), ("frozen too", ""))
    assert names(path) == ["other"]


def at_version(version: int) -> Schema:
    return structs.replace(STATE, steps=STATE.steps[: version - STATE.base_version])


def test_a_newer_state_is_refused_and_left(path: Path, state_url: str) -> None:
    assert names(path) == []
    with psycopg.connect(state_url) as connection:
        connection.execute("UPDATE skillhouse_state SET schema_version = schema_version + 1")
    server = store.state_server(path)
    assert server is not None
    server.close()
    with pytest.raises(StateError, match="use a newer skillhouse"):
        names(path)


def tables_of(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT table_name, column_name, data_type, column_default, is_nullable, "
            "collation_name FROM information_schema.columns WHERE table_schema = 'public' "
            "ORDER BY table_name, column_name"
        ).fetchall()


def test_an_older_state_on_a_server_ends_in_the_schema_of_a_new_one(
    tmp_path: Path, postgres_server: str, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = at_version(state_tables.PORTABLE_FROM)
    with monkeypatch.context() as patch:
        patch.setattr(state_tables, "STATE", first)
        with psycopg.connect(state_url) as connection:
            make(connection, "0" * 32)
    new = new_database(postgres_server)
    for name, url in (("old", state_url), ("new", new)):
        with served(tmp_path / name, url):
            write(tmp_path / name / STATE_FILE, "a")
    assert tables_of(state_url) == tables_of(new)


def test_a_step_that_fails_leaves_the_older_state_whole(
    tmp_path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, state_url):
        write(tmp_path / STATE_FILE, "a")
    before = tables_of(state_url)
    steps = (("ALTER TABLE notice ADD COLUMN more TEXT NOT NULL DEFAULT ''", "SELECT nothing"),)
    monkeypatch.setattr(state_tables, "STATE", structs.replace(STATE, steps=STATE.steps + steps))
    with served(tmp_path, state_url), pytest.raises(StateError):
        names(tmp_path / STATE_FILE)
    assert tables_of(state_url) == before


def test_the_definitions_of_every_step_are_postgresqls() -> None:
    assert for_postgres("CREATE TABLE g (s INTEGER, t TEXT NOT NULL, r BLOB)") == (
        'CREATE TABLE g (s BIGINT, t TEXT COLLATE "C" NOT NULL, r BYTEA)'
    )


def test_the_clock_of_a_state_is_its_servers(path: Path, tmp_path: Path) -> None:
    behind = state_clock(path, lambda: time.time() - 3_600)
    assert abs(behind() - time.time()) < 5
    assert state_clock(tmp_path / "file" / STATE_FILE, lambda: 7.0)() == 7.0
    with pooled(path, STATE) as kept, kept.transaction():
        at_ms = kept.server_ms()
    assert at_ms is not None
    assert abs(at_ms - time.time() * 1000) < 5_000


ANSWERS = """
from tests.approval.questions import said
from skillhouse.approval import Answer, ApprovalBroker, ApprovalError
broker = ApprovalBroker(base / name)
# Not of those that are open: another one may have answered it already.
[approval] = broker.latest(1)
try:
    said(broker, approval.id, Answer.ONCE if int(name) % 4 < 2 else Answer.NO)
    print("first")
except ApprovalError as error:
    print(error.code)
"""
REDEEMS = """
from skillhouse.approval import ApprovalBroker, ApprovalError
broker = ApprovalBroker(base / name)
[approval] = broker.latest(1)
one = approval.request
try:
    print(broker.redeem(one.id, one.content_digest, one.session).id == one.id)
except ApprovalError as error:
    print(error.code)
"""


def test_of_sixteen_processes_one_answers_first_and_one_uses_the_approval(
    tmp_path: Path, state_url: str
) -> None:
    with served(tmp_path, state_url):
        broker = ApprovalBroker(tmp_path)
        broker.open(question())
        answered = workers(tmp_path, state_url, 16, ANSWERS)
        assert (answered.count("first"), len(set(answered))) == (1, 2), answered
        approved = broker.open(question("/w/other"))
        said(broker, approved.id, Answer.ONCE)
        used = workers(tmp_path, state_url, 16, REDEEMS)
    assert (used.count("True"), len(set(used))) == (1, 2), used


COUNTS = """
for at in range(20):
    with pooled(base / name / STATE_FILE, STATE) as kept, kept.transaction() as connection:
        row = connection.execute("SELECT at_ms FROM tier_mark WHERE name = 'sum'").fetchone()
        if row[0] + 3 <= 100:
            connection.execute("UPDATE tier_mark SET at_ms = ? WHERE name = 'sum'", (row[0] + 3,))
            print("took")
"""


def test_sixteen_processes_exceed_no_sum_and_lose_no_part_of_it(
    tmp_path: Path, state_url: str
) -> None:
    with served(tmp_path, state_url):
        path = tmp_path / STATE_FILE
        with pooled(path, STATE) as kept, kept.transaction() as connection:
            connection.execute("INSERT INTO tier_mark VALUES ('sum', 0)")
        took = "\n".join(workers(tmp_path, state_url, 16, COUNTS)).count("took")
        with pooled(path, STATE) as kept:
            assert kept.rows("SELECT at_ms FROM tier_mark") == [(99,)]
    assert took == 33


MAKES = "print(len(pooled(base / name / STATE_FILE, STATE).__enter__().rows('SELECT 1')))"


def test_eight_processes_that_make_one_state_at_once_make_one(
    tmp_path: Path, state_url: str
) -> None:
    assert workers(tmp_path, state_url, 8, MAKES) == ["1"] * 8
    with psycopg.connect(state_url) as connection:
        assert connection.execute("SELECT count(*) FROM skillhouse_state").fetchall() == [(1,)]


def stopped_server(url: str) -> tuple[int, ...]:
    """Return the processes of a database that are of this test."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        ).fetchall()
    return tuple(pid for (pid,) in found)


def test_a_server_that_answers_no_more_is_an_error_in_time_and_comes_back(
    path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is half dead gives no error by itself: the answer never comes."""
    write(path, "a")
    monkeypatch.setattr(state_session, "LOOK_SECONDS", 2)
    monkeypatch.setattr(state_session, "CONNECT_SECONDS", 2)
    processes = stopped_server(state_url)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(StateError, match="does not answer"):
            names(path)
        # Who comes next does not wait for the same silence.
        for _ in range(5):
            with pytest.raises(StateError, match="does not answer"):
                names(path)
        assert time.monotonic() - began < 3 * 2
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    assert until(lambda: tried(path)) == ["a"]


def tried(path: Path) -> list[str] | None:
    try:
        return names(path)
    except StateError:
        return None
