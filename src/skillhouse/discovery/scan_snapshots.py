"""The persistent index: two rows for each root, shared by all processes of a user.

The smaller row has what changes with every file, so that a change is written quickly.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import StateError
from skillhouse.store import CACHE, Store

CACHE_FILE = "index.sqlite3"
ROOTS_KEPT = 256
"""Roots whose snapshots are kept; the one written longest ago is deleted first."""

# In a damaged file a value can have any type, and text can be invalid.
_SELECT = """
    SELECT CAST(small.observed AS BLOB), CAST(large.entries AS BLOB), CAST(small.entries AS BLOB)
    FROM snapshot AS small JOIN snapshot AS large ON large.root = small.root || ' entries'
    WHERE small.root = ?
"""


class Snapshot(NamedTuple):
    """The encoded entries of a root."""

    observed: bytes
    entries: bytes
    patch: bytes = b""
    """Entries that changed since."""


class ScanSnapshots:
    """The snapshots in a cache directory. A fault ends their use, but never the discovery."""

    def __init__(self, directory: Path) -> None:
        self.fault: StateError | None = None
        """Why the cache is no longer used."""
        self._store: Store | None = None
        try:
            self._store = Store(directory / CACHE_FILE, CACHE)
        except StateError as error:
            self.fault = error

    def get(self, root: str) -> Snapshot | None:
        if self._store is None:
            return None
        try:
            rows = self._store.rows(_SELECT, (root,))
        except StateError as error:
            self._stop(error)
            return None
        return next((Snapshot(*row) for row in rows if None not in row), None)

    def put(self, root: str, snapshot: Snapshot) -> None:
        if self._store is None:
            return
        try:
            with self._store.transaction() as connection:
                small = (root, snapshot.observed, snapshot.patch)
                large = (f"{root} entries", b"", snapshot.entries)
                for row in (large, small):
                    connection.execute("DELETE FROM snapshot WHERE root = ?", row[:1])
                    connection.execute("INSERT INTO snapshot VALUES (?, ?, ?)", row)
                connection.execute(
                    "DELETE FROM snapshot WHERE rowid <= (SELECT max(rowid) FROM snapshot) - ?",
                    (2 * ROOTS_KEPT,),
                )
        except StateError as error:
            self._stop(error)

    def patch(self, root: str, snapshot: Snapshot) -> None:
        """Replace the small row of a root.

        If another process replaced the large row meanwhile, the next reader finds the mismatch.
        """
        if self._store is None:
            return
        try:
            with self._store.transaction() as connection:
                connection.execute(
                    "UPDATE snapshot SET observed = ?, entries = ? WHERE root = ?",
                    (snapshot.observed, snapshot.patch, root),
                )
        except StateError as error:
            self._stop(error)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _stop(self, error: StateError) -> None:
        self.fault = error
        self.close()
