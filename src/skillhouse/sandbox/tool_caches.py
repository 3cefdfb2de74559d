"""Writable directories in which tools keep downloads: of each workspace its own, never a person's.

Each tool gets them by its own variable. They are bounded, and what could act later in them, such as
settings that name programs, is removed before a run and closed to it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from skillhouse.floor import Looks, directory_problem, make_private
from skillhouse.floor.ownership import is_settled
from skillhouse.sandbox.toolchains import CacheRow, tables
from skillhouse.sandbox.toolset import Caches

BYTES_MAX = 4 << 30
"""Bytes of the caches of one workspace; beyond, they are emptied."""
FILES_MAX = 200_000
"""Files of them; likewise."""
WORKSPACES_MAX = 16
"""Workspaces that have caches; of more those that were not used for longest lose theirs."""
MEASURED_SECONDS = 600
"""Time after which they are measured again."""
_MEASURED = ".measured"
_KIND = ("mode", "device", "inode")
FoundCaches = tuple[Caches | None, Mapping[str, str], str]


class CachesSeen(Struct):
    """What `caches_for` looked at: while it is as it was, so is the result."""

    mark: str = ""
    looks: Looks = field(default_factory=Looks)
    stamps: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Directories from before they were looked at: of those that are swept with their time."""
    named: dict[str, bool] = field(default_factory=dict)
    """Whether there are the files of the workspace by which tools are known."""

    def note(self, path: Path, *, is_swept: bool) -> None:
        stamp = _stamp(str(path), is_swept=is_swept)
        self.stamps[str(path)] = stamp if not is_swept or is_settled(stamp[-1]) else ()

    def hold(self, now: float) -> bool:
        try:
            return (
                0 <= now - os.lstat(self.mark).st_mtime < MEASURED_SECONDS
                and all(
                    _stamp(path, is_swept=len(stamp) > len(_KIND)) == stamp
                    for path, stamp in self.stamps.items()
                )
                and all(os.path.exists(path) is there for path, there in self.named.items())
                and self.looks.hold()
            )
        except OSError:
            return False


def caches_for(
    workspace: Path,
    base: Path,
    which: Callable[[str], str | None],
    at: Callable[[Sequence[str]], str] = lambda texts: "",
    *,
    now: float | None = None,
    seen: CachesSeen | None = None,
) -> FoundCaches:
    """Return the caches of a workspace, the variables that name them, and why there are none.

    Args:
        workspace: Its real path.
        base: Directory of all caches; a link is followed.
        which: Finds a program as a run would.
        at: Returns where a run sees one of those of which a program remembers the path.
        now: Seconds since the epoch.
        seen: Gets what was looked at.
    """
    looked = seen or CachesSeen()
    base = Path(os.path.realpath(base))
    directory = base / hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    try:
        make_private(directory)
        if problem := directory_problem(directory, secret=True, looks=looked.looks):
            return None, {}, f"tools have no caches: {problem}"
        _bound(base, directory, time.time() if now is None else now)
        closed: list[Path] = []
        opened: list[Path] = []
        shown: dict[str, Path] = {}
        variables: dict[str, str] = {}
        looked.mark = str(directory / _MEASURED)
        for row in _used(workspace, which, looked.named):
            place = directory / row.name
            place.mkdir(mode=0o700, exist_ok=True)
            looked.note(place, is_swept=bool(row.keep))
            _sweep(row, place)
            if row.closed:
                closed.append(place)
                opened += [place / name.rstrip("/") for name in row.keep]
            inside = str(place)
            if row.at and (path := at(row.at)):
                shown[path], inside = place, path
            for name, below in row.variables.items():
                variables[name] = (
                    below.format(inside) if "{}" in below else f"{inside}/{below}".rstrip("/")
                )
                if below and "{}" not in below:
                    (place / below).mkdir(exist_ok=True)
                    looked.note(place / below, is_swept=False)
        return (
            Caches(directory=directory, closed=tuple(closed), opened=tuple(opened), shown=shown),
            variables,
            "",
        )
    except OSError as error:
        return None, {}, f"tools have no caches: {(error.strerror or str(error)).lower()}"


def _stamp(path: str, *, is_swept: bool) -> tuple[int, ...]:
    info = os.lstat(path)
    kind = (info.st_mode, info.st_dev, info.st_ino)
    return (*kind, info.st_mtime_ns, info.st_ctime_ns) if is_swept else kind


def _used(
    workspace: Path, which: Callable[[str], str | None], named: dict[str, bool]
) -> Iterator[CacheRow]:
    for row in tables()[1]:
        paths = [f"{workspace}/{name}" for name in row.files]
        found = {path: os.path.exists(path) for path in paths}
        named.update(found)
        is_named = any(found.values())
        if not row.programs or is_named or any(map(which, row.programs)):
            yield row


def _sweep(row: CacheRow, place: Path) -> None:
    """Remove what is no cache, and make the directories that are kept."""
    if not row.keep:
        return
    kept = frozenset(name.rstrip("/") for name in row.keep)
    for entry in os.scandir(place):
        if entry.name not in kept or not entry.is_dir(follow_symlinks=False):
            _remove(Path(entry.path))
    for name in kept:
        (place / name).mkdir(exist_ok=True)


def _bound(base: Path, directory: Path, now: float) -> None:
    """Empty what has grown too large, and remove what was not used for longest."""
    mark = directory / _MEASURED
    try:
        info = mark.lstat()
        if 0 <= now - info.st_mtime < MEASURED_SECONDS:
            return
    except FileNotFoundError:
        pass
    if _is_over(directory):
        for entry in os.listdir(directory):
            _remove(directory / entry)
    _remove(mark)
    mark.touch(mode=0o600)
    os.utime(mark, (now, now))
    others = sorted(
        (path for path in base.iterdir() if path != directory), key=_last_used, reverse=True
    )
    for path in others[WORKSPACES_MAX - 1 :]:
        _remove(path)


def _last_used(path: Path) -> float:
    try:
        return (path / _MEASURED).lstat().st_mtime
    except OSError:
        return 0.0


def _is_over(directory: Path) -> bool:
    size = 0
    for count, info in enumerate(_files(str(directory)), 1):
        size += info.st_blocks * 512
        if size > BYTES_MAX or count > FILES_MAX:
            return True
    return False


def _files(directory: str) -> Iterator[os.stat_result]:
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, PermissionError):
            # A run may be removing it, or has taken its owner's rights away: then it is emptied.
            continue


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _open_up(str(path))
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _open_up(directory: str) -> None:
    """Give back the rights to directories: Go's module cache has none to write (go.dev/ref/mod)."""
    os.chmod(directory, 0o700)
    for place, names, _ in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
