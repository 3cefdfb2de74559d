"""Detects without a query whether a database was written."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

_INDEX_HEADER_BYTES = 48


def commit_stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change with each commit to a database; empty when there is none.

    The log grows before a commit counts, so its size alone would miss the commit of who is just
    writing. What readers go by is the header of the index (SQLite, "WAL-mode File Format",
    section 2.1), which has a counter of commits.
    """
    found: list[int] = []
    for suffix in ("", "-wal"):
        try:
            info = os.stat(f"{path}{suffix}")
        except FileNotFoundError:
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
        """Return a descriptor of the file that is at the path now.

        Raises:
            FileNotFoundError: no process has the database open.
        """
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
