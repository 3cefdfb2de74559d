"""The names in the directories of a workspace, cached from run to run.

A directory is read again when its times or its inode have changed, so that a run pays for changes
only. The walk is bounded, and counts what it left out.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

DIRECTORIES_MAX = 20_000
"""Directories that are read before a run, nearest first."""
ENTRIES_MAX = 200_000
"""Names in them: 0.2 s the first time, and 1 µs a directory afterwards."""
SETTLED_NS = 20_000_000
"""How long ago a directory must have changed: within one tick of the clock a second change would
have the same times."""


class SurveyEntry(NamedTuple):
    """One name in a directory; a tuple, as there are many."""

    name: str
    is_directory: bool
    inode: int
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class SurveyHit:
    """One name that counts."""

    name: str
    kinds: tuple[str, ...]
    is_closed: bool
    """Whether the directory of this name is not entered."""


Classify = Callable[[str, SurveyEntry], SurveyHit | None]
"""Takes a directory, relative to the workspace, and an entry; None if the entry does not count."""


@dataclass(slots=True)
class Directory:
    """One directory as it was read."""

    stamp: tuple[int, ...]
    entries: tuple[SurveyEntry, ...]
    changed_ns: int
    """Its change time from before it was read, which no program can set; 0 when it is gone."""
    hits: tuple[SurveyHit, ...] = ()
    below: tuple[str, ...] = ()
    key: Hashable = None
    kept: dict[Hashable, Any] = field(default_factory=dict)
    """Values derived from its place and `entries` alone."""


@dataclass(slots=True)
class Survey:
    """The cache of one workspace; thread-safe."""

    _directories: dict[str, Directory] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    left: int = 0
    """Directories that the last walk left out, at least."""

    def walk(
        self, root: str, classify: Classify, key: Hashable
    ) -> list[tuple[str, tuple[SurveyHit, ...]]]:
        """Return each directory with the names in it that count, nearest first.

        Links are not followed. Directories beyond the bounds are counted in `left`.

        Args:
            root: Real path of the workspace.
            classify: Called again only for changed directories.
            key: Anything else that the results of `classify` depend on.
        """
        with self._lock:
            found: list[tuple[str, tuple[SurveyHit, ...]]] = []
            kept: dict[str, Directory] = {}
            waiting = deque([""])
            entries = 0
            while waiting and len(kept) < DIRECTORIES_MAX and entries < ENTRIES_MAX:
                place = waiting.popleft()
                known = kept[place] = self._known(root, place)
                if known.key != key:
                    _classify(known, place, classify, key)
                entries += len(known.entries)
                if known.hits:
                    found.append((place, known.hits))
                waiting += known.below
            self._directories = kept
            self.left = len(waiting)
            return found

    def names_of(self, inodes: frozenset[int]) -> Iterator[str]:
        """Yield the paths, as of the last walk, of files with one of these inodes."""
        with self._lock:
            for place, known in self._directories.items():
                for entry in known.entries:
                    if entry.inode in inodes and not entry.is_directory:
                        yield f"{place}/{entry.name}" if place else entry.name

    @property
    def directories(self) -> Mapping[str, Directory]:
        """The directories of the last walk, as it found them."""
        return self._directories

    def _known(self, root: str, place: str) -> Directory:
        return read_directory(f"{root}/{place}" if place else root, self._directories.get(place))


@dataclass(slots=True)
class CoveredPaths:
    """The covered paths of a workspace in one run (`covered_paths`)."""

    paths: list[tuple[str, str, bool]] = field(default_factory=list)
    """A directory of the workspace, the protected path below it, and whether it is hidden."""
    opened: set[str] = field(default_factory=set)
    """Secrets that can be read in this run, relative to the workspace."""
    pinned: list[str] = field(default_factory=list)
    """Directories that cannot be renamed, as that would change the paths of their content."""
    left: int = 0
    """Paths and directories that are not covered, at least."""
    directories: Mapping[str, Directory] = field(default_factory=dict)
    """Those that were read for this, relative to the workspace."""

    @property
    def is_all(self) -> bool:
        return not self.left


def _classify(known: Directory, place: str, classify: Classify, key: Hashable) -> None:
    hits = tuple(hit for entry in known.entries if (hit := classify(place, entry)) is not None)
    closed = {hit.name for hit in hits if hit.is_closed}
    prefix = f"{place}/" if place else ""
    known.hits = hits
    known.below = tuple(
        prefix + entry.name
        for entry in known.entries
        if entry.is_directory and entry.name not in closed
    )
    known.key = key


def read_directory(path: str, known: Directory | None = None) -> Directory:
    """Return a directory as it is now, or `known` if it has not changed since that was read."""
    stamp = _stamp(path)
    if known is not None and known.stamp == stamp:
        return known
    entries = read_entries(path)
    # INVARIANT: a directory that could still change within the same tick is not cached.
    is_settled = stamp and max(stamp[2:]) < time.time_ns() - SETTLED_NS
    now = Directory(stamp if is_settled else (0,), entries, stamp[3] if stamp else 0)
    if known is not None and known.entries == entries:
        # A run that puts its placeholders there and away again leaves the same names.
        return replace(now, hits=known.hits, below=known.below, key=known.key, kept=known.kept)
    return now


def _stamp(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path, follow_symlinks=False)
    except OSError:
        return ()
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns


def read_entries(path: str) -> tuple[SurveyEntry, ...]:
    """Return the names in a directory, sorted; none if it is closed or gone."""
    try:
        with os.scandir(path) as found:
            entries = [
                SurveyEntry(e.name, e.is_dir(follow_symlinks=False), e.inode(), e.is_symlink())
                for e in found
            ]
    except OSError:
        return ()
    return tuple(sorted(entries))
