"""A connection to the database that has a search index."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skillhouse.floor import needs_extra
from skillhouse.retrieval import SearchDatabaseError

if TYPE_CHECKING:
    from psycopg import Connection

    Rows = Connection[tuple[Any, ...]]

CONNECT_SECONDS = 5
STATEMENT_MS = 10_000
_LOCK = 0x736B6853
"""Of `pg_advisory_xact_lock`, for who makes tables."""


class SearchDatabase:
    """One connection; any thread may use it, one at a time."""

    def __init__(self, address: str) -> None:
        """Connect.

        Args:
            address: A connection string or URL, as libpq takes it.

        Raises:
            SearchDatabaseError: the database cannot be reached.
            MissingExtraError: the extra `postgres` is not installed.
        """
        with needs_extra("postgres"):
            import psycopg  # noqa: PLC0415 - an optional dependency.
        self._error = psycopg.Error
        self._lock = threading.Lock()
        with self._faults():
            self._connection = psycopg.connect(
                address,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name="skillhouse search",
                client_encoding="utf8",
            )
        # A view that is replaced has no moment at which it closes its index.
        weakref.finalize(self, self._connection.close)

    @contextmanager
    def use(self) -> Iterator[Rows]:
        """Give the connection for a block, whose faults are SearchDatabaseError."""
        with self._lock, self._faults():
            yield self._connection

    def make(self, tables: str, *statements: str) -> None:
        """Make tables, unless `tables`, the name of the last thing that is made, is there."""
        with self.use() as connection:
            exists = "SELECT 1 WHERE to_regclass(%s) IS NOT NULL"
            if connection.execute(exists, (tables,)).fetchone():
                return
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                for statement in statements:
                    connection.execute(statement)

    @cached_property
    def vector_version(self) -> tuple[int, ...]:
        """The version of the extension `vector` in the database; empty where it is not."""
        with self.use() as connection:
            asked = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            found = connection.execute(asked).fetchone()
        return tuple(int(part) for part in found[0].split(".") if part.isdigit()) if found else ()

    def limit(self) -> None:
        """Let no later statement take long."""
        with self.use() as connection:
            connection.execute(f"SET statement_timeout = {STATEMENT_MS}")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            # The first line: the others may repeat what was asked.
            said = str(error).strip().splitlines()[:1]
            raise SearchDatabaseError(
                f"the search database cannot be used: {said[0] if said else type(error).__name__}"
            ) from error
