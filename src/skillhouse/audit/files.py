"""The files of a log, opened without following links."""

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


def identity(found: os.stat_result) -> tuple[int, int]:
    """Return what tells one file from another."""
    return (found.st_dev, found.st_ino)


def stat_at(path: Path) -> os.stat_result | None:
    """Return what stands at `path` now, a link by itself, or None."""
    try:
        return os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None


def read_at(handle: int, start: int, size: int) -> bytes:
    """Return `size` bytes from `start`, fewer where the file ends."""
    found = _read_once(handle, start, size)
    if len(found) == size:
        return found
    while 0 < len(found) < size and (
        piece := _read_once(handle, start + len(found), size - len(found))
    ):
        found += piece
    return found


if hasattr(os, "pread"):

    def _read_once(handle: int, start: int, size: int) -> bytes:
        return os.pread(handle, size, start)

else:  # pragma: no cover - Windows

    def _read_once(handle: int, start: int, size: int) -> bytes:
        os.lseek(handle, start, os.SEEK_SET)
        return os.read(handle, size)


def write_all(handle: int, data: bytes) -> None:
    """Write `data`, by one call unless the system takes only a part of it.

    Raises:
        OSError: the rest cannot be written; a part may be.
    """
    written = os.write(handle, data)
    while written < len(data):
        # The next call says why the one before stopped, or goes on after a signal.
        written += os.write(handle, data[written:])


def write_at_start(handle: int, data: bytes) -> None:
    """Replace the first bytes of a file that is not appended to.

    Raises:
        OSError: they cannot all be written.
    """
    if hasattr(os, "pwrite") and os.pwrite(handle, data, 0) == len(data):
        return
    os.lseek(handle, 0, os.SEEK_SET)
    write_all(handle, data)


def sync_directory(directory: Path) -> None:
    """Make the names of a directory durable, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):  # pragma: no cover - Windows
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
