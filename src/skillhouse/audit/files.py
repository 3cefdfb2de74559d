"""The two files of a log, opened without following links."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from skillhouse.audit.record import AuditError

_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


def open_file(path: Path, flags: int) -> int:
    """Return a descriptor of the regular file at `path`, private when it is made.

    Raises:
        AuditError: `log-link` for a link, `log-not-a-file` for what is no regular file.
        OSError: it cannot be opened.
    """
    try:
        handle = os.open(path, flags | _FLAGS, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise AuditError("log-link", "a symbolic link is no audit log", path) from error
        if error.errno in (errno.EISDIR, errno.ENXIO):
            raise AuditError("log-not-a-file", "expected a regular file", path) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise AuditError("log-not-a-file", "expected a regular file", path)
    return handle


def is_at(handle: int, path: Path) -> bool:
    """Return whether the open file is still the one at `path`."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def read_at(handle: int, start: int, size: int) -> bytes:
    """Return `size` bytes from `start`, fewer where the file ends."""
    os.lseek(handle, start, os.SEEK_SET)
    found = b""
    while len(found) < size and (piece := os.read(handle, size - len(found))):
        found += piece
    return found


def write_all(handle: int, data: bytes) -> None:
    """Write `data`, by one call unless the system takes only a part of it.

    Raises:
        OSError: the rest cannot be written; a part may be.
    """
    written = os.write(handle, data)
    while written < len(data):
        # The next call says why the one before stopped, or goes on after a signal.
        written += os.write(handle, data[written:])


def sync_directory(directory: Path) -> None:
    """Make the names of a directory durable, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):  # pragma: no cover - Windows
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
