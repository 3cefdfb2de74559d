"""Counts and removes what confined code left in a directory of its own.

That tree may be deeper than a path can be long or than Python can recurse, and its modes may deny
access. Also loaded by path inside a cell, so with the standard library only.
"""

from __future__ import annotations

import os

FILES_MAX = 2_000
"""Files and directories that a cell's calls may have at one time."""
DEPTH_MAX = 64
"""Deepest nesting that is counted; a deeper one counts as too many files."""
_OPEN = 0o700


def files_of(place: str) -> tuple[int, int]:
    """Return the number of files below a directory, and their bytes; counting ends at FILES_MAX."""
    totals = [0, 0]
    try:
        handle = _opened(place)
    except OSError:
        return (0, 0)
    try:
        _count(handle, DEPTH_MAX, totals)
    finally:
        os.close(handle)
    return (totals[0], totals[1])


def _count(handle: int, depth: int, totals: list[int]) -> None:
    if not depth:
        totals[0] = FILES_MAX + 1
        return
    with os.scandir(handle) as entries:
        for entry in entries:
            totals[0] += 1
            if totals[0] > FILES_MAX:
                return
            try:
                totals[1] += entry.stat(follow_symlinks=False).st_blocks * 512
                if not entry.is_dir(follow_symlinks=False):
                    continue
                below = _opened(entry.name, handle)
            except OSError:
                continue  # It was removed meanwhile.
            try:
                _count(below, depth - 1, totals)
            finally:
                os.close(below)


def remove(place: str) -> None:
    """Remove a directory with its content, as far as possible.

    Directories are moved up to the first level one by one, so that depth does not matter.
    """
    try:
        top = _opened(place)
    except OSError:
        return
    try:
        waiting = os.listdir(top)
        while waiting:
            waiting += _emptied(top, waiting.pop())
    finally:
        os.close(top)
    try:
        os.rmdir(place)
    except OSError:
        return


def _emptied(top: int, name: str) -> list[str]:
    """Remove `name` in `top`, and return the new names of the directories in it."""
    moved: list[str] = []
    try:
        if _is_unlinked(name, top):
            return moved
        handle = _opened(name, top)
    except OSError:
        return moved
    try:
        for below in os.listdir(handle):
            try:
                if not _is_unlinked(below, handle):
                    # One that may not be written to cannot be moved.
                    os.close(_opened(below, handle))
                    fresh = f"moved-{os.urandom(8).hex()}"
                    os.rename(below, fresh, src_dir_fd=handle, dst_dir_fd=top)
                    moved.append(fresh)
            except OSError:
                continue
        os.rmdir(name, dir_fd=top)
    except OSError:
        return moved
    finally:
        os.close(handle)
    return moved


def _is_unlinked(name: str, parent: int) -> bool:
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        return False
    return True


def _opened(name: str, parent: int | None = None) -> int:
    """Return a descriptor of a directory, made readable and writable if need be.

    Raises:
        OSError: it is not a directory of ours.
    """
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(place).st_mode & _OPEN != _OPEN:
            # Not by its name, which may belong to another file by now.
            os.chmod(f"/proc/self/fd/{place}", _OPEN)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)
