"""Packs and shortens archives beside the work of the log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from skillhouse.audit.archives import archive_directory
from skillhouse.audit.keys import LogKeys
from skillhouse.audit.record import AuditDraft, AuditError
from skillhouse.audit.retention import Retention, tidy

WAIT_SECONDS = 60.0
"""Time that the end of a process gives to it; what is left is done another time."""


class ArchiveCompactor:
    """One thread at a time, which may be stopped at any moment."""

    def __init__(
        self,
        log: Path,
        retention: Retention,
        clock: Callable[[], float],
        record: Callable[[AuditDraft], object],
    ) -> None:
        """Take the log, how long what is kept, a clock in seconds, and what records the work."""
        self.error = ""
        """Why archives are not as they should be; empty when they are."""
        self._log = log
        self._retention = retention
        self._clock = clock
        self._record = record
        self._thread: threading.Thread | None = None

    def start(self, keys: LogKeys) -> None:
        """Begin, where there are archives and nobody is at it."""
        if not archive_directory(self._log).is_dir():
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._tidy, args=(keys,), daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until it is done, but not for ever."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(WAIT_SECONDS)

    def _tidy(self, keys: LogKeys) -> None:
        try:
            done = tidy(self._log, keys, self._retention, now=round(self._clock() * 1_000))
            for each in done:
                self._record(each)
            self.error = ""
        except (OSError, AuditError) as error:
            self.error = f"the archives cannot be packed or shortened: {error}"
