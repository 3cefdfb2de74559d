"""The persistent index: two rows a root, shared by all processes of a user.

What changes with every file is in the smaller row, so that a change is quickly written.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import StateError
from skillhouse.store import CACHE, Store

CACHE_FILE = "index.sqlite3"
ROOTS_KEPT = 256
"""Roots whose snapshots are kept; the one written longest ago goes first."""

# In a damaged file a value can be of any type, whatever the table says; even text that is none.
_SELECT = """
    SELECT CAST(small.observed AS BLOB), CAST(large.entries AS BLOB), CAST(small.entries AS BLOB)
    FROM snapshot AS small JOIN snapshot AS large ON large.root = small.root || ' entries'
    WHERE small.root = ?
"""


class Snapshot(NamedTuple):
    """What was found below a root, in our own format."""

    observed: bytes
    entries: bytes
    patch: bytes = b""
    """Entries that changed since."""


class ScanSnapshots:
    """The snapshots in a cache directory. A fault ends its use, and never the discovery."""

    def __init__(self, directory: Path) -> None:
        self.fault: StateError | None = None
        """Why the cache is no longer used."""
        self._store: Store | None = None
        try:
            self._store = Store(directory / CACHE_FILE, CACHE)
        except StateError as error:
            self.fault = error

    def get(self, root: str) -> Snapshot | None:
        """Return the snapshot of a root, or None."""
        if self._store is None:
            return None
        try:
            rows = self._store.rows(_SELECT, (root,))
        except StateError as error:
            self._stop(error)
            return None
        return next((Snapshot(*row) for row in rows if None not in row), None)

    def put(self, root: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of a root."""
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
        """Replace what changes of the snapshot of a root; its entries stay.

        Another process may have replaced those meanwhile: the two then do not fit, which the
        next reader notices.
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
        """Close the file."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _stop(self, error: StateError) -> None:
        self.fault = error
        self.close()
