"""A state on a PostgreSQL server for tests: a database for each, made from a template."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from tests.extensions.postgres.started import states_of_started

from skillhouse import store
from skillhouse.extensions.postgres.state_server import PostgresState
from skillhouse.extensions.postgres.state_tables import make
from skillhouse.store import STATE_FILE


def new_database(server: str, template: str = "template1") -> str:
    """Make a database on a server, empty or as a template; return its URL."""
    # Of no counter: a process that forked makes some as well.
    name = f"state_{secrets.token_hex(8)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    return url_of(server, name)


def new_template(server: str) -> str:
    """Make a database that has an empty state; return its name."""
    url = new_database(server)
    with psycopg.connect(url) as connection:
        # An id of its own is given to each state that is made of it.
        make(connection, "0")
    return database_of(url)


class StatePool:
    """Databases that have an empty state, each used by one state directory at a time."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._template = new_template(server)
        self._free: list[str] = []
        self._made: dict[Path, str] = {}
        self._shared: set[Path] = set()
        """Those that processes of tests were given."""

    @contextmanager
    def every_state_served(self, base: Path) -> Iterator[None]:
        """Have each state be in a database of its own for a block: those that are used in this
        process, and those of processes that it starts with a home below `base`."""

        def url_for_process(path: Path) -> str:
            self._shared.add(path)
            return self._url(path)

        def connect(path: Path) -> PostgresState:
            url = self._url(path)
            # Tests set the clocks of what they test.
            return PostgresState(path, lambda: url, has_own_clock=False)

        store.serve_every_state(connect)
        try:
            with states_of_started(base, url_for_process):
                yield
        finally:
            store.serve_every_state(None)
            for path in self._made:
                store.forget_state(path)

    def forget_below(self, directory: Path) -> None:
        """Take back the databases of the states below a directory, which is used no more."""
        for path in [path for path in self._made if path.is_relative_to(directory)]:
            url = self._made.pop(path)
            store.forget_state(path)
            if path in self._shared:
                # A process that outlives its test is to find no state of another one.
                dropped(self._server, url)
            else:
                self._free.append(emptied(url))

    def _url(self, path: Path) -> str:
        if path not in self._made:
            self._made[path] = (
                self._free.pop() if self._free else new_database(self._server, self._template)
            )
        return self._made[path]


def dropped(server: str, url: str) -> None:
    """Remove a database, whoever uses it."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {database_of(url)} WITH (FORCE)".encode())


def emptied(url: str) -> str:
    """Empty a database of a state, which is another state then."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' "
            "AND tablename <> 'skillhouse_state'"
        ).fetchall()
        names = ", ".join(name for (name,) in rows)
        connection.execute(f"TRUNCATE {names} RESTART IDENTITY".encode())
        connection.execute(
            "UPDATE skillhouse_state SET id = %s, standing = 'whole'", (secrets.token_hex(16),)
        )
    return url


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


WORKER = """
import sys, time
from pathlib import Path
from tests.extensions.postgres.state_servers import served
from skillhouse.store import STATE, STATE_FILE, pooled

base, url, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with served(base / name, url):
    with pooled(base / name / STATE_FILE, STATE):
        pass
    print("ready", flush=True)
    sys.stdin.readline()
    exec(sys.stdin.read())
"""


def workers(
    base: Path,
    url: str,
    count: int,
    work: str,
    *,
    prefix_of: Callable[[int], Sequence[str]] = lambda _: (),
    meanwhile: Callable[[], None] = lambda: None,
) -> list[str]:
    """Run a piece of work in several processes at once; return what each printed.

    Args:
        prefix_of: Gives the command that runs that of a process.
        meanwhile: Is called once all have begun.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen(
            [*prefix_of(at), sys.executable, "-c", WORKER, str(base), url, str(at)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for at in range(count)
    ]
    found = []
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n" + work)
        process.stdin.close()
        process.stdin = None
    meanwhile()
    for process in processes:
        out, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, ""), said
        found.append(out.strip())
    return found
