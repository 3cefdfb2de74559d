"""Keeps the number of a state's commits in memory, by a connection that listens."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

import psycopg

from skillhouse.extensions.postgres.state_session import BoundedConnection, connected
from skillhouse.extensions.postgres.state_tables import WHOLE, StateRow, look

BEAT_SECONDS = 0.4
"""Between two looks at the counter itself: a connection may be dead without a word."""
ALIVE_SECONDS = 1.0
"""For which what was seen last counts; later the counter is asked for."""
RETRY_SECONDS = 0.3
CHANNEL = "skillhouse_state"

logger = logging.getLogger(__name__)


NOT_HEARD = "LISTEN brings nothing: set `[state] listen_url` to the server itself, not to a pooler"


def hears(address: str) -> str:
    """Return `yes`, or why no notices arrive at this address."""
    try:
        with closing(connected(address, purpose="state notices")) as connection:
            return "yes" if _delivers(connection, address) else NOT_HEARD
    except psycopg.Error as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _delivers(connection: BoundedConnection, address: str) -> bool:
    """Listen, and return whether that brings what another connection says.

    A pooler answers LISTEN as well. What a connection says itself it hears even there.
    """
    connection.execute(f"LISTEN {CHANNEL}")
    proof = f"test {secrets.token_hex(8)}"
    with closing(connected(address, purpose="state notices")) as other:
        other.execute("SELECT pg_notify(%s, %s)", (CHANNEL, proof))
    end = time.monotonic() + ALIVE_SECONDS
    while (left := end - time.monotonic()) > 0:
        if any(one.payload == proof for one in connection.notifies(timeout=left, stop_after=1)):
            return True
    return False


class CommitWatch:
    """A thread with a connection of its own; after each loss it connects and reads once more."""

    def __init__(self, address: Callable[[], str], seen: Callable[[StateRow], None]) -> None:
        """Begin to listen.

        Args:
            address: Gives the address of the server itself: a pooler passes no notices on.
            seen: Hears each row that was read, at once.
        """
        self._address = address
        self._seen = seen
        self._turn = 0
        """How often it connected: what was counted before says nothing of the server after it."""
        self._commits = 0
        self._alive_until = 0.0
        self.is_reached = True
        """Whether the server answered when it was last asked, be it heard or not."""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._connection: BoundedConnection | None = None
        self.fault = ""
        """Why nothing is heard now; empty where all is well, or not known yet."""
        self._thread = threading.Thread(target=self._run, name="skillhouse-state", daemon=True)
        self._thread.start()

    def commits(self) -> tuple[int, int] | None:
        """Return the connection and its number of commits; None while this may miss one."""
        with self._lock:
            is_alive = time.monotonic() < self._alive_until
            return (self._turn, self._commits) if is_alive else None

    def close(self) -> None:
        self._ended.set()
        connection = self._connection
        if connection is not None:
            # Its thread waits in it: a socket that is shut wakes it, one that is closed does not.
            with (
                suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(connection.pgconn.socket)) as own,
            ):
                own.shutdown(socket.SHUT_RDWR)
        if self._thread is not threading.current_thread():
            self._thread.join(2)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen()
            except (psycopg.Error, OSError, ValueError) as error:
                self._alive_until = 0.0
                self.is_reached = not isinstance(error, psycopg.OperationalError | OSError)
                said = str(error).strip().splitlines()[:1]
                fault = said[0] if said else type(error).__name__
                if fault != self.fault and not self._ended.is_set():
                    logger.warning("the state's server is not heard: %s", fault)
                self.fault = fault
            except Exception:
                # The process goes on without: each look asks the server, or is refused.
                self._alive_until, self.fault = 0.0, "a fault of the program"
                logger.exception("the state's server is not listened to")
            self._ended.wait(RETRY_SECONDS)

    def _listen(self) -> None:
        address = self._address()
        connection = connected(address, purpose="state notices")
        connection.answer_seconds = ALIVE_SECONDS
        self._connection = connection
        try:
            if not _delivers(connection, address):
                raise ValueError(NOT_HEARD)
            with self._lock:
                self._turn += 1
                self._commits = 0
            while not self._ended.is_set():
                asked = time.monotonic()
                row = look(connection)
                if row is None or row.standing != WHOLE:
                    raise ValueError("the server has no state that is in use")
                self._seen(row)
                with self._lock:
                    self._commits = max(self._commits, row.commits)
                    self._alive_until = asked + ALIVE_SECONDS
                self.fault, self.is_reached = "", True
                for notice in connection.notifies(timeout=BEAT_SECONDS):
                    state_id, _, commits = notice.payload.partition(" ")
                    if state_id == row.id and commits.isdecimal():
                        with self._lock:
                            self._commits = max(self._commits, int(commits))
        finally:
            self._connection = None
            connection.close()
