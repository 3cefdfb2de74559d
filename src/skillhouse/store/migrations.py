"""What a schema is, the one of the cache, and the function that brings a file to the newest."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import StateError


class Schema(Struct, frozen=True, kw_only=True):
    """A schema as its first released version and the steps from there, each to the next version."""

    name: str
    mark: int
    """Kept in the file's header (SQLite, `application_id`): a file without it is not ours."""
    steps: tuple[str | tuple[str, ...], ...]
    """Each one statement or several. Never edited once released: a change is a new step."""
    disposable: bool
    """Whether the file may be thrown away and made again when it is corrupt, foreign or newer."""
    base: tuple[str, ...] = ()
    """Statements that make the first released version in an empty file."""
    base_version: int = 0

    @property
    def version(self) -> int:
        return self.base_version + len(self.steps)


CACHE = Schema(
    name="cache",
    mark=0x736B6843,  # "skhC"
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

    StateError: a newer program wrote the file, or it is not ours; nothing was changed.
    """
    # One snapshot: a version read before another's commit and tables read after it would make
    # our own new file look like a foreign one.
    with _held(connection, "DEFERRED"):
        version = _version(connection, schema, path)
    if version == schema.version:
        return
    with immediate(connection):
        # Another process may have migrated while we waited for the lock.
        version = _version(connection, schema, path)
        if version < schema.base_version:
            for statement in schema.base:
                connection.execute(statement)
            version = schema.base_version
        for step in schema.steps[version - schema.base_version :]:
            for statement in (step,) if isinstance(step, str) else step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema.mark}")
        connection.execute(f"PRAGMA user_version = {schema.version}")


def immediate(connection: sqlite3.Connection) -> AbstractContextManager[None]:
    """Hold the write lock for a block, which is committed, or rolled back after an error."""
    return _held(connection, "IMMEDIATE")


@contextmanager
def _held(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have ended the transaction already (a full disk, an I/O error).
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, schema: Schema, path: Path) -> int:
    """Return the file's version; an empty file has 0."""
    version = _number(connection, "PRAGMA user_version")
    mark = _number(connection, "PRAGMA application_id")
    if mark != schema.mark and (
        mark or version or _number(connection, "SELECT count(*) FROM sqlite_master")
    ):
        raise StateError(f"expected a {schema.name} of skillhouse, got another database", path)
    if version > schema.version:
        raise StateError(
            f"the {schema.name} has version {version}, this program knows "
            f"{schema.version}: use a newer skillhouse",
            path,
        )
    if 0 < version < schema.base_version:
        raise StateError(
            f"the {schema.name} has version {version}, which no release wrote: move it aside", path
        )
    return version


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
