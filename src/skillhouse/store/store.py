"""One SQLite file, opened for one piece of work at a time; several processes may share it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillhouse.floor import StateError
from skillhouse.store.migrations import Schema, migrate

BUSY_SECONDS = 10.0
"""How long a writer waits for another process before it gives up."""


class Store:
    """A database with one schema. A disposable one that cannot be read is made anew."""

    def __init__(self, path: Path, schema: Schema) -> None:
        """Open `path`, making it and its directory when they are missing.

        Raises:
            StateError: the file is corrupt, newer than this program, or cannot be opened.
        """
        self.path = path
        self.schema = schema
        try:
            self._connection = self._open()
        except (sqlite3.DatabaseError, StateError, OSError) as error:
            if not schema.disposable or _is_busy(error):
                raise self._error(error) from error
            self._discard()
            try:
                self._connection = self._open()
            except (sqlite3.DatabaseError, OSError) as second:
                raise self._error(second) from second

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises:
            StateError: the file turned out to be unreadable.
        """
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._error(error) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock for a block: all of it happens, or nothing.

        Raises:
            StateError: the lock was not to be had, or the file could not be written.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # A cache that a power cut loses is rebuilt; state must be on the disk.
            connection.execute(
                f"PRAGMA synchronous = {'OFF' if self.schema.disposable else 'FULL'}"
            )
            migrate(connection, self.schema, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _error(self, error: Exception) -> StateError:
        if isinstance(error, StateError):
            return error
        return StateError(f"the {self.schema.name} cannot be used: {error}", self.path)


def _is_busy(error: Exception) -> bool:
    """Whether another process merely holds the file, which is no reason to discard it."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname in (
        "SQLITE_BUSY",
        "SQLITE_LOCKED",
    )
