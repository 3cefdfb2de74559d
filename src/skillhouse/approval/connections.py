"""Which connections of clients are alive: one locked file each, for all processes of a machine.

A connection is a process at the other side of stdio, a session over HTTP, a chat, a program that
uses the library. The kernel releases the lock when a process dies, also by SIGKILL. Where the state
is on a server, which several machines may share, they are in rows too (`LiveServers`): those are
looked at where this machine has no file of a connection. Where a protocol has neither, each
request may reach another process: there the caller is the connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from skillhouse.approval.live_servers import LiveServers
from skillhouse.floor import SkillhouseError, make_private
from skillhouse.floor.lock import Lazy, try_lock

logger = logging.getLogger(__name__)

DIRECTORY = "connections"
STALE_SECONDS = 86_400
"""Age from which the file of a dead process is looked for and removed."""


def new_connection(now_ms: int | None = None, identity: str = "") -> str:
    """Return the id of a connection that begins `now_ms` after 1970, or now.

    `identity` is what its client has proved to be, if anything: only a connection of the same is
    the next one after it.
    """
    began_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    whose = f"-{hashlib.sha256(identity.encode()).hexdigest()[:16]}" if identity else ""
    return f"{began_ms:013d}-{secrets.token_hex(8)}{whose}"


def _whose(connection: str) -> str:
    return connection.partition("-")[2].partition("-")[2]


def began_ms(connection: str) -> int:
    """Return when a connection began; 0 for an id that does not say it.

    >>> began_ms("1800000000000-00f1"), began_ms("mine")
    (1800000000000, 0)
    """
    began = connection.partition("-")[0]
    return int(began) if began.isascii() and began.isdigit() else 0


_CALLER = "caller-"


def caller_connection(*who: str) -> str:
    """Return the connection of a caller without one; the same in each process, and without an end.

    `who` identifies the caller: what it proved, as its token, before what it says of itself.
    """
    return _CALLER + hashlib.sha256(json.dumps(who).encode()).hexdigest()[:32]


def is_caller_connection(connection: str) -> bool:
    """Whether the caller has no connection, so that any server may get its next call.

    >>> is_caller_connection(caller_connection("a token")), is_caller_connection("1-2")
    (True, False)
    """
    return connection.startswith(_CALLER)


class Asking(Protocol):
    """What a connection asked for: a question, or a task."""

    @property
    def client(self) -> str: ...
    @property
    def connection(self) -> str: ...
    @property
    def opened_ms(self) -> int: ...


class Connections:
    """The connections of this process, and whether those of other processes are alive."""

    def __init__(self, state_directory: Path, servers: LiveServers | None = None) -> None:
        """`servers` has the rows of the servers of the state; None makes it."""
        self._directory = state_directory / DIRECTORY
        self._servers = Lazy(lambda: servers or LiveServers(state_directory))
        self._held: dict[str, int] = {}
        # INVARIANT: held to change what is held; calls come on threads of their own.
        self._lock = threading.Lock()
        self._on_end: list[Callable[[str], None]] = []
        self._finalizer = weakref.finalize(self, _end_all, self._held, self._directory)

    @property
    def servers(self) -> LiveServers:
        """The servers that share this state; they end with these connections."""
        return self._servers.get()

    def hold(self, connection: str) -> None:
        """Keep a connection alive until it ends here; OSError if its file cannot be made, and
        StateError if its row cannot."""
        if not connection or connection.startswith(_CALLER):
            return
        with self._lock:
            if connection not in self._held:
                self._held[connection] = self._locked(connection)
            if self.servers.is_remote and not self.servers.own_id:
                # No server, as a process over stdio: on other machines its row says that it lives,
                # so that none of their connections takes over what it asked.
                self.servers.begin_process()
        self.servers.hold(connection)

    def _locked(self, connection: str) -> int:
        make_private(self._directory)
        self._sweep()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self._directory / _name(connection), flags, 0o600)
        if not try_lock(handle):
            os.close(handle)
            raise OSError(None, "the connection belongs to another process")
        return handle

    def on_end(self, ended: Callable[[str], None]) -> None:
        """Have `ended` called with each connection that ends here."""
        self._on_end.append(ended)

    def end(self, connection: str) -> None:
        with self._lock:
            handle = self._held.pop(connection, None)
        if handle is not None:
            self.servers.release(connection)
            _end(handle, self._directory, connection)
        for ended in self._on_end:
            try:
                ended(connection)
            except (OSError, SkillhouseError):
                # What one keeps of a connection does not keep the others from ending theirs.
                logger.exception("the end of a connection")

    def close(self) -> None:
        with self._lock:
            _end_all(self._held, self._directory)
        if self._servers.made:
            self.servers.close()

    def is_live(self, connection: str) -> bool:
        """Whether a connection has not ended, or may not have; OSError without locks of files,
        StateError where the rows of servers cannot be read."""
        if connection.startswith(_CALLER):
            return True
        if not connection:
            return False
        file = self._directory / _name(connection)
        if _is_locked(file):
            return True
        # A file without a lock is of a process of this machine, and that has ended: its server's
        # row may not show it yet.
        is_of_here = os.path.lexists(file)
        return not is_of_here and self.servers.is_held(connection)

    def own(self, asked: Asking, client: str, connection: str) -> bool:
        """Whether a connection is the one that asked, or the next one of that client: begun after
        the question, and of the same name. A client gives its name itself, so one that was there
        before is another client, whatever it is called."""
        if asked.client != client:
            return False
        if asked.connection == connection:
            return True
        return (
            _whose(connection) == _whose(asked.connection)
            and began_ms(connection) >= asked.opened_ms
            and not self.is_live(asked.connection)
        )

    def _sweep(self) -> None:
        oldest = time.time() - STALE_SECONDS
        for file in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_mtime < oldest and not _is_locked(file):
                    file.unlink()


def _name(connection: str) -> str:
    # Whatever text an id is, its digest is a file's name.
    return hashlib.sha256(connection.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _is_locked(file: Path) -> bool:
    try:
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        # Shared, so that two who look do not take each other for the holder.
        return not try_lock(handle, shared=True)
    finally:
        os.close(handle)


def _end(handle: int, directory: Path, connection: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(directory / _name(connection))
    os.close(handle)


def _end_all(held: dict[str, int], directory: Path) -> None:
    while held:
        connection, handle = held.popitem()
        _end(handle, directory, connection)
