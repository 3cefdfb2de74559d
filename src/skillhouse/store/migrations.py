"""The schemas, as forward steps, and the one function that applies them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as the steps that lead to it; version N is what the first N steps make."""

    name: str
    steps: tuple[str, ...]
    """Never edited once released: a change is a new step."""
    disposable: bool
    """Whether the file may be thrown away and made again when it is corrupt or newer."""


STATE = Schema(
    name="state",
    disposable=False,
    steps=(
        """
        CREATE TABLE trust (
            project TEXT NOT NULL,
            directory TEXT NOT NULL,
            tree_digest TEXT NOT NULL,
            trusted_at TEXT NOT NULL,
            PRIMARY KEY (project, directory)
        )
        """,
    ),
)

CACHE = Schema(
    name="cache",
    disposable=True,
    steps=(
        """
        CREATE TABLE snapshot (
            root TEXT NOT NULL PRIMARY KEY,
            observed BLOB NOT NULL,
            entries BLOB NOT NULL
        )
        """,
    ),
)


def migrate(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    """Bring a database to the newest version of `schema`, all steps in one transaction.

    Raises:
        StateError: the file was written by a newer program, or is not ours; nothing was changed.
    """
    if _version(connection) == len(schema.steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated while we waited for the lock.
        version = _version(connection)
        if version > len(schema.steps):
            raise StateError(
                f"the {schema.name} has version {version}, this program knows "
                f"{len(schema.steps)}: use a newer skillhouse",
                path,
            )
        for step in schema.steps[version:]:
            connection.execute(step)
        connection.execute(f"PRAGMA user_version = {len(schema.steps)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
