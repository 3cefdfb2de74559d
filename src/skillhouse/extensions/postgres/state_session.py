"""One connection to the database of a state, which runs the statements that SQLite runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus

from skillhouse.floor import StateError
from skillhouse.store import StateConflictError

CONNECT_SECONDS = 5
ANSWER_SECONDS = 15.0
"""How long any answer may take: beyond what the server itself allows a statement."""
LOOK_SECONDS = 3.0
"""How long the answer to a look may take."""
LOCK_MS, STATEMENT_MS, IDLE_MS = 10_000, 11_000, 5_000
"""How long a writer waits for others, a statement takes, and a process that was stopped in the
middle of a transaction holds up all others. To wait for a lock is a statement as well: with the
same limit for both, that of the statement comes first, and does not say what was waited for."""
LOCK = 0x736B6853
"""Of `pg_advisory_xact_lock`, for who writes; a database has one state."""

_BEAT = re.compile(r"\s*(INSERT INTO|UPDATE|DELETE FROM) server(_connection)?\b")
"""Of the tables that change every few seconds: no reader of the state has to read it again."""
# In one round trip, as the end is; as settings of the transaction, since nothing else lasts there.
BEGIN = f"""
    BEGIN; SELECT set_config('lock_timeout', '{LOCK_MS}', true),
        set_config('statement_timeout', '{STATEMENT_MS}', true),
        set_config('idle_in_transaction_session_timeout', '{IDLE_MS}', true);
    SELECT pg_advisory_xact_lock({LOCK}),
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint
"""  # noqa: S608 - numbers of ours alone.
# The column takes no NULL, so a state that was moved away keeps nothing.
COMMIT = """
    WITH counted AS (
        UPDATE skillhouse_state SET commits = CASE WHEN standing = 'whole' THEN commits + 1 END
        RETURNING id, commits
    )
    SELECT commits, pg_notify('skillhouse_state', id || ' ' || commits) FROM counted;
    COMMIT
"""
_SQL = re.compile(r"'[^']*'|\"[^\"]*\"|(\?)|(?<![:\w]):([a-z_]+)|(%)")
_READ_ONLY = ("25006",)
"""A server that was the first one and is a copy now (read_only_sql_transaction)."""


@lru_cache(maxsize=1024)
def for_psycopg(statement: str) -> bytes:
    """Return a statement of the state with psycopg's placeholders.

    >>> for_psycopg("SELECT a FROM g WHERE b = ? AND c LIKE '?%' AND d = :e")
    b"SELECT a FROM g WHERE b = %s AND c LIKE '?%%' AND d = %(e)s"
    """

    def placed(found: re.Match[str]) -> str:
        if found[1]:
            return "%s"
        if found[2]:
            return f"%({found[2]})s"
        return found[0].replace("%", "%%")

    return _SQL.sub(placed, statement).encode()


def _value(value: Any) -> Any:
    """Return a value as the columns have it: they hold whole numbers, text and bytes."""
    if isinstance(value, bool):
        return int(value)
    # A member of an enumeration is a text to SQLite.
    return str.__str__(value) if isinstance(value, str) and type(value) is not str else value


def _values(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {name: _value(value) for name, value in values.items()}
    return [_value(value) for value in values]


class _WholeNumber(Loader):
    """Reads a sum of whole numbers, which is a decimal number to PostgreSQL, as one."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


class _Truth(Loader):
    """Reads a truth value as SQLite gives it."""

    def load(self, data: Any) -> int:
        return int(bytes(data) == b"t")


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which nothing waits without a bound, as for a server that was stopped."""

    answer_seconds = ANSWER_SECONDS

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)


def connected(address: str, *, purpose: str) -> BoundedConnection:
    """Return a connection to the database that takes changes (psycopg.Error)."""
    connection = BoundedConnection.connect(
        address,
        autocommit=True,
        # Behind PgBouncer the next transaction may be on another connection of the server's.
        prepare_threshold=None,
        # Whatever the database, the role or PGCLIENTENCODING says. A cluster made without a locale
        # has SQL_ASCII, of which psycopg gives texts as bytes, and these equal no text.
        client_encoding="utf8",
        **_defaults(address, purpose),
    )
    connection.adapters.register_loader("numeric", _WholeNumber)
    connection.adapters.register_loader("bool", _Truth)
    return connection


def _defaults(address: str, purpose: str) -> dict[str, Any]:
    """Return what an address that does not say so itself is connected with."""
    wanted = {
        "connect_timeout": CONNECT_SECONDS,
        "target_session_attrs": "read-write",
        # A peer that is gone without a word is noticed while nothing is asked, too.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": f"skillhouse {purpose}",
    }
    return {name: value for name, value in wanted.items() if f"{name}=" not in address}


class SessionCursor:
    """What a statement gave, read as a whole; as a cursor of SQLite's, none after a change."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows


class StateSession:
    """A connection while one thread has it; see `StateStore`."""

    def __init__(
        self, connection: BoundedConnection, path: Path, *, has_own_clock: bool = True
    ) -> None:
        self._has_own_clock = has_own_clock
        self.connection = connection
        self._cursor = connection.cursor()
        self._path = path
        self.time_read: tuple[float, float] | None = None
        """The server's time in seconds when the last transaction began, and this process's."""
        self._has_changes = False
        self.changes = 0
        """Commits that changed something, since whoever has the session counted them."""
        self.fault = ""
        """That an answer did not come; a connection that ended says nothing of others."""
        self.answered_at = 0.0
        """When the server last gave what was asked for, by this process's clock."""

    @property
    def is_broken(self) -> bool:
        """Whether nothing more can be asked."""
        return (
            self.connection.closed
            or self.connection.pgconn.transaction_status != TransactionStatus.IDLE
        )

    def rows(self, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        # A look waits for no writer.
        before = self.connection.answer_seconds
        self.connection.answer_seconds = min(before, LOOK_SECONDS)
        try:
            return self.execute(query, values).fetchall()
        finally:
            self.connection.answer_seconds = before

    def execute(self, statement: str, values: Any = (), /) -> SessionCursor:
        cursor = self._cursor
        with self.faults():
            cursor.execute(for_psycopg(statement), _values(values))
            rows = cursor.fetchall() if cursor.description else []
        self.answered_at = time.monotonic()
        is_change = cursor.rowcount > 0 and not (cursor.statusmessage or "").startswith("SELECT")
        if is_change and not _BEAT.match(statement):
            self._has_changes = True
        return SessionCursor(rows, cursor.rowcount)

    def executemany(self, statement: str, values: Iterable[Any], /) -> SessionCursor:
        """Run a statement for each of some values; the cursor has the rows of all that changed."""
        cursor = self._cursor
        with self.faults():
            cursor.executemany(for_psycopg(statement), [_values(one) for one in values])
        self._has_changes = self._has_changes or cursor.rowcount > 0
        return SessionCursor([], cursor.rowcount)

    def server_ms(self) -> int | None:
        if not self._has_own_clock or self.time_read is None:
            return None
        seconds, read_at = self.time_read
        return int((seconds + time.monotonic() - read_at) * 1000)

    @contextmanager
    def transaction(self) -> Iterator[StateSession]:
        try:
            self.begin()
            yield self
            self._commit()
        except BaseException:
            # What cannot be taken back by a word ends with its connection.
            with suppress(psycopg.Error):
                if not self.connection.closed:
                    self.connection.execute("ROLLBACK")
            if self.is_broken:
                self.close()
            raise

    def begin(self) -> None:
        """Take the write lock of all processes."""
        self._has_changes = False
        with self.faults():
            row = self._cursor.execute(BEGIN).set_result(-1).fetchone()
        if row:
            self.time_read = (row[1] / 1000, time.monotonic())

    def _commit(self) -> None:
        with self.faults():
            if not self._has_changes:
                self._cursor.execute("COMMIT")
                return
            self.changes += 1  # Also where its answer is lost.
            self._cursor.execute(COMMIT)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Give every fault as StateError; a connection that may be out of step is closed."""
        try:
            yield
        except UnicodeEncodeError as error:
            text = str(error.object)[:80]
            raise StateError(f"the state keeps UTF-8 only, got {text!r}", self._path) from error
        except psycopg.Error as error:
            if isinstance(error, errors._WaitTimeout):  # noqa: SLF001 - psycopg has no other name.
                self.fault = fault_of(error)
                self.connection.close()
            elif error.sqlstate in _READ_ONLY:
                self.connection.close()
            raise state_error(error, self._path) from error


_PLAIN = {
    "25006": "it takes no changes, as a copy of another server",
    "25P03": "this process stopped in the middle of a change",
    "53100": "its disk is full",
    "53300": "it has no connection left",
    "55P03": f"others were changing it for {LOCK_MS // 1000} s",
    "57P01": "it was ended or is being restarted",
    "57P02": "it was ended or is being restarted",
    "57P03": "it was ended or is being restarted",
}
"""What a code of the server means, where its own words are for who runs databases."""


def fault_of(error: psycopg.Error) -> str:
    """Return the first line of a fault; the others may repeat what was asked."""
    if isinstance(error, errors._WaitTimeout):  # noqa: SLF001 - psycopg has no other name.
        return "the server of the state does not answer"
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    plain = _PLAIN.get(error.sqlstate or "")
    return f"the state on the server cannot be used: {f'{plain} ({said})' if plain else said}"


def state_error(error: psycopg.Error, path: Path) -> StateError:
    """Return an error of the database as one of the state, without what was asked."""
    if error.diag.table_name == "skillhouse_state":
        return StateError("the state is not on this server any more: it was moved", path)
    if isinstance(error, psycopg.IntegrityError):
        constraint = error.diag.constraint_name or error.diag.column_name or "a rule"
        return StateConflictError(f"the state has such a row: {constraint}", path)
    return StateError(fault_of(error), path)
