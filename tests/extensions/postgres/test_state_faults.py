"""What the server of a state may answer, class by class: each is an error of ours that says why,
nothing is done, nothing is kept, and the next use works once the cause is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.extensions.postgres.state_servers import database_of, served
from tests.extensions.postgres.test_state_server import ended, names, write

from skillhouse import store
from skillhouse.extensions.postgres import state_server, state_session
from skillhouse.extensions.postgres.state_server import PostgresState
from skillhouse.floor import StateError
from skillhouse.store import STATE, STATE_FILE, StateConflictError, pooled

pytestmark = [pytest.mark.slow, pytest.mark.file_state]

CODES = {
    "08006": "connection_failure",
    "0A000": "feature_not_supported",
    "22P05": "untranslatable_character",
    "25006": "read_only_sql_transaction",
    "25P02": "in_failed_sql_transaction",
    "25P03": "idle_in_transaction_session_timeout",
    "28000": "invalid_authorization_specification",
    "40001": "serialization_failure",
    "40003": "statement_completion_unknown",
    "40P01": "deadlock_detected",
    "42501": "insufficient_privilege",
    "42P01": "undefined_table",
    "53100": "disk_full",
    "53200": "out_of_memory",
    "53300": "too_many_connections",
    "53400": "configuration_limit_exceeded",
    "54000": "program_limit_exceeded",
    "55P03": "lock_not_available",
    "57014": "query_canceled",
    "57P01": "admin_shutdown",
    "57P03": "cannot_connect_now",
    "57P05": "idle_session_timeout",
    "58030": "io_error",
    "P0001": "raise_exception",
    "XX000": "internal_error",
    "XX001": "data_corrupted",
}
SECRET = "what was asked"
SAYS = r"^the state on the server cannot be used: .*\bno, because\b"
TRIGGERS = {
    "statement": "CREATE TRIGGER fault AFTER INSERT ON notice",
    "commit": "CREATE CONSTRAINT TRIGGER fault AFTER INSERT ON notice "
    "DEFERRABLE INITIALLY DEFERRED",
}
"""When the server has the fault: at the statement, or at the end of its transaction."""


@pytest.fixture
def path(tmp_path: Path, state_url: str) -> Iterator[Path]:
    with served(tmp_path, state_url):
        yield tmp_path / STATE_FILE


@contextmanager
def fault(url: str, body: str, when: str) -> Iterator[None]:
    """Have the server run `body` when a row of `notice` is written, for a block."""
    with psycopg.connect(url, autocommit=True) as connection:
        function = f"BEGIN {body}; RETURN NEW; END"
        connection.execute(
            f"CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $${function}$$".encode()
        )
        connection.execute(f"{TRIGGERS[when]} FOR EACH ROW EXECUTE FUNCTION fault()".encode())
        try:
            yield
        finally:
            connection.execute("DROP FUNCTION fault() CASCADE")


@pytest.mark.parametrize("when", TRIGGERS)
@pytest.mark.parametrize("code", CODES, ids=lambda code: f"{code}-{CODES[code]}")
def test_each_fault_of_the_server_is_an_error_of_ours_and_writes_nothing(
    code: str, when: str, path: Path, state_url: str
) -> None:
    write(path, "before")
    with fault(state_url, f"RAISE EXCEPTION 'no, because' USING ERRCODE = '{code}'", when):
        with pytest.raises(StateError, match=SAYS) as raised:
            write(path, "fault", SECRET)
        assert not isinstance(raised.value, StateConflictError)
        assert SECRET not in str(raised.value)
        # Who only looks is not held up by it, in this process or another.
        assert names(path) == ["before"]
    write(path, "after")
    assert names(path) == ["after", "before"]


@pytest.mark.parametrize("when", TRIGGERS)
def test_a_broken_rule_of_a_table_is_said_to_be_one(when: str, path: Path, state_url: str) -> None:
    write(path, "before")
    raises = "RAISE EXCEPTION 'no' USING ERRCODE = '23505', CONSTRAINT = 'notice_pkey'"
    with fault(state_url, raises, when), pytest.raises(StateConflictError, match="notice_pkey"):
        write(path, "fault")
    write(path, "after")
    assert names(path) == ["after", "before"]


@pytest.mark.parametrize("when", TRIGGERS)
def test_a_connection_that_an_administrator_ends_costs_its_transaction_alone(
    when: str, path: Path, state_url: str
) -> None:
    write(path, "before")
    kills = "PERFORM pg_terminate_backend(pg_backend_pid())"
    with fault(state_url, kills, when), pytest.raises(StateError, match="cannot be used"):
        write(path, "fault")
    write(path, "after")
    assert names(path) == ["after", "before"]


def test_a_statement_that_takes_too_long_is_ended_by_the_server(
    path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "before")
    begins = state_session.BEGIN.replace(f"'{state_session.STATEMENT_MS}'", "'200'")
    assert begins != state_session.BEGIN
    monkeypatch.setattr(state_session, "BEGIN", begins)
    with (
        fault(state_url, "PERFORM pg_sleep(30)", "statement"),
        pytest.raises(StateError, match="statement timeout"),
    ):
        write(path, "fault")
    write(path, "after")
    assert names(path) == ["after", "before"]


def test_an_end_of_a_transaction_that_never_answers_is_an_error_and_others_go_on(
    path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No limit of the server's holds for COMMIT: a standby that does not answer holds it up."""
    write(path, "before")
    monkeypatch.setattr(state_server, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(state_server, "PAUSE_SECONDS", 0.0)
    with (
        fault(state_url, "PERFORM pg_sleep(1)", "commit"),
        pytest.raises(StateError, match="the server of the state does not answer"),
    ):
        write(path, "slow")
    # It may have been kept, as what it would have done counts as done then.
    monkeypatch.undo()
    write(path, "after")
    assert names(path) in (["after", "before", "slow"], ["after", "before"])


def test_a_lock_that_others_hold_for_long_is_an_error_and_the_same_use_goes_on(
    path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = state_session.BEGIN.replace(f"'{state_session.LOCK_MS}'", "'100'")
    assert begins != state_session.BEGIN
    monkeypatch.setattr(state_session, "BEGIN", begins)
    with pooled(path, STATE) as kept, psycopg.connect(state_url) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({state_session.LOCK})")
        with pytest.raises(StateError, match="others were changing it for 10 s"):
            kept.transaction().__enter__()
        assert kept.rows("SELECT name FROM notice") == []
        other.rollback()
        with kept.transaction() as connection:
            connection.execute("INSERT INTO notice VALUES ('after', '')")
    assert names(path) == ["after"]


def write_twice(path: Path) -> None:
    """Pass over the error of a statement, as no caller should."""
    with pooled(path, STATE) as kept, kept.transaction() as connection:
        connection.execute("INSERT INTO notice VALUES ('a', '')")
        with pytest.raises(StateConflictError):
            connection.execute("INSERT INTO notice VALUES ('a', '')")


def test_an_error_inside_of_a_transaction_that_a_caller_passes_over_keeps_none_of_it(
    path: Path,
) -> None:
    with pytest.raises(StateError, match="aborted"):
        write_twice(path)
    assert names(path) == []
    write(path, "after")
    assert names(path) == ["after"]


@pytest.fixture
def poor_url(state_url: str, postgres_server: str) -> Iterator[str]:
    """Return the address for a role that may have two connections, in a database of its own."""
    name = database_of(state_url)
    role = f"poor_{name}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 2".encode())
        connection.execute(f"ALTER DATABASE {name} OWNER TO {role}".encode())
        try:
            yield state_url.replace("tests@", f"{role}@")
        finally:
            connection.execute(f"ALTER DATABASE {name} OWNER TO tests".encode())


def test_a_server_that_has_no_more_connections_costs_who_needs_one_and_comes_back(
    tmp_path: Path, poor_url: str
) -> None:
    path = tmp_path / STATE_FILE
    with served(tmp_path, poor_url):
        write(path, "before")
        with psycopg.connect(poor_url), pooled(path, STATE) as kept:
            kept.rows("SELECT 1")
            with pytest.raises(StateError, match="too many connections"):
                names(path)
        # The one that this process has answers, which says that the server is there. No watch
        # listens here that could say so.
        server = store.state_server(path)
        assert isinstance(server, PostgresState)
        assert server.watch is None
        assert names_in_time(path) == ["before"]
        assert [names(path) for _ in range(5)] == [["before"]] * 5


def names_in_time(path: Path) -> list[str]:
    """Return the names once the pause after a fault is over."""
    threading.Event().wait(state_server.PAUSE_SECONDS * 1.5)
    return names(path)


def test_a_database_that_only_reads_is_an_error_and_comes_back(
    path: Path, state_url: str, postgres_server: str
) -> None:
    write(path, "before")
    name = database_of(state_url)
    with psycopg.connect(postgres_server, autocommit=True) as other:
        other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        ended(state_url)
        with pytest.raises(StateError, match="read-only"):
            write(path, "fault")
        other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    assert names_in_time(path) == ["before"]
    write(path, "after")


def test_a_connection_that_became_one_for_reading_only_is_left(path: Path) -> None:
    """A first server that became a copy under a connection: the next use finds the new one."""
    write(path, "before")
    with pooled(path, STATE) as kept:
        kept.rows("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    with pytest.raises(StateError, match="it takes no changes"):
        write(path, "fault")
    write(path, "after")
    assert names(path) == ["after", "before"]
