"""Placeholders at protected paths that do not exist, during a run: mostly empty directories."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from skillhouse.floor.crash_cleanup import (
    PLACEHOLDER_FILES,
    PLACEHOLDER_NS,
    PLACEHOLDER_SOCKETS,
    STASH_NAME,
    is_placeholder,
    owner_name,
    remove_placeholder,
    sweep_stashes,
)
from skillhouse.sandbox.crash_watch import watch_for_crashes

__all__ = ["Stash", "is_placeholder"]

_NUMBERS = itertools.count()


class Stash:
    """Makes placeholders and removes them.

    With a directory on the workspace's file system they are moved from there and back: a run
    needs two dozen, and ext4 removes a directory in 0.1 ms but moves one in 0.01 ms.
    """

    def __init__(self, base: Path | None = None) -> None:
        """Sweep the stashes of dead processes from `base`, and begin one there."""
        self._base = base
        self._directory = ""
        self._free: list[str] = []
        self._numbers = itertools.count()
        if base is not None:
            watch_for_crashes().mark(base)
            sweep_stashes(base)
            self._directory = f"{base}/{STASH_NAME}{owner_name()}-{next(_NUMBERS)}"
            os.mkdir(self._directory)

    def record(self, workspace: str, paths: Iterable[str]) -> None:
        """Note where placeholders will be, so that they are removed if we are killed."""
        if self._base is not None:
            watch_for_crashes().record(self._base, workspace, paths)

    def place(self, path: str) -> None:
        content = PLACEHOLDER_FILES.get(os.path.basename(path))
        if content is not None:
            _make_file(path, content)
            return
        if os.path.basename(path) in PLACEHOLDER_SOCKETS and _make_socket(path):
            return
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
            if not is_placeholder(path):
                return
            is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
            if is_directory and self._directory and self._move_back(path):
                return
            remove_placeholder(path)

    def _move_back(self, path: str) -> bool:
        target = self._unused()
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
        if is_placeholder(target):
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
    os.utime(path, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS), follow_symlinks=False)


def _make_socket(path: str) -> bool:
    """Make a socket without a listener; False on a file system that has none."""
    try:
        os.mknod(path, stat.S_IFSOCK | 0o444)
    except FileExistsError:
        raise
    except OSError:
        return False
    os.utime(path, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS), follow_symlinks=False)
    return True


def _make_file(path: str, content: bytes) -> None:
    """Make a file that is whole from its first moment on, as programs of the host may read it."""
    flags, is_named = os.O_WRONLY | os.O_CLOEXEC, False
    try:
        handle = os.open(os.path.dirname(path), flags | os.O_TMPFILE, 0o444)
    except OSError:
        # Not every file system has files without a name (open(2)).
        handle, is_named = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o444), True
    try:
        os.write(handle, content)
        os.utime(handle, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS))
        if not is_named:
            # Without a descriptor Python would make a link to the link in /proc.
            os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)
    finally:
        os.close(handle)
