"""Keeps stores open between uses: opening one costs a millisecond, using an open one 20 µs.

A store that is in use belongs to one thread; between uses it belongs to no one, so there are never
more of a file than threads that used it at the same moment.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import StateError
from skillhouse.store.migrations import Schema
from skillhouse.store.store import Store

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
        if stamp is None:
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
def pooled(path: Path, schema: Schema) -> Iterator[Store]:
    """Use a store for a block; it stays open for the next block that needs the same file.

    A file that was replaced, cut or written around SQLite since is opened again, and checked.

    Raises:
        StateError: see `Store`.
    """
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
