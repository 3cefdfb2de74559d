"""Which servers of a state are alive, as rows with a beat: what holds on several machines.

A server has a row, which it writes every `BEAT_SECONDS`; one that has not for `LOST_SECONDS` is
lost, and so are the connections that it holds. No lock of a file, and no process id, is looked at.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from skillhouse.floor import SkillhouseError, StateError
from skillhouse.floor.structs import replace
from skillhouse.store import (
    SERVERS,
    SERVERS_FILE,
    STATE,
    STATE_FILE,
    StateConnection,
    StateStore,
    pooled,
    state_clock,
    state_server,
)

BEAT_SECONDS = 2.0
LOST_SECONDS = 10.0
"""Age of the last beat from which a server is lost: four beats may be late."""
KEPT_SECONDS = 3_600.0
"""How long the row of a lost server is shown."""
NAME_MAX = 200
NO_ADDRESS = ""
"""Of a process that serves nothing."""

ServerState = Literal["ready", "draining", "lost"]

logger = logging.getLogger(__name__)


class ServerRow(Struct, frozen=True, kw_only=True):
    """One server of a state."""

    id: str
    """Another one after each start."""
    name: str
    """Of its machine, or what its operator calls it."""
    address: str
    """Empty for a process that serves nothing, as one over stdio: it is here since it asked."""
    version: str
    began_ms: int
    beat_ms: int
    """When it was heard of last, by the clock of the state."""
    state: ServerState
    """`draining` ends: it takes no more work; `lost` has not been heard of for a while."""
    log_name: str = ""
    """Name of the key of its log; empty before its first record."""
    skew_ms: int = 0
    """By how much its clock is before that of the state."""


class LiveServers:
    """The servers of one state, as one process sees them; it is one of them after `begin`."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970, where the state has none of its own; nothing is opened
        before the first use."""
        self._path = state_directory / SERVERS_FILE
        self._state = state_directory / STATE_FILE
        self._clock = state_clock(self._state, clock)
        self._own_clock = clock
        self.log_name = ""
        """Name of the key of this server's log, written with the next beat."""
        self._own: ServerRow | None = None
        self._token_digest = ""
        self._held: set[str] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._beaten = 0.0

    @property
    def own_id(self) -> str:
        """The id of this server; empty where this process is none."""
        return "" if self._own is None else self._own.id

    @property
    def own_version(self) -> str:
        return "" if self._own is None else self._own.version

    @property
    def is_beating(self) -> bool:
        """Whether this server's row is written; true of no server, and of one without beats."""
        return self._ended.is_set() or self._thread is None or self._thread.is_alive()

    def begin(
        self, *, name: str, version: str, address: str = "", token: str = "", beats: bool = True
    ) -> ServerRow:
        """Be one of the servers from now on; `token` is that of this start, of which a digest is
        kept. Where the rows cannot be written, each beat tries again."""
        now = self._now_ms()
        self._own = ServerRow(
            id=secrets.token_hex(8),
            name=name[:NAME_MAX],
            address=address[:NAME_MAX],
            version=version,
            began_ms=now,
            beat_ms=now,
            state="ready",
        )
        self._token_digest = _digest(token) if token else ""
        self._try(lambda: self._sweep(now))
        self._try(self.beat)
        if beats:
            # One that was closed, or was a mere process before, begins again.
            self._ended.set()
            self._ended = threading.Event()
            self._thread = threading.Thread(
                target=_beat_on, args=(weakref.ref(self), self._ended), name="beats", daemon=True
            )
            self._thread.start()
        return self._own

    def begin_process(self) -> None:
        """Be a process that serves nothing, and whose connections are alive while it is."""
        self.begin(name=socket.gethostname(), version="", address=NO_ADDRESS)

    def beat(self) -> None:
        """Write this server's row, and which connections it holds; StateError if that fails."""
        with self._lock:
            own = self._own
            if own is None:
                return
            now = self._now_ms()
            skew = int(self._own_clock() * 1000) - now
            self._own = own = replace(own, beat_ms=now, log_name=self.log_name, skew_ms=skew)
            with self._used() as store, store.transaction() as connection:
                changed = connection.execute(
                    "UPDATE server SET beat_ms = ?, state = ?, log_name = ?, skew_ms = ? "
                    "WHERE id = ?",
                    (own.beat_ms, own.state, own.log_name, own.skew_ms, own.id),
                ).rowcount
                if not changed:
                    connection.execute(
                        "INSERT INTO server (id, name, address, version, began_ms, beat_ms, "
                        "state, token_digest, log_name, skew_ms) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (
                            *(own.id, own.name, own.address, own.version),
                            *(own.began_ms, own.beat_ms, own.state, self._token_digest),
                            *(own.log_name, own.skew_ms),
                        ),
                    )
                    for held in self._held:
                        _note_holder(connection, held, own.id)
            self._beaten = time.monotonic()

    def is_reached(self) -> bool:
        """Whether a row can be written now, or could a moment ago; true of no server."""
        if self._own is None or time.monotonic() - self._beaten < BEAT_SECONDS:
            return True
        try:
            self.beat()
        except StateError as error:
            logger.warning("the list of servers cannot be written: %s", error)
            return False
        return True

    def drain(self) -> None:
        """Say that this server ends, and takes no more work."""
        if self._own is not None:
            self._own = replace(self._own, state="draining")
            self._try(self.beat)

    def all(self) -> tuple[ServerRow, ...]:
        """Return the servers, the one that has been there longest first."""
        oldest = self._now_ms() - int(LOST_SECONDS * 1000)
        rows = self._rows(
            "SELECT id, name, address, version, began_ms, beat_ms, state, log_name, skew_ms "
            "FROM server ORDER BY began_ms, id"
        )
        found = (ServerRow(**dict(zip(ServerRow.__struct_fields__, r, strict=True))) for r in rows)
        return tuple(replace(r, state="lost") if r.beat_ms <= oldest else r for r in found)

    def is_token(self, token: str) -> bool:
        """Whether a token is that of the start of a server that is alive."""
        digest = _digest(token)
        rows = self._rows(
            "SELECT token_digest FROM server WHERE token_digest <> '' AND beat_ms > ?",
            self._now_ms() - int(LOST_SECONDS * 1000),
        )
        # Each is compared, so that the time says nothing of which one is near.
        return sum(hmac.compare_digest(str(known), digest) for (known,) in rows) > 0

    def hold(self, connection: str) -> None:
        """Note that this server holds a connection, if it is one; StateError if that fails."""
        digest = _digest(connection)
        with self._lock:
            if self._own is None or digest in self._held:
                return
            with self._used() as store, store.transaction() as writing:
                _note_holder(writing, digest, self._own.id)
            self._held.add(digest)

    def release(self, connection: str) -> None:
        """Note that a connection has ended."""
        digest = _digest(connection)
        with self._lock:
            if digest in self._held:
                self._held.discard(digest)
                self._try(lambda: self._end_held(digest))

    def is_held(self, connection: str) -> bool:
        """Whether a server that is alive holds a connection; StateError if unknown."""
        return bool(
            self._rows(
                "SELECT 1 FROM server_connection JOIN server ON server.id = "
                "server_connection.server WHERE server_connection.digest = ? AND beat_ms > ?",
                _digest(connection),
                self._now_ms() - int(LOST_SECONDS * 1000),
            )
        )

    def close(self) -> None:
        """Be no server any more: its connections end with it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            own, self._own = self._own, None
            self._held.clear()
        if own is not None:
            self._try(lambda: self._forget(own.id))

    def try_beat(self) -> None:
        self._try(self.beat)

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (SkillhouseError, OSError) as error:
            logger.warning("the list of servers cannot be written: %s", error)

    def _sweep(self, now_ms: int) -> None:
        for (old,) in self._rows(
            "SELECT id FROM server WHERE beat_ms < ?", now_ms - int(KEPT_SECONDS * 1000)
        ):
            self._forget(str(old))

    def _forget(self, server: str) -> None:
        with self._used() as store, store.transaction() as connection:
            connection.execute("DELETE FROM server_connection WHERE server = ?", (server,))
            connection.execute("DELETE FROM server WHERE id = ?", (server,))

    def _end_held(self, digest: str) -> None:
        with self._used() as store, store.transaction() as connection:
            connection.execute("DELETE FROM server_connection WHERE digest = ?", (digest,))

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if not self.is_remote and not self._path.exists():
            return []
        with self._used() as store:
            return store.rows(query, values)

    @property
    def is_remote(self) -> bool:
        """Whether the state is on a server, so that other machines may share it."""
        return state_server(self._state) is not None

    def _used(self) -> AbstractContextManager[StateStore]:
        """Use the tables, which are beside the others where the state is on a server."""
        if self.is_remote:
            return pooled(self._state, STATE)
        return pooled(self._path, SERVERS)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _beat_on(servers: weakref.ref[LiveServers], ended: threading.Event) -> None:
    """Beat until that ends, or nothing refers to the servers any more: then they are lost."""
    while not ended.wait(BEAT_SECONDS):
        found = servers()
        if found is None:
            return
        try:
            found.try_beat()
        except Exception:
            # The edge of a thread: without beats the others take this server for lost.
            logger.exception("the list of servers cannot be written")
        # Not kept while it waits.
        del found


def _note_holder(connection: StateConnection, digest: str, server: str) -> None:
    connection.execute(
        "INSERT INTO server_connection (digest, server) VALUES (?, ?) "
        "ON CONFLICT (digest) DO UPDATE SET server = excluded.server",
        (digest, server),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
