"""Calls with an Idempotency-Key: each is made once, and a repetition gets the same answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from skillhouse.approval import Connections, new_connection
from skillhouse.floor import SkillhouseError, StateError
from skillhouse.store import STATE, STATE_FILE, pooled, state_clock

KEEP_MS = 24 * 3_600_000
"""How long an answer is kept for a repetition."""
ANSWER_MAX = 1_048_576
"""Bytes of an answer that is kept; of a longer one it is known only that the call was made."""
TOO_LONG = "-"
"""In place of an answer that is not kept, or that there is none of."""

logger = logging.getLogger(__name__)


class CallKeyError(SkillhouseError):
    """A key cannot be used for this call; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CallKeys:
    """The keys of one state directory."""

    def __init__(
        self,
        state_directory: Path,
        connections: Connections | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`connections` says which servers are alive, so that a call that runs at another one is
        known to run; None for this process alone."""
        self._path = state_directory / STATE_FILE
        self._connections = connections or Connections(state_directory)
        self._clock = state_clock(self._path, clock)
        self._process = new_connection()
        self._running: set[tuple[str, str]] = set()

    def begin(self, access: str, key: str, request: str) -> str | None:
        """Return the answer of the same call from before; None, where it is to be made now.

        `request` is a digest of everything that decides what the call does.

        Raises:
            CallKeyError: key-reused (for another call), in-progress, or outcome-unknown, where a
                process ended, or failed, before the answer was kept.
        """
        now = int(self._clock() * 1000)
        self._connections.hold(self._process)
        # INVARIANT: the key is on the disk before the call begins, so that a crash can leave a
        # call whose outcome is unknown, but none that is made twice.
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM call_key WHERE opened_ms <= ?", (now - KEEP_MS,))
            row = connection.execute(
                "SELECT request, process, answer FROM call_key WHERE access = ? AND key = ?",
                (access, key),
            ).fetchone()
            if row is None:
                connection.execute(
                    "INSERT INTO call_key (access, key, request, process, opened_ms) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (access, key, request, self._process, now),
                )
                self._running.add((access, key))
                return None
        known, process, answer = row
        if known != request:
            raise CallKeyError("key-reused", "the key belongs to another call; use a new one")
        is_own = process == self._process
        if (access, key) in self._running if is_own else self._runs_elsewhere(process, answer):
            raise CallKeyError("in-progress", "this call runs still; ask again later")
        if answer in ("", TOO_LONG):
            message = "the call was made, and its answer is not known; the audit log has its record"
            raise CallKeyError("outcome-unknown", message)
        return str(answer)

    def end(self, access: str, key: str, answer: str) -> None:
        """Keep the answer of a call that was made."""
        kept = answer if len(answer) <= ANSWER_MAX else TOO_LONG
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE call_key SET answer = ? WHERE access = ? AND key = ?", (kept, access, key)
            )
        self._running.discard((access, key))

    def forget(self, access: str, key: str) -> None:
        """Free a key whose call was not made: refused, or waiting for a person."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM call_key WHERE access = ? AND key = ?", (access, key))
        self._running.discard((access, key))

    def failed(self, access: str, key: str) -> None:
        """Note that a call ended without an answer; what it did is not known."""
        self._running.discard((access, key))
        try:
            self.end(access, key, TOO_LONG)
        except StateError as error:
            logger.warning("that a call failed was not noted: %s", error)

    def _runs_elsewhere(self, process: str, answer: str) -> bool:
        return not answer and self._connections.is_live(process)
