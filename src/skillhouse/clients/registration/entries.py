"""The state of a client's entry for our server, and the stored records of what we wrote."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import DecodeError, StateError, decode, encode
from skillhouse.store import STATE, STATE_FILE, pooled


class Standing(enum.StrEnum):
    INSTALLED = "installed"
    """As we wrote it, and current."""
    OUTDATED = "outdated"
    """As we wrote it, but we would write another one now."""
    CHANGED = "changed"
    """We wrote it, and it was changed since."""
    BY_HAND = "by-hand"
    """It starts skillhouse, and we did not write it."""
    FOREIGN = "foreign"
    """The name belongs to another server."""
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """The stored record of an entry that we wrote."""

    file: str
    """Real path of the client's file."""
    client: str
    name: str
    text: str
    """The entry as JSON."""
    made_file: bool = False
    """Whether we made the file."""
    made_table: bool = False
    """Whether we made the table of servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One client's entry: its state, and what was or would be done."""

    client: str
    file: str
    name: str
    standing: Standing
    """Before the action."""
    fault: str = ""
    """Why it is not safe to start the entry's command; empty when it is."""
    action: str = ""
    """install, uninstall, fix, or empty."""
    done: bool = False
    reason: str = ""
    snippet: str = ""
    """The entry to paste when the file cannot be edited."""
    difference: tuple[str, ...] = ()
    """Lines of a unified diff."""
    backup: str = ""
    """Path of the copy from before our first change."""
    note: str = ""


class Entries:
    """Stored records of entries, by file and name."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def get(self, file: str, name: str) -> ServerEntry | None:
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
        """Store a record; it replaces the one of the same file and name."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO client_entry VALUES (?, ?, ?) "
                "ON CONFLICT (file, name) DO UPDATE SET record = excluded.record",
                (entry.file, entry.name, encode(entry)),
            )

    def forget(self, file: str, name: str) -> None:
        if self._path.exists():
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                query = "DELETE FROM client_entry WHERE file = ? AND name = ?"
                connection.execute(query, (file, name))
