"""The entries that we wrote, kept in the state database."""

from __future__ import annotations

from pathlib import Path

from skillhouse.clients.registration.values import ServerEntry
from skillhouse.floor import DecodeError, StateError, decode, encode
from skillhouse.store import STATE, STATE_FILE, pooled


class Entries:
    """What we wrote into clients' files, by file and name."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def get(self, file: str, name: str) -> ServerEntry | None:
        """Return the entry of a name that we wrote into a file, if any.

        Raises:
            StateError: the state cannot be read.
        """
        if not self._path.exists():
            return None
        with pooled(self._path, STATE) as store:
            query = "SELECT record FROM client_entry WHERE file = ? AND name = ?"
            rows = store.rows(query, (file, name))
        try:
            return decode(rows[0][0], ServerEntry) if rows else None
        except DecodeError as error:
            message = f"a record of an entry cannot be read: {error}"
            raise StateError(message, self._path) from None

    def put(self, entry: ServerEntry) -> None:
        """Keep an entry in the place of what was kept of it."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO client_entry VALUES (?, ?, ?) "
                "ON CONFLICT (file, name) DO UPDATE SET record = excluded.record",
                (entry.file, entry.name, encode(entry)),
            )

    def forget(self, file: str, name: str) -> None:
        """Drop what is kept of an entry."""
        if self._path.exists():
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                query = "DELETE FROM client_entry WHERE file = ? AND name = ?"
                connection.execute(query, (file, name))
