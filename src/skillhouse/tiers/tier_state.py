"""The state database as the tier policy uses it: one lock a turn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection

from skillhouse.floor import Clock, StateError
from skillhouse.store import STATE, close_pooled, pooled
from skillhouse.tiers.stop_mark import StopMark
from skillhouse.tiers.tier_clock import tick
from skillhouse.tiers.tier_ledger import STOP_QUERY, stop_text

STOP_DIRECTORY = "stop"
"""Beside the database: the file of the stop, and which processes run calls."""


class _TakenBackError(Exception):
    """Ends a transaction whose changes are not to stay."""


class TierStore:
    """Opens the state when it is first used."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self.mark = StopMark(path.parent / STOP_DIRECTORY)
        """The stop beside the database, which may be lost or have no space."""

    def stopped(self) -> str:
        """Return why everything is stopped, or ""; makes no file.

        Raises:
            StateError: nobody can tell.
        """
        if reason := self.mark.reason():
            return reason
        if not self._is_there():
            return ""
        with pooled(self._path, STATE) as store:
            return stop_text(store.rows(STOP_QUERY))

    @contextlib.contextmanager
    def turn(self) -> Iterator[tuple[Connection, int]]:
        """Hold the write lock for a block, with the time.

        Raises:
            StateError: the state cannot be read or written; nothing of the block happened.
        """
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            # Under the lock: else a turn that waited would bring the time of before.
            yield connection, tick(connection, self._clock())

    @contextlib.contextmanager
    def glance(self) -> Iterator[tuple[Connection, int] | None]:
        """Give what `turn` gives, and take back whatever the block writes; makes no file.

        None where there is no state yet.

        Raises:
            StateError: the state cannot be read.
        """
        if not self._is_there():
            yield None
            return
        undone = contextlib.suppress(_TakenBackError)
        with pooled(self._path, STATE) as store, undone, store.transaction() as connection:
            yield connection, tick(connection, self._clock())
            raise _TakenBackError

    def close(self) -> None:
        """Close the state; another use opens it again."""
        close_pooled(self._path)

    def _is_there(self) -> bool:
        try:
            os.stat(self._path)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise StateError(f"the state cannot be looked at: {error}", self._path) from error
        return True
