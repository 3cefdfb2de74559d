"""Which processes run calls of one state, so that a stop can wait for them and count what ended.

Each process has a file and holds its lock while it lives; the file has two numbers.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import make_private
from skillhouse.floor.lock import try_lock

CALLS = "calls"
KEPT_SECONDS = 60.0
"""How long the file of a process that has ended is kept, for a stop that is about to read it."""
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LINE = b"%10d %10d\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one process says of itself."""

    name: str
    pid: int
    running: int
    """Calls that run in it, or wait for a person."""
    ended: int
    """Calls that stops have ended in it since it started."""
    is_alive: bool


class OwnLine:
    """The line of this process."""

    def __init__(self, directory: Path) -> None:
        """Make it, and remove those of processes that ended some time ago.

        Raises:
            OSError: no file can be made.
        """
        base = directory / CALLS
        make_private(base)
        for line in lines(directory):
            path = base / line.name
            with contextlib.suppress(FileNotFoundError):
                if not line.is_alive and path.stat().st_mtime < time.time() - KEPT_SECONDS:
                    path.unlink()
        self.pid = os.getpid()
        self.name = f"{self.pid}-{secrets.token_hex(8)}"
        self._path = base / self.name
        self._ended = 0
        made = base / f".{self.name}"
        self._handle = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try_lock(self._handle)
            self.write(0, 0)
            # Seen only now that its lock is held: one without a lock is of a process that ended.
            made.rename(self._path)
        except BaseException:
            os.close(self._handle)
            made.unlink(missing_ok=True)
            raise

    def write(self, running: int, ended: int) -> None:
        """Write both numbers over those before.

        Raises:
            OSError: they cannot be written.
        """
        self._ended = ended
        if sys.platform != "win32":  # pragma: no branch - Windows has no `pwrite`.
            os.pwrite(self._handle, _LINE % (running, ended), 0)

    def close(self) -> None:
        """Let go of it; the file stays where a stop may still want to read it."""
        if not self._ended:
            self._path.unlink(missing_ok=True)
        os.close(self._handle)


def lines(directory: Path) -> Iterator[Line]:
    """Yield the lines of all processes that have any, also of those that have ended."""
    try:
        names = sorted(os.listdir(directory / CALLS))
    except FileNotFoundError:
        return
    for name in names:
        if not name.startswith("."):
            # One that goes away meanwhile ran nothing that was ended.
            with contextlib.suppress(FileNotFoundError, ValueError):
                yield _read(directory / CALLS / name)


def _read(path: Path) -> Line:
    handle = os.open(path, os.O_RDONLY | _SAFELY)
    try:
        # Asked before the numbers are read: one that ends in between has written its last ones.
        is_alive = not try_lock(handle)
        running, ended = map(int, os.read(handle, len(_LINE % (0, 0))).split())
    finally:
        os.close(handle)
    pid = int(path.name.partition("-")[0])
    return Line(name=path.name, pid=pid, running=running, ended=ended, is_alive=is_alive)
