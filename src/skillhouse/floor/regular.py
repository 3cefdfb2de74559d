"""Reads a file of the operator's that must be an ordinary one: no pipe, no device, and bounded."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from skillhouse.floor.errors import ConfigError

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""O_NONBLOCK: opening a FIFO that nobody writes to must not hang."""
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return what is in a regular file, or in the one that a link leads to.

    Raises:
        ConfigError: it is something else, or has more bytes.
        OSError: it is not there or cannot be read.
    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        # A socket cannot be opened at all.
        if path.is_socket():
            raise ConfigError("expected a regular file, got a socket", path=path) from None
        raise
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise ConfigError(f"expected a regular file, got {kind}", path=path)
    with os.fdopen(handle, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ConfigError(f"expected at most {max_bytes} bytes", path=path)
    return data
