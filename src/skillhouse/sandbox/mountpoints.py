"""Placeholders: empty directories at protected paths that do not exist, during a run."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
from pathlib import Path

from skillhouse.floor import make_private

MTIME_NS = 1_000_000_007 * 1_000_000_000
"""Modification time of a placeholder, by which one that a crash left behind is recognised: no other
directory has exactly this second with zero nanoseconds."""

_STASH = re.compile(r"placeholders-(\d+)-\d+")
_NUMBERS = itertools.count()


def is_placeholder(info: os.stat_result) -> bool:
    """Whether it is our empty directory; adding a file changes its time."""
    return info.st_mtime_ns == MTIME_NS and stat.S_ISDIR(info.st_mode)


class Stash:
    """Makes placeholders and removes them.

    With a directory on the workspace's file system they are moved from there and back: a run
    needs two dozen, and ext4 removes a directory in 0.1 ms but moves one in 0.01 ms.
    """

    def __init__(self, base: Path | None = None) -> None:
        """Sweep the stashes of dead processes from `base`, and begin one there."""
        self._directory = ""
        self._free: list[str] = []
        self._numbers = itertools.count()
        if base is not None:
            make_private(base)
            _sweep(base)
            self._directory = f"{base}/placeholders-{os.getpid()}-{next(_NUMBERS)}"
            os.mkdir(self._directory)

    def place(self, path: str) -> None:
        if self._directory:
            source = self._free.pop() if self._free else self._new()
            try:
                os.rename(source, path)
            except OSError as error:
                self._free.append(source)
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
        _make(path)

    def remove(self, path: str) -> None:
        # A program of the host may have put something into it, or removed it: it is not ours then.
        with contextlib.suppress(FileNotFoundError):
            if not is_placeholder(os.lstat(path)):
                return
            if self._directory and self._move_back(path):
                return
            with contextlib.suppress(OSError):
                os.rmdir(path)

    def _move_back(self, path: str) -> bool:
        target = self._unused()
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
        if is_placeholder(os.lstat(target)):
            self._free.append(target)
        else:
            os.rename(target, path)
        return True

    def _new(self) -> str:
        path = self._unused()
        _make(path)
        return path

    def _unused(self) -> str:
        return f"{self._directory}/{next(self._numbers)}"


def _make(path: str) -> None:
    os.mkdir(path, 0o755)
    os.utime(path, ns=(MTIME_NS, MTIME_NS), follow_symlinks=False)


def _sweep(base: Path) -> None:
    for stash in base.glob("placeholders-*"):
        owner = _STASH.fullmatch(stash.name)
        if owner is not None and not Path("/proc", owner[1]).exists():
            # Only empty directories are removed: rmdir, never a whole tree.
            with contextlib.suppress(OSError):
                for name in os.listdir(stash):
                    os.rmdir(stash / name)
                stash.rmdir()
