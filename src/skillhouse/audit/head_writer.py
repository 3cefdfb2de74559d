"""Writes heads of a log into the state, on a thread of its own: no record waits for a database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from skillhouse.audit.record import AuditError
from skillhouse.audit.state_heads import (
    HEADS_EVERY,
    HEADS_SECONDS,
    HeadsByLog,
    StateHead,
    StateHeads,
    heads_by_log,
)
from skillhouse.floor import StateError
from skillhouse.floor.lock import LOCK_PAUSE_SECONDS

WAIT_SECONDS = 2.0
"""Time that a head waits for another process to let go of the log."""
END_SECONDS = 5.0
"""Time that the end of a process waits for a head that is being written."""


class HeadWriter:
    """Knows when the next head is due. Without `heads` it does nothing."""

    def __init__(self, heads: StateHeads | None) -> None:
        self.heads = heads
        self.error = ""
        """Why the newest head is not in the state; empty when it is."""
        self.restart()

    def restart(self) -> None:
        """Begin once more, in a process that was forked."""
        self._thread: threading.Thread | None = None
        self._records = 0
        self._written_at = float("-inf")

    def known(self) -> HeadsByLog | None:
        """Return what the state knows of each log, to verify by; None where none are kept.

        StateError: the state cannot be read.
        """
        return None if self.heads is None else heads_by_log(self.heads.all())

    def note(self, head: Callable[[], StateHead | None]) -> None:
        """Count a record, and have a head written when one is due. Called under the log's lock."""
        if self.heads is None:
            return
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
        if self.heads is not None and self._records:
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
