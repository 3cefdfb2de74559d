"""The state database as the tier policy uses it: one connection kept open, one lock a turn."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection

from skillhouse.floor import Clock, StateError
from skillhouse.permission.tier_clock import tick
from skillhouse.permission.tier_ledger import STOP_QUERY, stop_text
from skillhouse.store import STATE, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """An open store, and where it is good for."""

    store: Store
    thread: int
    file: tuple[int, int]


class TierStore:
    """Opens the state when it is first used.

    The store stays open for the thread that opened it, because the last one who closes an SQLite
    file writes all of it to the disk anew: 15 ms a call, and 3 ms without.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._kept: _Kept | None = None

    def stopped(self) -> str:
        """Return why everything is stopped, or ""; makes no file.

        Raises:
            StateError: nobody can tell.
        """
        if self._file() is None:
            return ""
        with self._opened() as store:
            return stop_text(store.rows(STOP_QUERY))

    @contextlib.contextmanager
    def turn(self) -> Iterator[tuple[Connection, int]]:
        """Hold the write lock for a block, with the time.

        Raises:
            StateError: the state cannot be read or written; nothing of the block happened.
        """
        with self._opened() as store, store.transaction() as connection:
            # Under the lock: else a turn that waited would bring the time of before.
            yield connection, tick(connection, self._clock())

    def close(self) -> None:
        """Close the store, if this thread opened it."""
        kept, self._kept = self._kept, None
        if kept is not None and kept.thread == threading.get_ident():
            kept.store.close()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Store]:
        thread = threading.get_ident()
        kept = self._kept
        if kept is not None and kept.thread == thread and kept.file == self._file():
            try:
                yield kept.store
            except StateError:
                self.close()
                raise
            return
        if kept is None or kept.thread == thread:
            # The file is another one now: what others write there would not be seen in the old.
            self.close()
            store = Store(self._path, STATE)
            self._kept = _Kept(store=store, thread=thread, file=self._file() or (0, 0))
            yield store
            return
        with Store(self._path, STATE) as store:
            yield store

    def _file(self) -> tuple[int, int] | None:
        """Return which file stands there, or None.

        Raises:
            StateError: nobody can tell.
        """
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StateError(f"the state cannot be looked at: {error}", self._path) from error
        return found.st_dev, found.st_ino
