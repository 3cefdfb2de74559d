"""Database files in every state that a store may meet."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from skillhouse.floor.structs import replace
from skillhouse.store import Schema

NOTES = Schema(
    name="notes",
    mark=0x6E6F7465,
    disposable=False,
    steps=(
        "CREATE TABLE note (text TEXT NOT NULL)",
        "ALTER TABLE note ADD COLUMN stars INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX note_stars ON note (stars)",
    ),
)
"""A small schema with a history."""


def at_version(version: int, schema: Schema = NOTES) -> Schema:
    """Return `schema` as a program knew it when it had `version` steps."""
    return replace(schema, steps=schema.steps[:version])


def disposable(schema: Schema = NOTES) -> Schema:
    """Return `schema` for a file that may be thrown away."""
    return replace(schema, disposable=True)


def execute(path: Path, *statements: str) -> None:
    """Change a file as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def number(path: Path, query: str) -> int:
    """Return the one number that a query gives."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(query).fetchone()[0])


def files_of(path: Path) -> dict[str, bytes]:
    """Return the content of the file and of all that SQLite keeps beside it."""
    return {found.name: found.read_bytes() for found in path.parent.glob(f"{path.name}*")}
