"""A state in a PostgreSQL database, which several machines share."""

from __future__ import annotations

import atexit
import os
import select
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from skillhouse.extensions.postgres.state_session import (
    ANSWER_SECONDS,
    StateSession,
    connected,
    fault_of,
    state_error,
)
from skillhouse.extensions.postgres.state_tables import (
    ARRIVING,
    MOVED,
    WHOLE,
    StateRow,
    look,
    opened,
)
from skillhouse.extensions.postgres.state_watch import CommitWatch
from skillhouse.floor import StateError, make_private
from skillhouse.store import MOVED_MARK

CONNECTIONS_MAX = 10
"""Connections of one process that are in use at one time, besides the one that listens."""
IDLE_MAX = 4
WAIT_SECONDS = 10.0
"""How long a use waits for a connection that others have."""
STAMP_SECONDS = 1.0
"""How long the counter may take where the watch does not have it: event loops ask for it."""
DOUBT_SECONDS = 2.0
"""How long any answer may take while the watch does not reach the server."""
PAUSE_SECONDS, TRY_SECONDS = 0.2, 6.0
"""After a loss of the server, how long no use tries again, and how long one of them may take to
before the next one does."""
WATCH_AFTER = 8
"""Looks at the stamp after which a process has a watch; what ends sooner needs none."""


class PostgresState:
    """Connections of one process to one state; see `skillhouse.store.StateServer`."""

    def __init__(
        self,
        path: Path,
        address: Callable[[], str],
        listen_address: Callable[[], str] | None = None,
        *,
        has_own_clock: bool = True,
        is_dry: bool = False,
    ) -> None:
        """Take the places; nothing is connected before the first use.

        Args:
            path: Where the state would be if it was a file; what is there says that it is not.
            address: Gives a connection string or URL, as libpq takes it.
            listen_address: Likewise, past a pooler that `address` leads to.
            has_own_clock: Whether the database's clock counts, as it does where several machines
                share it.
            is_dry: Whether a first use leaves nothing: no tables, and no mark at the path.
        """
        self._path = path
        self._is_dry = is_dry
        self._address = address
        self._listen_address = listen_address or address
        self._has_own_clock = has_own_clock
        self._of_parents: list[StateSession] = []
        self._begin()
        # A test has many, and what is registered at the end of a process is kept until then.
        atexit.register(_close, weakref.ref(self))

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(CONNECTIONS_MAX)
        self._idle: list[StateSession] = []
        self._is_closed = False
        """Whether it keeps no connection: a thread may still use it, whose connection ends then."""
        self.watch: CommitWatch | None = None
        self._looks = 0
        self._row: StateRow | None = None
        self._own_changes = 0
        """Commits of this process, which count at once and not when their notices come."""
        self._time = (0.0, 0.0)
        """The server's time, and this process's when it came."""
        self._away: str | None = None
        """Why the server could not be reached; None since it last was."""
        self._away_at = self._try_at = 0.0

    @contextmanager
    def use(self) -> Iterator[StateSession]:
        process = self._own_process()
        self._refuse_while_away()
        free = self._free
        if not free.acquire(timeout=WAIT_SECONDS):
            raise StateError(
                f"the state on the server cannot be used: all {CONNECTIONS_MAX} connections of "
                f"this process were in use for {WAIT_SECONDS:g} s",
                self._path,
            )
        try:
            session = self._taken()
            watch = self.watch
            is_doubtful = watch is not None and not watch.is_reached
            session.connection.answer_seconds = DOUBT_SECONDS if is_doubtful else ANSWER_SECONDS
            try:
                yield session
            finally:
                if process == os.getpid():
                    self._give_back(session)
        finally:
            free.release()

    def stamp(self) -> tuple[int, ...]:
        self._own_process()
        row = self._known_row()
        self._looks += 1
        watch = self._watched() if self._looks > WATCH_AFTER else None
        heard = watch.commits() if watch is not None else None
        if heard is None:
            # No number of before counts: after a fail-over the counter may be behind it.
            heard = (0, self._asked_commits())
        return (int(row.id[:12], 16), *heard, self._own_changes)

    def _watched(self) -> CommitWatch | None:
        with self._lock:
            if self.watch is None and not self._is_closed:
                self.watch = CommitWatch(self._listen_address, self._see)
            return self.watch

    def _asked_commits(self) -> int:
        with self.use() as session:
            session.connection.answer_seconds = STAMP_SECONDS
            with session.faults():
                row = look(session.connection)
            if row is None or row.standing != WHOLE:
                raise StateError("the server has no state that is in use", self._path)
            try:
                self._see(row)
            except ValueError as error:
                raise StateError(str(error), self._path) from error
        return row.commits

    def _refuse_while_away(self) -> None:
        """Raise the fault of the last use while another one tries again: of a server that does not
        answer each would wait for seconds, and whoever asks for an effect is to hear no at once."""
        with self._lock:
            if self._away is None:
                return
            now = time.monotonic()
            if now >= self._try_at:
                self._try_at = now + TRY_SECONDS
                return
            fault = self._away
        raise StateError(str(fault), self._path)

    def seconds(self, clock: Callable[[], float]) -> float:
        if not self._has_own_clock:
            return clock()
        self._own_process()
        self._known_row()
        # Not by the difference to this machine's clock, which may be set meanwhile.
        seconds, read_at = self._time
        return seconds + time.monotonic() - read_at

    def close(self) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            watch, self.watch = self.watch, None
        if watch is not None:
            watch.close()
        for session in idle:
            session.close()

    def _own_process(self) -> int:
        """Return this process's id; a fork begins with connections of its own."""
        if self._process != os.getpid():
            # Those of the parent are not closed: the server would end what the parent does.
            self._of_parents += self._idle
            self._begin()
        return self._process

    def _known_row(self) -> StateRow:
        if self._row is None:
            with self.use():
                pass
        if self._row is None:
            raise StateError("the state on the server cannot be used", self._path)
        return self._row

    def _see(self, row: StateRow) -> None:
        if self._row is not None and self._row.id != row.id:
            raise ValueError("the server has another state than before")
        self._time = (row.now_ms / 1000, time.monotonic())
        self._away = None

    def _taken(self) -> StateSession:
        while True:
            with self._lock:
                session = self._idle.pop() if self._idle else None
            if session is None:
                return self._connected()
            if not _is_stale(session):
                return session
            session.close()

    def _give_back(self, session: StateSession) -> None:
        with self._lock:
            self._own_changes += session.changes
            session.changes = 0
        if session.time_read is not None:
            self._time = session.time_read
        if not session.is_broken:
            with self._lock:
                if session.answered_at > self._away_at:
                    # What another use needed was one more connection, which the server had not.
                    self._away = None
                if len(self._idle) < IDLE_MAX and not self._is_closed:
                    self._idle.append(session)
                    return
        elif session.fault:
            self._note_away(session.fault)
        session.close()

    def _note_away(self, fault: str) -> None:
        with self._lock:
            self._away, self._away_at = fault, time.monotonic()
            self._try_at = self._away_at + PAUSE_SECONDS

    def _connected(self) -> StateSession:
        """Connect, and see that the state is the one that was here before."""
        # What a dry run makes lasts as long as a connection of the server's, which a pooler shares.
        address = self._listen_address if self._is_dry else self._address
        try:
            connection = connected(address(), purpose="state")
        except psycopg.Error as error:
            self._note_away(fault_of(error))
            raise state_error(error, self._path) from error
        session = StateSession(connection, self._path, has_own_clock=self._has_own_clock)
        try:
            with session.faults():
                row = opened(connection, self._path, is_dry=self._is_dry)
                is_moved = row.standing == ARRIVING and not self._is_dry
                if is_moved and file_mark(self._path) == row.id:
                    # The move ended before its last word, which the file has already.
                    connection.execute(
                        "UPDATE skillhouse_state SET standing = %s WHERE standing = %s",
                        (WHOLE, ARRIVING),
                    )
                    row = row._replace(standing=WHOLE)
            self._check(row)
        except BaseException:
            if session.fault:
                self._note_away(session.fault)
            session.close()
            raise
        self._row = row
        self._see(row)
        return session

    def _check(self, row: StateRow) -> None:
        if row.standing == MOVED:
            raise StateError(
                "the state was moved away from the server: remove `[state] url`, or move it there",
                self._path,
            )
        if row.standing != WHOLE:
            raise StateError(
                "a move of the state to the server did not end: run it once more", self._path
            )
        if self._row is not None:
            if self._row.id != row.id:
                raise StateError(
                    "the server has another state than before: restart with the right one",
                    self._path,
                )
            return
        known = file_mark(self._path)
        if known is None:
            if not self._is_dry:
                mark_file(self._path, row.id)
        elif not known:
            raise StateError(
                "there is a state in a file as well: run `skillhouse state move --to URL` to take "
                "it to the server, or move the file aside",
                self._path,
            )
        elif known != row.id:
            raise StateError(
                "the server has another state than the one that this machine used: correct "
                "`[state] url`, or remove the file to accept it",
                self._path,
            )


def _close(state: weakref.ref[PostgresState]) -> None:
    found = state()
    if found is not None:
        found.close()


def _is_stale(session: StateSession) -> bool:
    """Whether a connection ended while it was idle: an idle one has nothing to say."""
    if session.is_broken:
        return True
    poll = select.poll()
    poll.register(session.connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def file_mark(path: Path) -> str | None:
    """Return the id of the server's state that a file points to, "" for a state of its own, or
    None where there is no file. StateError where it cannot be read."""
    if not path.exists():
        return None
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as found:
            # In one look: another process may be making the mark.
            found.execute("BEGIN")
            mark = int(found.execute("PRAGMA application_id").fetchone()[0])
            if mark == MOVED_MARK:
                return str(found.execute("SELECT id FROM moved").fetchone()[0])
            # Made and never written: a process was ended just then.
            is_empty = not found.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            return None if is_empty and not mark else ""
    except sqlite3.Error as error:
        raise StateError(f"the state's file cannot be read: {error}", path) from error


def mark_file(path: Path, state_id: str) -> None:
    """Leave a file that refuses every use as a state, for programs that know of no server."""
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            # In one step: half of a mark would look like a state.
            connection.execute("BEGIN IMMEDIATE")
            write_mark(connection, state_id)
            connection.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        raise StateError(f"the state's file cannot be marked: {error}", path) from error


def write_mark(connection: sqlite3.Connection, state_id: str) -> None:
    """Make a database without tables say where its state went, in the caller's transaction."""
    connection.execute("CREATE TABLE IF NOT EXISTS moved (id TEXT NOT NULL PRIMARY KEY)")
    connection.execute("INSERT INTO moved VALUES (?) ON CONFLICT DO NOTHING", (state_id,))
    connection.execute(f"PRAGMA application_id = {MOVED_MARK}")
    connection.execute("PRAGMA user_version = 1")
