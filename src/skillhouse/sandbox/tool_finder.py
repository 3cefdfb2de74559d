"""Finds the person's tools for runs: their places, their caches and the settings of git.

Each workspace has caches of its own, in which tools keep downloads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from skillhouse.floor import PathStateCache, directory_problem, is_below, make_private
from skillhouse.floor.ownership import is_settled
from skillhouse.floor.structs import replace
from skillhouse.sandbox.person_git import IDENTITY, PersonGit
from skillhouse.sandbox.profile import Caches, Toolset
from skillhouse.sandbox.tool_table import CacheRow, tables
from skillhouse.sandbox.toolchains import ToolPlaces

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
    states: PathStateCache = field(default_factory=PathStateCache)
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
                and self.states.hold()
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
        if problem := directory_problem(directory, secret=True, states=looked.states):
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


KEPT_MAX = 64
"""Workspaces, with the programs that commands named there, whose places are remembered."""
CHECKED = ("git", "node", "python", "python3", "cargo", "go", "java", "uv", "gh")
"""Programs that `doctor` compares."""


class ToolSettings(Struct, frozen=True, kw_only=True):
    """What the operator says of tools."""

    path: tuple[str, ...] = ()
    """Directories of programs before those of PATH; relative ones are of the workspace."""
    mounts: tuple[str, ...] = ()
    """Further places that tools read."""


class ToolFinder:
    """Finds the tools of one person."""

    def __init__(
        self,
        environment: Mapping[str, str],
        home: Path,
        caches: Path,
        settings: ToolSettings = ToolSettings(),  # noqa: B008 - a frozen value.
    ) -> None:
        """Make one; `environment` is the person's, and `caches` the directory of all caches."""
        self._environment = environment
        self._home = home
        self._caches = caches
        self._settings = settings
        self._git = PersonGit(environment, home)
        self._kept: dict[tuple[str, tuple[str, ...]], _KeptPlaces] = {}
        self._lock = threading.Lock()

    def find(self, workspace: Path, programs: Sequence[str] = ()) -> Toolset:
        """Return the tools of runs in a workspace, as they are now.

        Args:
            workspace: Its real path.
            programs: Absolute paths of programs in it that will run.
        """
        kept = self._kept_for(workspace, programs)
        tools = self._with_git(kept.tools, workspace)
        caches, variables, problem = kept.caches(workspace, self._caches)
        return replace(
            tools,
            environment={**tools.environment, **variables},
            caches=caches,
            notes=(*tools.notes, *filter(None, (problem,))),
        )

    def places(self, workspace: Path, programs: Sequence[str] = ()) -> Toolset:
        """Return the tools without their caches: nothing is made for it."""
        return self._with_git(self._kept_for(workspace, programs).tools, workspace)

    def _with_git(self, tools: Toolset, workspace: Path) -> Toolset:
        # INVARIANT: it is started here, outside the sandbox, and so is none of the workspace.
        root = str(workspace)
        places = [path for path in tools.outside_path.split(":") if not is_below(path, root)]
        program = shutil.which("git", path=":".join(places))
        if program and is_below(os.path.realpath(program), root):
            program = None
        return replace(tools, git=self._git.of(workspace, program))

    def _kept_for(self, workspace: Path, programs: Sequence[str]) -> _KeptPlaces:
        key = (str(workspace), tuple(programs))
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.places.hold():
            return kept
        places = ToolPlaces(self._environment, self._home, workspace)
        found = places.find(
            own=self._settings.path, mounts=self._settings.mounts, programs=programs
        )
        path = tuple(found.path)
        identity = {n: self._environment[n] for n in IDENTITY if self._environment.get(n)}
        tools = Toolset(
            path=path,
            mounts=tuple(map(Path, sorted(found.mounts))),
            links=found.links,
            pinned=places.pinned(path),
            environment={**found.variables, **identity},
            notes=tuple(dict.fromkeys(found.notes)),
        )
        kept = _KeptPlaces(places, tools)
        with self._lock:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[key] = kept
        return kept


class _KeptPlaces:
    """The places of one workspace, which hold until something of them changes."""

    def __init__(self, places: ToolPlaces, tools: Toolset) -> None:
        self.places = places
        self.tools = tools
        self._found: dict[str, str | None] = {}
        self._caches: tuple[CachesSeen, FoundCaches] | None = None

    def caches(self, workspace: Path, base: Path) -> FoundCaches:
        """Return what `caches_for` does, looked at again where anything of it changed."""
        kept = self._caches
        if kept is None or not kept[0].hold(time.time()):
            seen = CachesSeen()
            found = caches_for(workspace, base, self.which, self.cache_place, seen=seen)
            kept = seen, found
            self._caches = kept if found[0] is not None else None
        return kept[1]

    def cache_place(self, texts: Sequence[str]) -> str:
        return self.places.cache_place(texts, self.tools)

    def which(self, name: str) -> str | None:
        """Return where a run found a program when it was first asked for."""
        if name not in self._found:
            self._found[name] = self.tools.which(name)
        return self._found[name]


class ProgramPlaces(Struct, frozen=True, kw_only=True):
    """Where a program is found."""

    name: str
    inside: str
    """In the sandbox; empty where it is not found there."""
    shell: str
    """In the person's shell; likewise."""

    @property
    def is_same(self) -> bool:
        return os.path.realpath(self.inside) == os.path.realpath(self.shell)


def compared_programs(tools: Toolset, path: str) -> tuple[ProgramPlaces, ...]:
    """Return where the programs are that are found anywhere; `path` is the person's PATH."""
    found = (
        ProgramPlaces(
            name=name, inside=tools.which(name) or "", shell=shutil.which(name, path=path) or ""
        )
        for name in CHECKED
    )
    return tuple(one for one in found if one.inside or one.shell)
