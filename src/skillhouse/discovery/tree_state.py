"""The files and directories below some roots at one moment, for seeing what changed without events.

Events get lost: when the user has no watch left for a new directory, when the queue of the system
overflows, on network file systems, and before the watches are set. Two looks at the files never
lose a change.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct, field

ENTRIES_MAX = 500_000
"""Files and directories of one survey; what is beyond is not seen to change."""
LINKED_MAX = 50_000
"""Of them below links. A skill may link to all of a disk, which took half a minute each time."""

Mark = tuple[int, ...]
"""What changes when a file is written or replaced; empty for a directory, whose names are entries
of their own."""


class TreeState(Struct):
    """The entries below real paths, by path."""

    entries: dict[str, Mark] = field(default_factory=dict)
    directories: int = 0
    """The directories that were read, which is how many watches they need."""
    seconds: float = 0.0
    """Processor time of the survey."""

    def changed(self, before: TreeState) -> set[str]:
        """Return the paths that differ from an earlier state: new, gone or written to."""
        then, now = before.entries, self.entries
        found = {path for path, mark in now.items() if then.get(path) != mark}
        found.update(path for path in then if path not in now)
        return found

    def note(self, paths: Iterable[str]) -> None:
        """Take reported paths over as they are now, so that no survey reports them again."""
        for path in paths:
            try:
                info = os.stat(path)
            except OSError:
                self.entries.pop(path, None)
                continue
            if not os.path.isdir(path):
                self.entries[path] = _mark(info)
            elif path not in self.entries:
                # What is in it is for the next survey to find: its own events may be lost.
                self.entries[path] = ()


def survey(
    roots: Iterable[str],
    *,
    is_over: Callable[[], bool] = lambda: False,
    most: int = ENTRIES_MAX,
) -> TreeState:
    """Return what is below the roots; links are followed, each directory is read once.

    A link to a directory above a root is not followed, as no skill is found there either. Of more
    than `LINKED_MAX` entries below links, those nearest to the roots are in the answer. `is_over`
    ends it early, for a watch that is stopped.
    """
    began = time.thread_time()
    found = TreeState()
    places = list(roots)
    entries, seen, linked = found.entries, set[tuple[int, int]](), 0
    above = _above(places)
    pending = deque((place, False) for place in places)
    while pending and len(entries) < most and not is_over():
        place, is_linked = pending.popleft()
        if is_linked and linked >= LINKED_MAX:
            continue
        prefix = place.rstrip("/") + "/"
        try:
            info = os.stat(place)
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(place) as names:
                for entry in names:
                    path = prefix + entry.name
                    mark, is_directory = _look(entry)
                    entries[path] = mark
                    linked += is_linked
                    if is_directory and not (entry.is_symlink() and _identity(path) in above):
                        pending.append((path, is_linked or entry.is_symlink()))
        except OSError:
            # Gone or not readable: what was seen of it before now differs.
            continue
        found.directories += 1
    found.seconds = time.thread_time() - began
    return found


def _above(places: Iterable[str]) -> set[tuple[int, int] | None]:
    """Return the identity of each directory above a root."""
    above: set[tuple[int, int] | None] = set()
    for place in places:
        path = os.path.realpath(place)
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            above.add(_identity(path))
    return above


def _identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of what is at a path, links followed; None where nothing is."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_dev, info.st_ino)


def _look(entry: os.DirEntry[str]) -> tuple[Mark, bool]:
    try:
        if entry.is_dir():
            return (), True
        return _mark(entry.stat()), False
    except OSError:
        # A link to nothing, or gone meanwhile.
        return (0,), False


def _mark(info: os.stat_result) -> Mark:
    return (info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size)
