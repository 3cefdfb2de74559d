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
    StateSession,
    connected,
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
    ) -> None:
        """Take the places; nothing is connected before the first use.

        Args:
            path: Where the state would be if it was a file; what is there says that it is not.
            address: Gives a connection string or URL, as libpq takes it.
            listen_address: Likewise, past a pooler that `address` leads to.
            has_own_clock: Whether the database's clock counts, as it does where several machines
                share it.
        """
        self._path = path
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
        self.watch: CommitWatch | None = None
        self._looks = 0
        self._row: StateRow | None = None
        self._own_commits = 0
        self._ahead = 0.0

    @contextmanager
    def use(self) -> Iterator[StateSession]:
        process = self._own_process()
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise StateError(
                f"the state on the server cannot be used: all {CONNECTIONS_MAX} connections of "
                f"this process were in use for {WAIT_SECONDS:g} s",
                self._path,
            )
        free = self._free
        try:
            session = self._taken()
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
        commits = watch.commits() if watch is not None else None
        if commits is None:
            if watch is not None and watch.fault and self._is_down:
                raise StateError(f"the state's server is not heard: {watch.fault}", self._path)
            commits = self._asked_commits()
        return (int(row.id[:12], 16), max(commits, self._own_commits))

    def _watched(self) -> CommitWatch:
        with self._lock:
            if self.watch is None:
                self.watch = CommitWatch(self._listen_address, self._see)
            return self.watch

    _is_down = False
    """Whether the last look at the counter failed: until the watch hears the server again, event
    loops are not kept waiting for the next ones."""

    def _asked_commits(self) -> int:
        try:
            with self.use() as session:
                session.connection.answer_seconds, before = (
                    STAMP_SECONDS,
                    session.connection.answer_seconds,
                )
                try:
                    row = self._looked(session)
                finally:
                    session.connection.answer_seconds = before
        except StateError:
            self._is_down = True
            raise
        self._is_down = False
        return row.commits

    def _looked(self, session: StateSession) -> StateRow:
        with session.faults():
            row = look(session.connection)
        if row is None or row.standing != WHOLE or row.id != self._known_row().id:
            raise StateError("the server has no state that is in use", self._path)
        self._see(row, time.time())
        return row

    def ahead_seconds(self) -> float:
        self._own_process()
        self._known_row()
        return self._ahead

    def close(self) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
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

    def _see(self, row: StateRow, at: float) -> None:
        if self._has_own_clock:
            self._ahead = row.now_ms / 1000 - at
        self._is_down = False

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
        self._own_commits = max(self._own_commits, session.commits)
        if self._has_own_clock and session.ahead_seconds is not None:
            self._ahead = session.ahead_seconds
        if not session.is_broken:
            with self._lock:
                if len(self._idle) < IDLE_MAX:
                    self._idle.append(session)
                    return
        session.close()

    def _connected(self) -> StateSession:
        """Connect, and see that the state is the one that was here before."""
        try:
            connection = connected(self._address(), purpose="state")
        except psycopg.Error as error:
            raise state_error(error, self._path) from error
        session = StateSession(connection, self._path, has_own_clock=self._has_own_clock)
        try:
            with session.faults():
                row = opened(connection, self._path)
                if row.standing == ARRIVING and file_mark(self._path) == row.id:
                    # The move ended before its last word, which the file has already.
                    connection.execute(
                        "UPDATE skillhouse_state SET standing = %s WHERE standing = %s",
                        (WHOLE, ARRIVING),
                    )
                    row = row._replace(standing=WHOLE)
            self._check(row)
        except BaseException:
            session.close()
            raise
        self._row = row
        self._see(row, time.time())
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
    """Return the id of the server's state that a file stands for, "" for a state of its own, or
    None where there is no file. StateError where it cannot be read."""
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as found:
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
