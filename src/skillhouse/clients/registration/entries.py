"""The entries that we wrote, kept in the state database."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import DecodeError, StateError, decode, encode
from skillhouse.store import STATE, STATE_FILE, pooled


class Standing(enum.StrEnum):
    """How the entry stands."""

    INSTALLED = "installed"
    """As we wrote it, and as we would."""
    OUTDATED = "outdated"
    """As we wrote it; today it would be another."""
    CHANGED = "changed"
    """We wrote it, and somebody changed it since."""
    BY_HAND = "by-hand"
    """It starts skillhouse, and we did not write it."""
    FOREIGN = "foreign"
    """The name belongs to another server."""
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """What is kept of an entry that we wrote."""

    file: str
    """Real path of the client's file."""
    client: str
    name: str
    text: str
    """The entry as JSON."""
    made_file: bool = False
    """Whether there was no such file before."""
    made_table: bool = False
    """Whether the file had no table of servers before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One client's file: how it stood, and what was or would be done."""

    client: str
    file: str
    name: str
    standing: Standing
    """Before anything was done."""
    fault: str = ""
    """Why it is not safe to let the client start what the entry says; empty when it is."""
    action: str = ""
    """install, uninstall, fix, or empty for nothing."""
    done: bool = False
    reason: str = ""
    snippet: str = ""
    """What to paste, where the file is not to be edited."""
    difference: tuple[str, ...] = ()
    """Lines of a unified diff."""
    backup: str = ""
    """Where the file is kept as it was before our first change."""
    note: str = ""


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
