"""The heads of logs in the state: rows that a rewritten or shortened log does not fit.

Each server writes those of its own log, sealed with that log's key, on a thread of its own: no
record waits for a database. Who writes the log but not the state cannot change them, and who writes
the state has no key to seal others with.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.log_files import LogKeys, seal
from skillhouse.audit.record import DAY_MILLISECONDS, AuditError
from skillhouse.floor import StateError
from skillhouse.floor.lock import LOCK_PAUSE_SECONDS
from skillhouse.store import STATE, STATE_FILE, pooled

HEADS_EVERY = 1_000
HEADS_SECONDS = 30.0
"""Records or seconds after which the state has another head, whichever is first."""
KEPT_MS = 2 * DAY_MILLISECONDS
"""For which each head is kept; of older days the last one is."""
WAIT_SECONDS = 2.0
"""Time that a head waits for another process to let go of the log."""
END_SECONDS = 5.0
"""Time that the end of a process waits for a head that is being written."""
_LOOK = 50
"""Rows, from the newest, among which one with a seal is looked for."""
_COLUMNS = "log_name, seq, server, record_hash, seal, at_ms"


class StateHead(Struct, frozen=True, kw_only=True):
    """One record of a log, as the state knows it."""

    log: str
    """Name of the log's key, which identifies the log."""
    seq: int
    server: str
    hash: str
    """Hash of the record `seq`, which was on the disk."""
    seal: str
    at_ms: int


def sealed_head(keys: LogKeys, *, seq: int, server: str, record_hash: str, at_ms: int) -> StateHead:
    """Return a head with the seal of its log's key."""
    body = f'state {{"log":"{keys.name}","seq":{seq},"server":"{server}","hash":"{record_hash}"'
    made = seal(keys.checkpoints, f'{body},"at_ms":{at_ms}}}'.encode())
    return StateHead(
        log=keys.name, seq=seq, server=server, hash=record_hash, seal=made, at_ms=at_ms
    )


def is_sealed_head(head: StateHead, keys: LogKeys) -> bool:
    """Whether the one who wrote a head has the key of the log."""
    made = sealed_head(
        keys, seq=head.seq, server=head.server, record_hash=head.hash, at_ms=head.at_ms
    )
    return head.log == keys.name and hmac.compare_digest(
        made.seal.encode(), head.seal.encode("utf-8", "replace")
    )


class StateHeads:
    """The rows of one state; each use may raise StateError."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def add(self, head: StateHead) -> None:
        """Add a head, never in the place of another one, and leave one for each day of before."""
        values = (head.log, head.seq, head.server, head.hash, head.seal, head.at_ms)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                f"INSERT INTO audit_head ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) "  # noqa: S608 - ours.
                "ON CONFLICT (log_name, seq) DO NOTHING",
                values,
            )
            connection.execute(
                "DELETE FROM audit_head WHERE log_name = ? AND at_ms < ? AND seq NOT IN "
                "(SELECT max(seq) FROM audit_head WHERE log_name = ? GROUP BY at_ms / ?)",
                (head.log, head.at_ms - KEPT_MS, head.log, DAY_MILLISECONDS),
            )

    def last(self, keys: LogKeys) -> StateHead | None:
        """Return the newest head of a log that its key sealed."""
        query = f"SELECT {_COLUMNS} FROM audit_head WHERE log_name = ? ORDER BY seq DESC LIMIT ?"  # noqa: S608 - ours.
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (keys.name, _LOOK))
        # INVARIANT: one that another replica wrote into the state stops no log.
        return next((one for one in _heads(rows) if is_sealed_head(one, keys)), None)

    def all(self) -> tuple[StateHead, ...]:
        """Return the heads of all logs, in the order of each."""
        query = f"SELECT {_COLUMNS} FROM audit_head ORDER BY log_name, seq"  # noqa: S608 - ours.
        with pooled(self._path, STATE) as store:
            return tuple(_heads(store.rows(query)))


def _heads(rows: Iterable[Sequence[object]]) -> list[StateHead]:
    names = ("log", "seq", "server", "hash", "seal", "at_ms")
    return [StateHead(**dict(zip(names, row, strict=True))) for row in rows]  # type: ignore[arg-type]


HeadsByLog = Mapping[str, Sequence[StateHead]]
"""The heads of each log, by the name of its key."""


def heads_by_log(heads: Iterable[StateHead]) -> HeadsByLog:
    """Return heads by their log, in the order given.

    >>> heads_by_log([])
    {}
    """
    found: dict[str, list[StateHead]] = {}
    for one in heads:
        found.setdefault(one.log, []).append(one)
    return found


class HeadWriter:
    """Knows when the next head is due."""

    def __init__(self, heads: StateHeads) -> None:
        self.heads = heads
        self.error = ""
        """Why the newest head is not in the state; empty when it is."""
        self.restart()

    def restart(self) -> None:
        """Begin once more, in a process that was forked."""
        self._thread: threading.Thread | None = None
        self._records = 0
        self._written_at = float("-inf")

    def known(self) -> HeadsByLog:
        """Return what the state knows of each log, to verify by (StateError)."""
        return heads_by_log(self.heads.all())

    def note(self, head: Callable[[], StateHead | None]) -> None:
        """Count a record, and have a head written when one is due. Called under the log's lock."""
        self._records += 1
        waited = time.monotonic() - self._written_at
        if self._records < HEADS_EVERY and waited < HEADS_SECONDS:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._records, self._written_at = 0, time.monotonic()
        self._thread = threading.Thread(
            target=self._write, args=(self.heads, head), name="audit-heads", daemon=True
        )
        self._thread.start()

    def end(self, head: Callable[[], StateHead | None]) -> None:
        """Write the last head of a process, if records came since the one before."""
        if self._thread is not None:
            self._thread.join(END_SECONDS)
        if self._records:
            self._records = 0
            self._write(self.heads, head)

    def _write(self, heads: StateHeads, head: Callable[[], StateHead | None]) -> None:
        try:
            end = time.monotonic() + WAIT_SECONDS
            while (found := head()) is None:
                # Another process writes the log at this moment.
                if time.monotonic() >= end:
                    self._records, self._written_at = 1, float("-inf")
                    return
                time.sleep(LOCK_PAUSE_SECONDS)
            heads.add(found)
            self.error = ""
        except (AuditError, StateError, OSError) as error:
            # The record itself is whole and on the disk; the next head covers it too.
            self.error = f"the log's head is not in the state: {error}"
