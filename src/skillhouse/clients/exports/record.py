"""What we wrote where, kept in the state database."""

from __future__ import annotations

from pathlib import Path

from skillhouse.clients.exports.export_state import Record
from skillhouse.floor import DecodeError, StateError, decode, encode
from skillhouse.store import STATE, STATE_FILE, pooled


class Records:
    """The manifest of all exports of a user."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def all(self) -> tuple[Record, ...]:
        """Return every record, by target.

        Raises:
            StateError: the state cannot be read.
        """
        if not self._path.exists():
            return ()
        with pooled(self._path, STATE) as store:
            rows = store.rows("SELECT record FROM export ORDER BY target")
        return tuple(self._decoded(record) for (record,) in rows)

    def get(self, target: str) -> Record | None:
        """Return the record of a target, if we wrote it."""
        return next((found for found in self.all() if found.target == target), None)

    def put(self, record: Record) -> None:
        """Keep a record in the place of what was kept of its target."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO export VALUES (?, ?) "
                "ON CONFLICT (target) DO UPDATE SET record = excluded.record",
                (record.target, encode(record)),
            )

    def forget(self, target: str) -> None:
        """Drop what is kept of a target."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM export WHERE target = ?", (target,))

    def _decoded(self, data: bytes) -> Record:
        try:
            return decode(data, Record)
        except DecodeError as error:
            raise StateError(f"a record of an export cannot be read: {error}", self._path) from None
