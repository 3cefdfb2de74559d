"""Protected paths of a workspace: what is mounted over each, and how they are left afterwards.

A path that exists is mounted over itself read-only, or hidden if it is a secret. A path that does
not exist needs something to mount over, or a run could create it (CVE-2026-25725 of another
sandbox): an empty directory is put there during the run and removed afterwards. Directories,
since git passes over empty ones; what is mounted on them is an empty tmpfs, since a bind takes
bubblewrap four times as long. Where programs fail on a directory it is a socket, which git passes
over as well, and on it an empty file is mounted.

Runs in one workspace, of this and other processes, hold a shared `flock` on its directory: only
the last one out removes the placeholders. To remove one earlier would also take away the mount
over it in the other runs (rename(2) and rmdir(2) detach mounts of other namespaces, Linux 3.18).
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import logging
import os
import re
import stat
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack

import anyio
from msgspec import Struct, field

from skillhouse.floor import is_secret
from skillhouse.floor.crash_cleanup import PLACEHOLDER_FILES, PLACEHOLDER_SOCKETS
from skillhouse.floor.ownership import is_settled
from skillhouse.floor.regex import regex
from skillhouse.sandbox.covers import REPOSITORY, covered_paths
from skillhouse.sandbox.mountpoints import CONFIG_MAX, KeptPlaceholders, is_placeholder, remove
from skillhouse.sandbox.persistence import PersistentFileScan, read_pointer
from skillhouse.sandbox.profile import CoveredPaths, SandboxError, fits, names_like

LOCK_SECONDS = 10.0
"""Longest wait for another process that is tidying up, which takes a millisecond."""
UNDONE = (".git/commondir", ".git/config.worktree")
"""Paths by which git finds further configuration: removed after the run if they did not exist
before and had no placeholder."""
_WORKTREE = regex(rb"(?i)(?<![\w-])worktree\s*(?:=|$)", re.MULTILINE)
"""The setting `core.worktree`, which git passes over in a repository with a `commondir`."""
_WORKTREE_CONFIG = regex(rb"(?i)worktreeconfig")
"""The extension without which git reads no `config.worktree` (git-worktree(1))."""
BARE = ("HEAD", "objects", "refs")
"""Marks of a bare repository, whose `config` git would obey in the workspace (gitrepository-layout
(5)). A HEAD that came with the others is removed after the run; a placeholder named HEAD would
make the word mean a file to git."""

logger = logging.getLogger(__name__)


class MountCover(enum.Enum):
    PIN = enum.auto()
    """Itself, writable: a directory that is a mount cannot be renamed away from under others."""
    READ_ONLY = enum.auto()
    """Itself."""
    CLOSED_FILE = enum.auto()
    """A file that cannot be opened (`masks`)."""
    EMPTY_DIRECTORY = enum.auto()
    """A directory with nothing in it, which is gone with the run."""
    EMPTY_FILE = enum.auto()
    """A file with nothing in it, which can be read."""
    CLOSED_DIRECTORY = enum.auto()
    """One that cannot be entered: to git what is in it is not deleted, it cannot be looked at."""


class ProtectedMounts(Struct):
    """The protected paths of one workspace at one moment, made by `protected_mounts`; as texts."""

    workspace: str
    covers: dict[str, MountCover] = field(default_factory=dict)
    """A pinned parent comes before its content."""
    missing: list[str] = field(default_factory=list)
    placeholders: list[str] = field(default_factory=list)
    """Those of the missing paths that the run sees."""
    links: dict[str, str] = field(default_factory=dict)
    undone: list[str] = field(default_factory=list)
    names: frozenset[str] = frozenset()
    """What was at the top."""
    bare: bool = False
    """Whether a bare repository at the top would be the run's doing."""


@contextlib.asynccontextmanager
async def protected_mounts(
    workspace: str,
    protected: Iterable[str],
    *,
    stash: KeptPlaceholders | None,
    hidden: Iterable[str] = (),
    scan: PersistentFileScan | None = None,
    below: CoveredPaths | None = None,
    read_only: bool = False,
    is_lasting: bool = False,
) -> AsyncIterator[ProtectedMounts]:
    """Yield what to mount over the protected paths, with placeholders where there is nothing.

    Args:
        workspace: Real path of the directory.
        protected: Paths relative to it; a name with `*` means those that exist.
        stash: Makes the placeholders; None where nothing is mounted, so that none are needed.
        hidden: More of them, that cannot be read either.
        scan: What acts later there, as it was before the run; checked after it.
        below: What `covered_paths` found further down; without it, it is asked.
        read_only: The run can make nothing at the top, so that it needs no placeholders.
        is_lasting: A read-only run that holds no lock, and may outlast those of other runs.

    Raises:
        SandboxError: "protect-failed", a path cannot be looked at or held.
    """
    async with held(workspace, is_locked=not is_lasting) as handle, AsyncExitStack() as holding:
        mounts = ProtectedMounts(workspace)
        locked = {workspace: handle}
        # Before anything is looked at: what changes later changes these times.
        before = _times((workspace, f"{workspace}/.git")) if read_only else {}
        try:
            try:
                protected = tuple(protected)
                below = below or covered_paths(workspace, protected)
                _survey(mounts, protected, frozenset(hidden), below.opened)
                _survey_below(mounts, below)
                if scan is not None:
                    _take_in(mounts, scan, frozenset(hidden))
                _drop_covered(mounts)
                if read_only:
                    _leave_missing(mounts)
                elif stash is not None:
                    for directory, paths in _by_lock(mounts).items():
                        if directory not in locked:
                            locked[directory] = await holding.enter_async_context(held(directory))
                        stash.record(directory, paths)
                        place_missing(paths, stash)
                        _cover_sockets(mounts, paths)
                    mounts.placeholders = mounts.missing
                    if scan is not None:
                        scan.note_placeholders(mounts.missing)
            except OSError as error:
                message = f"cannot protect a path of the workspace: {error}"
                raise SandboxError("protect-failed", message) from error
            yield mounts
        finally:
            restore(mounts)
            try:
                if scan is not None:
                    scan.check()
            finally:
                if stash is not None and not is_lasting and not _is_untouched(mounts, before):
                    for directory, paths in _by_lock(mounts).items():
                        if directory in locked:
                            tidy(locked[directory], paths, stash)


def _times(directories: Iterable[str]) -> dict[str, int]:
    """Return when names were last made or removed in some directories, without those in which it
    was just now: there it could be again without another time."""
    found = {}
    for path in directories:
        with contextlib.suppress(OSError):
            time_ns = os.stat(path).st_mtime_ns
            if is_settled(time_ns):
                found[path] = time_ns
    return found


def _is_untouched(mounts: ProtectedMounts, before: Mapping[str, int]) -> bool:
    """Whether a run that made no placeholders has none to remove: there were none before, and no
    other run, which ended meanwhile, can have left some to it."""
    if mounts.placeholders or not before:
        return False
    directories = {path.rpartition("/")[0] for path in mounts.missing}
    return before.keys() >= directories and before == _times(before)


@contextlib.asynccontextmanager
async def held(directory: str, *, is_locked: bool = True) -> AsyncIterator[int]:
    """Hold the shared lock of a directory in which placeholders are made."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if is_locked:
            await _share(handle, directory)
        yield handle
    finally:
        os.close(handle)


def _by_lock(mounts: ProtectedMounts) -> dict[str, list[str]]:
    """Return the missing paths by the directory whose lock their placeholders are under.

    That is the workspace, and of those in a git directory the latter: runs in other work trees make
    the same ones there.
    """
    found: dict[str, list[str]] = {mounts.workspace: []}
    for path in mounts.missing:
        directory = os.path.dirname(path)
        is_git = directory != mounts.workspace and os.path.lexists(f"{directory}/HEAD")
        found.setdefault(directory if is_git else mounts.workspace, []).append(path)
    return found


def look_at(mounts: ProtectedMounts, name: str) -> None:
    """Note the cover of a name that is protected at the top."""
    _look(mounts, (name,), secret=False)


async def _share(handle: int, workspace: str) -> None:
    try:
        with anyio.fail_after(LOCK_SECONDS):
            # No event reports that another process released it.
            while not _locked(handle, fcntl.LOCK_SH):  # noqa: ASYNC110
                await anyio.sleep(0.002)
    except TimeoutError:
        message = f"another process holds a lock on `{workspace}` for {LOCK_SECONDS:.0f} s"
        raise SandboxError("protect-failed", message) from None


def _locked(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _survey(
    mounts: ProtectedMounts,
    protected: Iterable[str],
    hidden: frozenset[str],
    opened: Collection[str],
) -> None:
    names = mounts.names = frozenset(os.listdir(mounts.workspace))
    patterns = (*protected, *sorted(hidden))
    any_of = names_like(tuple(pattern for pattern in patterns if "*" in pattern)).fullmatch
    like = sorted(name for name in names if any_of(name.casefold()))
    for pattern in patterns:
        if "*" in pattern:
            for name in (name for name in like if fits(pattern, name)):
                _look(mounts, (name,), secret=is_secret(name) and name not in opened)
            continue
        parts = tuple(pattern.split("/"))
        if parts[0] in names:
            secret = pattern in hidden or (is_secret(pattern) and pattern not in opened)
            _look(mounts, parts, secret=secret)
        else:
            _miss(mounts, f"{mounts.workspace}/{parts[0]}")
    for relative in UNDONE:
        path = f"{mounts.workspace}/{relative}"
        is_open = os.path.dirname(path) in mounts.covers and path not in mounts.covers
        if is_open and not os.path.lexists(path):
            mounts.undone.append(path)
    mounts.bare = not names >= set(BARE)


def _survey_below(mounts: ProtectedMounts, below: CoveredPaths) -> None:
    for place in below.pinned:
        mounts.covers.setdefault(f"{mounts.workspace}/{place}", MountCover.PIN)
    for place, name, secret in below.paths:
        _look(mounts, tuple(name.split("/")), secret=secret, place=place)
        if name.endswith("/commondir"):
            other = (*name.split("/")[:-1], "config.worktree")
            _look(mounts, other, secret=secret, place=place)
    if not below.is_all:
        # Whoever starts a run knows it before, and asks a person (tools/command.py).
        logger.info("%d paths of `%s` are not covered", below.left, mounts.workspace)


def _drop_covered(mounts: ProtectedMounts) -> None:
    """Leave out paths in a hidden directory, and those in a read-only one."""
    covers, top = mounts.covers, len(mounts.workspace)
    for path, cover in tuple(covers.items()):
        end = len(path)
        while (end := path.rfind("/", 0, end)) >= top:
            around = covers.get(path[:end])
            is_frozen = around is MountCover.READ_ONLY and cover in (
                MountCover.READ_ONLY,
                MountCover.PIN,
            )
            if around is MountCover.CLOSED_DIRECTORY or is_frozen:
                del covers[path]
                break


def _take_in(mounts: ProtectedMounts, scan: PersistentFileScan, hidden: frozenset[str]) -> None:
    covers = dict.fromkeys(scan.covered, MountCover.READ_ONLY) | mounts.covers
    start = len(f"{mounts.workspace}/")
    mounts.covers = {
        path: cover
        for path, cover in sorted(covers.items())
        if path[start:] in hidden or not scan.opened.frees(path[start:])
    }


def _miss(mounts: ProtectedMounts, path: str) -> None:
    if os.path.basename(path) in PLACEHOLDER_FILES:
        _miss_file(mounts, path)
    elif path not in mounts.covers:
        mounts.missing.append(path)
        mounts.covers[path] = MountCover.EMPTY_DIRECTORY


def _miss_file(mounts: ProtectedMounts, path: str) -> None:
    """Note a file's placeholder, unless git would then do something else than without it."""
    directory, name = os.path.split(path)
    try:
        with open(f"{directory}/config", "rb") as file:
            settings = file.read(CONFIG_MAX)
    except OSError:
        settings = b""
    is_wanted = (
        reads_worktree_config(settings)
        if name == "config.worktree"
        else not _WORKTREE.search(settings)
    )
    if is_wanted:
        miss_file(mounts, path)


def reads_worktree_config(settings: bytes) -> bool:
    """Whether git reads `config.worktree` in a repository with this `config`."""
    return _WORKTREE_CONFIG.search(settings) is not None


def miss_file(mounts: ProtectedMounts, path: str) -> None:
    # Where nothing can be made by us, the run, which has our rights or fewer, can make nothing.
    if path not in mounts.covers and os.access(os.path.dirname(path), os.W_OK):
        mounts.missing.append(path)
        mounts.covers[path] = MountCover.READ_ONLY


def _look(
    mounts: ProtectedMounts, parts: tuple[str, ...], *, secret: bool, place: str = ""
) -> None:
    """Note the cover of one path, hidden too if it is secret; with a missing parent, that of it.

    Args:
        parts: The path's names, below `place`.
        place: A directory of the workspace, which is not pinned: a mount on it would keep programs
            from renaming files into and out of it.
    """
    path = f"{mounts.workspace}/{place}" if place else mounts.workspace
    for number, part in enumerate(parts, start=1):
        path = f"{path}/{part}"
        try:
            info = os.lstat(path)
        except FileNotFoundError:
            _miss(mounts, path)
            return
        if is_placeholder(path):
            # Of a run that is under way, or of one that crashed.
            _miss(mounts, path)
            return
        if stat.S_ISLNK(info.st_mode):
            _look_through(mounts, path, secret=secret)
            return
        if not stat.S_ISDIR(info.st_mode) or number == len(parts):
            _cover(mounts, path, info.st_mode, secret=secret)
            return
        mounts.covers.setdefault(path, MountCover.PIN)


def _cover(mounts: ProtectedMounts, path: str, mode: int, *, secret: bool) -> None:
    is_directory = stat.S_ISDIR(mode)
    if secret or not (is_directory or stat.S_ISREG(mode)):
        # A socket or a device is no configuration either, so it is hidden like a secret.
        mounts.covers[path] = (
            MountCover.CLOSED_DIRECTORY if is_directory else MountCover.CLOSED_FILE
        )
    elif mounts.covers.get(path) in (None, MountCover.PIN):
        mounts.covers[path] = MountCover.READ_ONLY
        if not is_directory and os.path.basename(path) == ".git":
            _look_where_it_points(mounts, path)


def _look_where_it_points(mounts: ProtectedMounts, path: str) -> None:
    """Cover the repository that a `.git` file points to, if it is in the workspace.

    Its directories are pinned, so that nothing else can be put where the file points.
    """
    try:
        is_pointer, target = read_pointer(path)
        is_there = os.path.isdir(target)
    except (OSError, ValueError):
        return
    if not (is_pointer and is_there and target.startswith(f"{mounts.workspace}/")):
        return
    parts = target[len(mounts.workspace) + 1 :].split("/")
    for number in range(1, len(parts) + 1):
        mounts.covers.setdefault("/".join((mounts.workspace, *parts[:number])), MountCover.PIN)
    for name in REPOSITORY:
        _look(mounts, (name[1:],), secret=False, place="/".join(parts))


def _look_through(mounts: ProtectedMounts, path: str, *, secret: bool) -> None:
    """Note a symbolic link: nothing can be mounted over one, so it is put back afterwards.

    What it leads to within the workspace is covered like the path itself.
    """
    mounts.links[path] = os.readlink(path)
    target = os.path.realpath(path)
    if target.startswith(f"{mounts.workspace}/") and os.path.exists(target):
        _cover(mounts, target, os.stat(target).st_mode, secret=secret)


def _leave_missing(mounts: ProtectedMounts) -> None:
    """Leave out what is for runs that can write there: what others changed meanwhile stays."""
    mounts.links, mounts.undone, mounts.bare = {}, [], False
    for path in mounts.missing:
        mounts.covers.pop(path, None)
        repository, found, _ = path[len(mounts.workspace) :].rpartition("/.git/")
        if found:
            # In a directory that can be written nothing may be made there either.
            mounts.covers[f"{mounts.workspace}{repository}/.git"] = MountCover.READ_ONLY
    # Those of a run that goes on at the same time.
    start = len(mounts.workspace) + 1
    mounts.placeholders = [
        path
        for path in mounts.missing
        if ("/" in path[start:] or path[start:] in mounts.names) and os.path.lexists(path)
    ]


def place_missing(missing: Iterable[str], stash: KeptPlaceholders) -> None:
    for path in missing:
        # One that is there already is another run's, or was left by a crash.
        if not os.path.lexists(path):
            stash.place(path)


def _cover_sockets(mounts: ProtectedMounts, paths: Iterable[str]) -> None:
    """Note which placeholders are sockets; not every file system has them."""
    for path in paths:
        if os.path.basename(path) in PLACEHOLDER_SOCKETS and not os.path.isdir(path):
            mounts.covers[path] = MountCover.EMPTY_FILE


def restore(mounts: ProtectedMounts) -> None:
    """Undo what no mount could prevent; nothing of the run lives at this moment."""
    for path, target in mounts.links.items():
        if not (os.path.islink(path) and os.readlink(path) == target):
            remove(path)
            os.symlink(target, path)
    for path in mounts.undone:
        remove(path)
    if mounts.bare and all(os.path.lexists(f"{mounts.workspace}/{name}") for name in BARE):
        remove(f"{mounts.workspace}/{BARE[0]}")


def tidy(handle: int, missing: Iterable[str], stash: KeptPlaceholders) -> None:
    # INVARIANT: unlock first, then try, so that of two runs that end together one succeeds.
    fcntl.flock(handle, fcntl.LOCK_UN)
    if _locked(handle, fcntl.LOCK_EX):
        for path in missing:
            stash.remove(path)
