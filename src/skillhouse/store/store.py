"""SQLite files: opened for one piece of work at a time, kept open between, watched for commits.

Several processes may share a file. Opening it costs a millisecond, using an open one 20 µs. A store
that is in use belongs to one thread; between uses it belongs to no one, so there are never more of
a file than threads that used it at the same moment.

A schema says what is in a file; one of an older version is brought to the newest when it is opened.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from skillhouse.floor import (
    StateError,
    directory_problem,
    file_problem,
    make_private,
    opened_problem,
)
from skillhouse.floor.machine import STATE_ADVICE, is_unwritable
from skillhouse.store.state_place import (
    StateConflictError,
    StateStore,
    settle_as_file,
    state_server,
)


class Schema(Struct, frozen=True, kw_only=True):
    """A schema as its first released version and the steps from there, each to the next version."""

    name: str
    mark: int
    """Kept in the file's header (SQLite, `application_id`): a file without it is not ours."""
    steps: tuple[str | tuple[str, ...], ...]
    """Each one statement or several. Never edited once released: a change is a new step."""
    disposable: bool
    """Whether the file may be thrown away and made again when it is corrupt, foreign or newer."""
    is_secret: bool = False
    """Whether no other user may read the file."""
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


MOVED_MARK = 0x736B684D  # "skhM"
"""Kept in the header of the file of a state that is on a server; older programs refuse it too."""


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
    if mark == MOVED_MARK:
        raise StateError(
            f"the {schema.name} was moved to a server: set `[state] url` in the configuration "
            "of this user",
            path,
        )
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


BUSY_SECONDS = 10.0
"""How long a writer waits for another process before it gives up."""

_FAULTS = (sqlite3.Error, UnicodeError)
"""What a file can make of a query: a damaged one gives names and messages that are no text, and a
caller may give the name of a file that is none."""
_OPEN_FAULTS = (*_FAULTS, StateError, OSError, ValueError)
"""What opening a file can meet; ValueError is a NUL in its path."""
_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""The file and those that SQLite makes beside it."""
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Codes of a file that will not get better: damaged, no database, or without our tables."""
_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
"""Codes of a place that cannot be written: where logs are used, to read a file is to write one."""


class Store:
    """A database with one schema. A disposable one that cannot be read is recreated."""

    is_copy = False
    """Whether the file's place cannot be written, so that this has a copy of that moment."""

    def __init__(self, path: Path, schema: Schema) -> None:
        """Open `path`, making it and its directory when they are missing.

        State whose place cannot be written is read from a copy in memory; only changes fail.

        StateError: the file is corrupt, foreign, newer than this program, or cannot be opened; it
        is as it was.
        """
        self.path = path
        self.schema = schema
        try:
            self._connection = self._open()
        except _OPEN_FAULTS as error:
            if self._is_beyond_use(error):
                self._connection = self._recreated()
            elif (copy := self._copied(error)) is not None:
                self._connection, self.is_copy = copy, True
            else:
                raise self._error(error) from error

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query; none of a disposable file that turns out to be damaged."""
        try:
            return self._connection.execute(query, values).fetchall()
        except _FAULTS as error:
            if not self._is_beyond_use(error):
                raise self._error(error) from error
            self._recreate()
            return []

    def server_ms(self) -> int | None:
        """Return None: this machine's clock counts."""
        return None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock for a block: all of it happens, or nothing (StateError).

        A disposable file that is damaged is empty afterwards.
        """
        try:
            with immediate(self._connection):
                yield self._connection
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

    def _copied(self, error: Exception) -> sqlite3.Connection | None:
        """Return a copy in memory of state in a place that cannot be written, or None.

        SQLite reads a file with a log only beside an index of it, which it has to make (WAL-mode
        File Format, section 2.1). Where there is neither, no other process has the file open.
        """
        if self.schema.disposable or _code(error) not in _UNWRITABLE or not _size(self.path):
            return None
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            self._copy_into(copy)
            migrate(copy, self.schema, self.path)
            copy.execute("PRAGMA query_only = ON")
        except StateError:
            copy.close()
            raise
        except (sqlite3.Error, OSError):
            copy.close()
            return None
        return copy

    def _copy_into(self, copy: sqlite3.Connection) -> None:
        # INVARIANT: what is only in a log, such as the end of a trust, is not passed over.
        has_log = any(_size(Path(f"{self.path}{suffix}")) for suffix in ("-wal", "-journal"))
        alone = "" if has_log else "&immutable=1"
        before = _stamp(self.path)
        address = f"{self.path.absolute().as_uri()}?mode=ro{alone}"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as source:
            source.backup(copy)
        if before != _stamp(self.path):
            raise OSError(None, "the file changed while it was copied")

    def _check_or_make(self) -> None:
        """Have a file that is its owner's alone; SQLite gives its modes to those beside it."""
        secret = not self.schema.disposable
        # SQLite makes files beside it, so that no one else may make any, as in a sticky directory.
        # The state's directory is ours as a whole, and so has to be private.
        directory = directory_problem(self.path.parent, secret=self.schema.is_secret)
        problem = directory or file_problem(self.path, secret=secret)
        for suffix in _SUFFIXES[1:]:
            with suppress(FileNotFoundError):
                path = Path(f"{self.path}{suffix}")
                problem = problem or opened_problem(os.lstat(path), path, secret=secret)
        if problem:
            raise StateError(f"the {self.schema.name} cannot be used: {problem}", self.path)
        with suppress(FileExistsError):
            try:
                # Not opened: to close a descriptor would end the locks that a thread of ours may
                # have on the file by then (see _OpenIndexes).
                os.mknod(self.path, stat.S_IFREG | 0o600)
            except (AttributeError, PermissionError):  # macOS, Windows.
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

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
        if isinstance(error, UnicodeEncodeError):
            text = str(error.object)[:80]
            return StateError(f"the {self.schema.name} keeps UTF-8 only, got {text!r}", self.path)
        if isinstance(error, sqlite3.IntegrityError):
            return StateConflictError(f"the {self.schema.name} has such a row: {error}", self.path)
        is_of_place = self.is_copy or is_unwritable(error) or _code(error) in _UNWRITABLE
        advice = STATE_ADVICE if is_of_place and not self.schema.disposable else ""
        text = f"the {self.schema.name} cannot be used: {error}"
        return StateError(text, self.path, advice=advice)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work side by side, from now on or when nothing is in the way."""
    # Others may hold the file, or it may be read-only; all is right without it, only slower.
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = WAL")


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 when there is none."""
    stamp = _stamp(path)
    return 0 if stamp is None else stamp[2]


def _code(error: Exception) -> int:
    """Return the primary result code of SQLite, or 0 when the error is not SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


IDLE_MAX = 8
"""Stores that are kept open between uses, of all files together."""

_Stamp = tuple[int, int, int, int]


class _Idle(NamedTuple):
    store: Store
    stamp: _Stamp


class _Pool:
    """The idle stores of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []
        self._of_parents: list[_Idle] = []
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def take(self, path: Path, schema: Schema) -> Store | None:
        """Return an idle store of the file that is at the path now; close those of another file."""
        stamp = _stamp(path)
        old: list[_Idle] = []
        found = None
        with self._lock:
            for one in reversed(self._idle):
                if one.store.path != path or one.store.schema is not schema:
                    continue
                self._idle.remove(one)
                if one.stamp == stamp:
                    found = one.store
                    break
                old.append(one)
        _close(old)
        return found

    def give_back(self, store: Store) -> None:
        """Keep a store until it is needed again; close the one that was idle longest."""
        stamp = _stamp(store.path)
        # A copy is of one moment, and others may write where we cannot.
        if stamp is None or store.is_copy:
            store.close()
            return
        with self._lock:
            self._idle.append(_Idle(store, stamp))
            too_many = self._idle[:-IDLE_MAX]
            del self._idle[:-IDLE_MAX]
        _close(too_many)

    def close(self, path: Path | None = None) -> None:
        with self._lock:
            gone = [one for one in self._idle if path is None or one.store.path == path]
            self._idle = [one for one in self._idle if one not in gone]
        _close(gone)

    def _forked(self) -> None:
        self._lock = threading.Lock()
        # An SQLite connection must not be used or closed in a child of the process that opened it.
        self._of_parents += self._idle
        self._idle = []


_POOL = _Pool()


@contextmanager
def pooled(path: Path, schema: Schema) -> Iterator[StateStore]:
    """Use a store for a block; it stays open for the next block that needs the same file.

    A file that was replaced, cut or written around SQLite since is opened again, and checked. A
    state that is on a server is used there.
    """
    if not schema.disposable:
        if (server := state_server(path)) is not None:
            with server.use() as served:
                yield served
            return
        settle_as_file(path)
    process = os.getpid()
    store = _POOL.take(path, schema) or Store(path, schema)
    try:
        yield store
    except StateError:
        store.close()
        raise
    except BaseException:
        # What was begun was rolled back, and the store is as it was.
        _POOL.give_back(store)
        raise
    if process == os.getpid():
        _POOL.give_back(store)


def close_pooled(path: Path) -> None:
    """Close the idle stores of a file; a later use opens it again."""
    if (server := state_server(path)) is not None:
        server.close()
    _POOL.close(path)


def _close(stores: list[_Idle]) -> None:
    for one in stores:
        one.store.close()


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes when the file is replaced, cut or written; None when there is none.

    SQLite writes it too, when it takes over what is in the log of a thousand pages: opening once
    more after that costs little.
    """
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_ctime_ns


_INDEX_HEADER_BYTES = 48


def commit_stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change with each commit to a database; empty when there is none.

    StateError: the state is on a server that cannot be reached.

    The log grows before a commit counts, so its size alone would miss the commit of who is just
    writing. What readers go by is the header of the index (SQLite, "WAL-mode File Format",
    section 2.1), which has a counter of commits.
    """
    if (server := state_server(path)) is not None:
        return server.stamp()
    found: list[int] = []
    for suffix in ("", "-wal"):
        try:
            info = os.stat(f"{path}{suffix}")
        except FileNotFoundError:
            if not suffix:
                return ()
            continue
        found += [info.st_ino, info.st_size, info.st_mtime_ns]
    with suppress(FileNotFoundError):
        index = _OpenIndexes.of(f"{path}-shm")
        found.append(int.from_bytes(os.pread(index, _INDEX_HEADER_BYTES, 0), "big"))
    return tuple(found)


class _OpenIndexes:
    """The index files of databases that this process reads, each opened once.

    INVARIANT: the descriptor of an index is not closed while SQLite may have it open. Closing any
    descriptor of a file ends all POSIX locks of the process on it (fcntl(2), "Record locks").
    SQLite would lose its own, and another process that opens the database would truncate the index
    under our connections: SIGBUS, or damage (sqlite.org/howtocorrupt.html, section 2.2).
    """

    _lock = threading.Lock()
    _kept: ClassVar[dict[str, tuple[tuple[int, int], int]]] = {}
    """Path to the identity and the descriptor."""

    @classmethod
    def of(cls, path: str) -> int:
        """Return a descriptor of the file now at the path, or raise FileNotFoundError."""
        with cls._lock:
            identity, handle = cls._kept.get(path, ((0, 0), -1))
            if _identity(path) == identity:
                return handle
            opened = os.open(path, os.O_RDONLY)
            for old in [old for old, (known, _) in cls._kept.items() if _identity(old) != known]:
                # SQLite removes an index with its last connection, so this one has none.
                os.close(cls._kept.pop(old)[1])
            info = os.fstat(opened)
            cls._kept[path] = (info.st_dev, info.st_ino), opened
            return opened


def _identity(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino
