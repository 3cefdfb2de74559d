"""One SQLite file, opened for one piece of work at a time; several processes may share it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from skillhouse.floor import StateError, file_problem, make_private, opened_problem
from skillhouse.store.migrations import Schema, migrate, roll_back

BUSY_SECONDS = 10.0
"""How long a writer waits for another process before it gives up."""

_FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""What a file can make of a query: a damaged one gives names and messages that are no text."""
_OPEN_FAULTS = (*_FAULTS, StateError, OSError, ValueError)
"""What opening a file can meet; ValueError is a NUL in its path."""
_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""The file and those that SQLite makes beside it."""
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Codes of a file that will not get better: damaged, no database, or without our tables."""


class Store:
    """A database with one schema. A disposable one that cannot be read is recreated."""

    def __init__(self, path: Path, schema: Schema) -> None:
        """Open `path`, making it and its directory when they are missing.

        Raises:
            StateError: the file is corrupt, foreign, newer than this program, or cannot be
                opened; it is as it was.
        """
        self.path = path
        self.schema = schema
        try:
            self._connection = self._open()
        except _OPEN_FAULTS as error:
            if not self._is_beyond_use(error):
                raise self._error(error) from error
            self._connection = self._recreated()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query; none of a disposable file that turns out to be damaged.

        Raises:
            StateError: the file could not be read.
        """
        try:
            return self._connection.execute(query, values).fetchall()
        except _FAULTS as error:
            if not self._is_beyond_use(error):
                raise self._error(error) from error
            self._recreate()
            return []

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock for a block: all of it happens, or nothing.

        Raises:
            StateError: the lock was not to be had, or the file could not be written; a disposable
                one that is damaged is empty afterwards.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                roll_back(self._connection)
                raise
        except _FAULTS as error:
            if self._is_beyond_use(error):
                self._recreate()
            raise self._error(error) from error

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> sqlite3.Connection:
        make_private(self.path.parent)
        self._check_or_make()
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            # A store that is kept open goes from thread to thread, one at a time.
            check_same_thread=False,
        )
        try:
            # A cache that a power cut loses is rebuilt; state must be on the disk.
            connection.execute(
                f"PRAGMA synchronous = {'OFF' if self.schema.disposable else 'FULL'}"
            )
            # INVARIANT: nothing is written before this, so a file that is refused stays as it is.
            migrate(connection, self.schema, self.path)
            # A cache is opened for one read and at most one write: making and removing the log
            # would cost more than both, and homes on a network cannot share one.
            if not self.schema.disposable:
                _use_wal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_or_make(self) -> None:
        """Have a file that is its owner's alone; SQLite gives its modes to those beside it.

        Raises:
            StateError: others can use it; of what holds no secrets, others can write it.
        """
        secret = not self.schema.disposable
        problem = file_problem(self.path, secret=secret)
        for suffix in _SUFFIXES[1:]:
            with suppress(FileNotFoundError):
                path = Path(f"{self.path}{suffix}")
                problem = problem or opened_problem(os.lstat(path), path, secret=secret)
        if problem:
            raise StateError(f"the {self.schema.name} cannot be used: {problem}", self.path)
        with suppress(FileExistsError):
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            os.close(handle)

    def _recreate(self) -> None:
        self._connection.close()
        self._connection = self._recreated()

    def _recreated(self) -> sqlite3.Connection:
        try:
            for suffix in _SUFFIXES:
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            return self._open()
        except _OPEN_FAULTS as error:
            raise self._error(error) from error

    def _is_beyond_use(self, error: Exception) -> bool:
        """Whether the file is disposable and at fault: not its place, the disk or others."""
        return self.schema.disposable and (
            isinstance(error, StateError | UnicodeDecodeError) or _code(error) in _BROKEN
        )

    def _error(self, error: Exception) -> StateError:
        if isinstance(error, StateError):
            return error
        return StateError(f"the {self.schema.name} cannot be used: {error}", self.path)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work side by side, from now on or when nothing is in the way."""
    # Others may hold the file, or it may be read-only; all is right without it, only slower.
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = WAL")


def _code(error: Exception) -> int:
    """Return the primary result code of SQLite, or 0 when the error is not SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
