"""A state on a PostgreSQL server for tests: a database for each, made from a template."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

from skillhouse import store
from skillhouse.extensions.postgres.state_server import PostgresState
from skillhouse.store import STATE_FILE

_NUMBERS = itertools.count(1)


def new_database(server: str) -> str:
    """Make an empty database on a server; return its URL."""
    name = f"state_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return url_of(server, name)


def url_of(server: str, database: str) -> str:
    """Return the URL of a database of a server that is given as the tests' cluster gives it."""
    found = re.fullmatch(r"host=(\S+) user=(\S+) dbname=\S+", server)
    assert found, server
    return f"postgresql://{found[2]}@/{database}?host={quote(found[1], safe='')}"


def database_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


@contextmanager
def served(directory: Path, url: str, *, has_own_clock: bool = True) -> Iterator[PostgresState]:
    """Have the state of a directory on a server for a block, in this process."""
    path = directory / STATE_FILE
    server = PostgresState(path, lambda: url, has_own_clock=has_own_clock)
    assert store.serve_state(path, lambda: server)
    try:
        yield server
    finally:
        store.forget_state(path)
