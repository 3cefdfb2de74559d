"""Moves a state between its file and a server, compared row by row before the old one ends.

INVARIANT: at no moment two of them take changes. What is copied is locked; the copy counts once the
old one says that it is not the state any more.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from skillhouse.extensions.postgres.state_server import file_mark, write_mark
from skillhouse.extensions.postgres.state_session import LOCK, connected, state_error
from skillhouse.extensions.postgres.state_tables import (
    ARRIVING,
    MOVED,
    WHOLE,
    Rows,
    check_encoding,
    definitions,
    look,
    make,
    opened,
)
from skillhouse.floor import StateError
from skillhouse.store import STATE, Store, close_pooled, migrate

LONG_MS = 600_000
"""How long a statement of a move may take."""

Progress = Callable[[int, int], None]
"""Rows that are done, and all rows."""


class _Counter:
    """Counts the rows that were copied."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.total = total
        self._done, self._progress = 0, progress

    def add(self) -> None:
        self._done += 1
        self._progress(self._done, self.total)


class Copied(NamedTuple):
    """What was copied and found alike on both sides."""

    tables: int
    rows: int
    state_id: str


class ServerLook(NamedTuple):
    """What a server has, for a person."""

    version: int
    """Of the state; 0 where there is none."""
    standing: str
    rows: int
    commits: int
    server: str
    """The version of PostgreSQL."""
    place: str
    """Host, port, user and database, without a password."""


def move_to_server(path: Path, address: str, progress: Progress) -> Copied:
    """Move the state of a file to a database that has none; the file refuses every use then.

    StateError: nothing was moved, or, after a loss of the connection at the last word, the next
    use of the server completes it.
    """
    # Brings it to this version, and says what is wrong with it.
    Store(path, STATE).close()
    close_pooled(path)
    with _connection(address, path) as connection, closing(_source(path)) as source:
        tables = _tables()
        total = _count(source, tables)
        with connection.transaction():
            _lock(connection)
            _clear(connection, path)
            state_id = secrets.token_hex(16)
            check_encoding(connection, path)
            make(connection, state_id, ARRIVING)
            counter = _Counter(total, progress)
            for table, columns in tables.items():
                _into_server(source, connection, table, columns, counter)
                _compare(source, connection, table, columns, path)
        # The file first: whoever uses the server from here on finds the mark and ends the move.
        _end_file(source, state_id)
        connection.execute(
            "UPDATE skillhouse_state SET standing = %s WHERE id = %s", (WHOLE, state_id)
        )
    return Copied(len(tables), total, state_id)


def move_to_file(path: Path, address: str, progress: Progress) -> Copied:
    """Move the state of a server into the file that points to it; the server refuses every use.

    StateError: nothing was moved, or the next try completes it.
    """
    mark = file_mark(path)
    if not mark:
        raise StateError("expected the file that points to the server's state", path)
    arriving = path.with_name(f"{path.name}.{mark}")
    with _connection(address, path) as connection:
        row = look(connection)
        if row is None or row.id != mark:
            raise StateError("the server has another state than this file points to", path)
        if row.standing == MOVED:
            if not arriving.exists():
                raise StateError("the state was moved to another machine's file", path)
            copied = Copied(len(_tables()), _rows_of(arriving), mark)
        else:
            copied = _copy_to(arriving, connection, path, progress, standing=MOVED)
    os.replace(arriving, path)
    _wait_for_disk(path.parent)
    return copied


def copy_to_file(path: Path, address: str, target: Path, progress: Progress) -> Copied:
    """Write the state of a server as it is at one moment into a new file, a state of SQLite."""
    with _connection(address, path) as connection:
        return _copy_to(target, connection, path, progress)


def look_at_server(path: Path, address: str) -> ServerLook:
    """Return what a server has (StateError); it makes nothing there."""
    with _connection(address, path) as connection:
        row = look(connection)
        version, info = connection.info.server_version, connection.info
        rows = 0
        if row is not None and row.schema_version == STATE.version:
            rows = sum(_server_count(connection, table) for table in _tables())
        return ServerLook(
            version=row.schema_version if row else 0,
            standing=row.standing if row else "",
            rows=rows,
            commits=row.commits if row else 0,
            server=f"{version // 10_000}.{version % 10_000}",
            place=f"{info.user}@{info.host}:{info.port}/{info.dbname}",
        )


@contextmanager
def _connection(address: str, path: Path) -> Iterator[Rows]:
    try:
        with closing(connected(address, purpose="state move")) as connection:
            connection.answer_seconds = LONG_MS / 1000
            yield connection
    except psycopg.Error as error:
        raise state_error(error, path) from error
    except sqlite3.Error as error:
        raise StateError(f"the state cannot be used: {error}", path) from error


def _source(path: Path) -> sqlite3.Connection:
    """Open the file and hold its write lock."""
    source = sqlite3.connect(path, timeout=10, isolation_level=None)
    try:
        source.execute("PRAGMA secure_delete = ON")
        source.execute("BEGIN IMMEDIATE")
    except BaseException:
        source.close()
        raise
    return source


def _lock(connection: Rows) -> None:
    connection.execute(f"SET LOCAL statement_timeout = {LONG_MS}")
    connection.execute("SET LOCAL lock_timeout = 10000")
    connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")


def _tables() -> dict[str, tuple[str, ...]]:
    """Return the columns of each table of a state, in their order."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, STATE, Path(":memory:"))
        names = [name for name, text in definitions() if text.lstrip().startswith("CREATE TABLE")]
        return {
            name: tuple(
                str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})").fetchall()
            )
            for name in names
        }


def _clear(connection: Rows, path: Path) -> None:
    """Remove what an earlier move left, or a state that has nothing in it."""
    row = look(connection)
    if row is None:
        return
    if row.standing == WHOLE:
        opened(connection, path)
        rows = sum(_server_count(connection, table) for table in _tables())
        if rows:
            raise StateError(
                f"the server has a state already, of {rows} rows: take a database without one",
                path,
            )
    names = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() "
        "AND (tablename = 'skillhouse_state' OR tablename = ANY(%s))",
        (list(_tables()),),
    ).fetchall()
    for (name,) in names:
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))


def _into_server(
    source: sqlite3.Connection,
    connection: Rows,
    table: str,
    columns: tuple[str, ...],
    counter: _Counter,
) -> None:
    copy = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), _names(columns))
    try:
        with connection.cursor() as cursor, cursor.copy(copy) as rows:
            for row in source.execute(_query(table, columns)):
                rows.write_row(row)
                counter.add()
    except (psycopg.DataError, UnicodeError) as error:
        said = str(error).strip().splitlines()[:1]
        raise StateError(
            f"a row of `{table}` cannot be kept by PostgreSQL: {said[0] if said else ''}",
            Path(table),
        ) from error
    if columns[0] == "seq":
        # Numbers are given once, also of rows that are gone.
        last = source.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        if last and last[0]:
            connection.execute(
                "SELECT setval(pg_get_serial_sequence(%s, 'seq'), %s)", (table, last[0])
            )


def _copy_to(
    target: Path,
    connection: Rows,
    path: Path,
    progress: Progress,
    *,
    standing: str = "",
) -> Copied:
    """Copy and compare; with a standing the server has that one afterwards."""
    tables = _tables()
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    try:
        with (
            closing(sqlite3.connect(target, isolation_level=None)) as file,
            connection.transaction(),
        ):
            # Who writes holds this lock, so that all is of one moment.
            _lock(connection)
            state_id = _whole(connection, path)
            migrate(file, STATE, target)
            counter = _Counter(sum(_server_count(connection, one) for one in tables), progress)
            file.execute("BEGIN IMMEDIATE")
            for table, columns in tables.items():
                _out_of_server(file, connection, table, columns, counter)
            file.execute("COMMIT")
            for table, columns in tables.items():
                _compare(file, connection, table, columns, path)
            if standing:
                file.execute("PRAGMA synchronous = FULL")
                connection.execute("UPDATE skillhouse_state SET standing = %s", (standing,))
    except BaseException:
        if not standing or _standing_after(connection) != standing:
            target.unlink(missing_ok=True)
        raise
    return Copied(len(tables), counter.total, state_id)


def _whole(connection: Rows, path: Path) -> str:
    """Return the id of a state that is in use and of this version (StateError)."""
    row = look(connection)
    if row is None or row.standing != WHOLE:
        raise StateError("the server has no state that is in use", path)
    if row.schema_version != STATE.version:
        raise StateError(
            f"the state on the server has version {row.schema_version}, this program knows "
            f"{STATE.version}",
            path,
        )
    return row.id


def _standing_after(connection: Rows) -> str:
    """Return the standing after a fault; that of an unknown end counts as moved."""
    try:
        row = look(connection)
    except psycopg.Error:
        return MOVED
    return row.standing if row else ""


def _out_of_server(
    file: sqlite3.Connection,
    connection: Rows,
    table: str,
    columns: tuple[str, ...],
    counter: _Counter,
) -> None:
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - ours.
    with connection.cursor(name=f"copy_{table}") as cursor:
        cursor.execute(sql.SQL("SELECT {} FROM {}").format(_names(columns), sql.Identifier(table)))
        for row in cursor:
            file.execute(insert, row)
            counter.add()
    if columns[0] == "seq":
        last = connection.execute(
            "SELECT last_value FROM pg_sequences WHERE "
            "schemaname || '.' || sequencename = pg_get_serial_sequence(%s, 'seq')",
            (table,),
        ).fetchone()
        if last and last[0]:
            file.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            file.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last[0]))


def _compare(
    file: sqlite3.Connection,
    connection: Rows,
    table: str,
    columns: tuple[str, ...],
    path: Path,
) -> None:
    """Raise StateError unless both have the very same rows."""
    ours = file.execute(_query(table, columns)).fetchall()
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SELECT {} FROM {}").format(_names(columns), sql.Identifier(table)))
        theirs = cursor.fetchall()
    if _digest(ours) != _digest(theirs):
        raise StateError(
            f"the rows of `{table}` are not the same after they were copied: {len(ours)} in the "
            f"file, {len(theirs)} on the server",
            path,
        )


def _digest(rows: list[Any]) -> str:
    found = hashlib.sha256()
    for text in sorted(repr(tuple(row)) for row in rows):
        found.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return found.hexdigest()


def _end_file(source: sqlite3.Connection, state_id: str) -> None:
    """Commit that the file is no state: who waits to write finds no table to write to."""
    names = source.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    for (name,) in names:
        source.execute(f"DROP TABLE {name}")
    write_mark(source, state_id)
    source.execute("COMMIT")
    # What was in its pages is secret; another process that has it open keeps them until it ends.
    with suppress(sqlite3.OperationalError):
        source.execute("PRAGMA journal_mode = DELETE")
        source.execute("VACUUM")


def _query(table: str, columns: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - ours.


def _names(columns: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _count(source: sqlite3.Connection, tables: dict[str, tuple[str, ...]]) -> int:
    return sum(source.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables)  # noqa: S608 - ours.


def _server_count(connection: Rows, table: str) -> int:
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))
    found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0


def _rows_of(path: Path) -> int:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        problem = file.execute("PRAGMA integrity_check").fetchone()[0]
        if problem != "ok":
            raise StateError(f"the copy is damaged: {problem}", path)
        return _count(file, _tables())


def _wait_for_disk(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
