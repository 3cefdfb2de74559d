"""The files that are mounted over secrets: of mode 000, and to git as its index knows the secret.

A device there makes git and copying fail, and an empty file that can be read is committed and
packed without a word. A file with the size and time that git's index has is unchanged to git with
`core.checkStat=minimal`, so that it leaves it alone, also where a person has changed the secret.
None has any content: its bytes are holes, also for who might read it in spite of its mode.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox.crash_watch import watch_for_crashes
from skillhouse.sandbox.git_index import (
    IndexEntry,
    WorkTree,
    index_entries,
    refresh_index,
    repository_around,
)
from skillhouse.sandbox.profile import SandboxError

UNTRACKED_BYTES = 64
"""Size of the mask of a file that git does not track: a secret's own length is part of it."""
KEPT_MAX = 2_000
"""Masks that are kept for the next run, those used last; a run has 200 at most (`PATHS_MAX`)."""
TRACKED_MAX = 64
"""Tracked files of a hidden directory that get masks; without one git says "Permission denied"."""
INDEXES_MAX = 32
"""Indexes of which entries are kept."""


class _Shape(NamedTuple):
    """What stat(2) says of a mask."""

    size: int = UNTRACKED_BYTES
    mtime_ns: int = 0
    mode: int = 0


class _Index(Struct, frozen=True, kw_only=True):
    stamp: tuple[int, ...]
    wanted: frozenset[str]
    entries: Mapping[str, IndexEntry]
    """Those of the wanted paths that the index has."""
    is_refreshed: bool
    """Whether it was tried to make it younger than its entries."""

    def young_ns(self) -> int:
        return max((entry.mtime_ns for entry in self.entries.values() if entry.is_young), default=0)

    def serves(self, stamp: tuple[int, ...], wanted: frozenset[str], *, may_refresh: bool) -> bool:
        is_ready = self.is_refreshed or not may_refresh or not self.young_ns()
        return self.stamp == stamp and wanted <= self.wanted and is_ready


class Masks:
    """Makes masks, and keeps them for the runs to come; thread-safe."""

    def __init__(self, base: Path | None = None) -> None:
        """Take the directory for a directory of masks, which no command reaches; None is that of
        temporary files."""
        self._base = base
        self._directory = ""
        self._made: OrderedDict[_Shape, str] = OrderedDict()
        self._indexes: OrderedDict[str, _Index] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def plain(self) -> str:
        """A mask of no particular size and time."""
        with self._lock:
            return self._mask(_Shape())

    @property
    def empty(self) -> str:
        """A file with nothing in it, which can be read."""
        with self._lock:
            return self._mask(_Shape(size=0, mode=0o444))

    async def over(
        self, files: Iterable[str], directories: Iterable[str], *, may_refresh: bool
    ) -> Mapping[str, str]:
        """Return the mask of each file, and of what git tracks in each directory.

        Args:
            files: Absolute paths without links.
            directories: Likewise. A directory of which git tracks more than `TRACKED_MAX` has none.
            may_refresh: Whether an index is refreshed where it is as young as its entries, so
                that git would read the masked file. Without it git shows the file as changed.
        """
        files, directories = tuple(files), tuple(directories)
        if not (files or directories):
            return {}
        places = _places((*files, *(f"{directory}/" for directory in directories)))
        stale = [
            (repository, wanted)
            for repository, wanted in _grouped(places).items()
            if not self._is_known(repository, wanted, may_refresh=may_refresh)
        ]
        if stale:
            await in_thread(lambda: self._read(stale, may_refresh=may_refresh))
        with self._lock:
            masks = {path: self._mask(self._shape(path, places[path])) for path in files}
            for directory in directories:
                masks |= self._tracked_in(places[f"{directory}/"])
            return masks

    def _tracked_in(self, place: tuple[WorkTree, str] | None) -> Mapping[str, str]:
        known = self._indexes.get(place[0].index) if place else None
        if known is None or place is None:
            return {}
        repository, above = place
        below = {name: e for name, e in known.entries.items() if name.startswith(above)}
        if len(below) > TRACKED_MAX:
            return {}
        return {f"{repository.top}/{n}": self._mask(_shape_of(e)) for n, e in below.items()}

    def _is_known(self, repository: WorkTree, wanted: frozenset[str], *, may_refresh: bool) -> bool:
        with self._lock:
            known = self._indexes.get(repository.index)
        stamp = _stamp(repository.index)
        return known is not None and known.serves(stamp, wanted, may_refresh=may_refresh)

    def _read(self, stale: Iterable[tuple[WorkTree, frozenset[str]]], *, may_refresh: bool) -> None:
        for repository, wanted in stale:
            known = _index_of(repository, wanted, is_refreshed=False)
            if may_refresh and (young_ns := known.young_ns()):
                refresh_index(repository, youngest_ns=young_ns)
                known = _index_of(repository, wanted, is_refreshed=True)
            with self._lock:
                self._indexes[repository.index] = known
                self._indexes.move_to_end(repository.index)
                if len(self._indexes) > INDEXES_MAX:
                    self._indexes.popitem(last=False)

    def _shape(self, path: str, place: tuple[WorkTree, str] | None) -> _Shape:
        known = self._indexes.get(place[0].index) if place else None
        entry = known.entries.get(place[1]) if known and place else None
        if entry is not None:
            return _shape_of(entry)
        try:
            return _Shape(mtime_ns=os.lstat(path).st_mtime_ns)
        except OSError:
            return _Shape()

    def _mask(self, shape: _Shape) -> str:
        """Return the mask of a shape; SandboxError "protect-failed" where none can be made."""
        path = self._made.get(shape)
        if path is not None:
            self._made.move_to_end(shape)
            return path
        try:
            return self._make(shape)
        except OSError as error:
            message = f"cannot make the file that hides a secret: {error}"
            raise SandboxError("protect-failed", message) from error

    def _make(self, shape: _Shape) -> str:
        if not self._directory:
            self._directory = own_directory(self, self._base)
        path = f"{self._directory}/{'-'.join(map(str, shape))}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        handle = os.open(path, flags, shape.mode)
        try:
            os.ftruncate(handle, shape.size)
            os.utime(handle, ns=(shape.mtime_ns, shape.mtime_ns))
        finally:
            os.close(handle)
        self._made[shape] = path
        if len(self._made) > KEPT_MAX:
            os.unlink(self._made.popitem(last=False)[1])
        return path


def _shape_of(entry: IndexEntry) -> _Shape:
    # Git compares this one bit of a mode, and nothing can be read by it.
    return _Shape(entry.size, entry.mtime_ns, 0o100 if entry.is_executable else 0)


def _places(paths: Iterable[str]) -> dict[str, tuple[WorkTree, str] | None]:
    """Return the repository of each path, and the path below its top."""
    tops: dict[str, WorkTree | None] = {}
    return {path: _place(path, tops) for path in paths}


def _place(path: str, tops: dict[str, WorkTree | None]) -> tuple[WorkTree, str] | None:
    repository = repository_around(os.path.dirname(path), tops)
    return None if repository is None else (repository, path[len(repository.top) :].lstrip("/"))


def by_repository(paths: Iterable[str]) -> Mapping[WorkTree, frozenset[str]]:
    """Return the repositories of some absolute paths, and those relative to the top of each."""
    return _grouped(_places(paths))


def _grouped(
    places: Mapping[str, tuple[WorkTree, str] | None],
) -> Mapping[WorkTree, frozenset[str]]:
    wanted: dict[WorkTree, set[str]] = {}
    for place in places.values():
        if place is not None:
            wanted.setdefault(place[0], set()).add(place[1])
    return {repository: frozenset(names) for repository, names in wanted.items()}


def _index_of(repository: WorkTree, wanted: frozenset[str], *, is_refreshed: bool) -> _Index:
    return _Index(
        # Before it is read: one that is replaced meanwhile is read again by the next run.
        stamp=_stamp(repository.index),
        wanted=wanted,
        entries=index_entries(repository, wanted),
        is_refreshed=is_refreshed,
    )


def _stamp(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)
    except OSError:
        return ()
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def own_directory(owner: object, base: Path | None) -> str:
    """Return a new directory that goes with its owner, and with this process."""
    watch = watch_for_crashes()
    watch.note(f"temporary:{base or tempfile.gettempdir()}")
    path = tempfile.mkdtemp(prefix=f"{COMMON_NAME}{owner_name()}-", dir=base)
    weakref.finalize(owner, _remove, path, os.getpid())
    return path


def _remove(path: str, pid: int) -> None:
    # A fork ends as well, and the directory is not its own.
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)
