"""Mounts the git directories of a workspace, and looks afterwards at what a run made there.

The directory that linked work trees share is writable, as git locks and renames files directly in
it; what git obeys and what belongs to the main work tree is mounted read-only over it. A mount
keeps no run from making other names there, so those are removed when it has ended. A
command that may write `config` loses afterwards what is not harmless in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack

from msgspec import Struct, field

from skillhouse.floor import PathError
from skillhouse.floor.regex import regex
from skillhouse.sandbox.git_places import (
    GitDirectory,
    GitPlaces,
    GitRole,
    is_inside,
    read_pointer_file,
)
from skillhouse.sandbox.mountpoints import CONFIG_MAX, KeptPlaceholders, is_placeholder, remove
from skillhouse.sandbox.profile import PROGRAM_PATH, SandboxError
from skillhouse.sandbox.protected_mounts import (
    MountCover,
    ProtectedMounts,
    held,
    look_at,
    miss_file,
    place_missing,
    reads_worktree_config,
    restore,
    tidy,
)

SECONDS = 5.0
"""Longest time of one run of `git config` on a file."""
_KEPT = regex(
    r"branch\..*\.(?:remote|merge|rebase|pushremote|description)"
    r"|remote\..*\.(?:url|fetch|push|pushurl|mirror|prune|tagopt)",
)
"""Keys that these words write, which name no program (git-config(1))."""
_Keys = dict[str, tuple[str, ...]]


class OpenConfig(Struct):
    """A `config` that a run may write, and what it was before."""

    path: str
    before: bytes

    def check(self) -> tuple[str, ...]:
        """Take out what the run changed beyond `_KEPT`; return that in words.

        What others write meanwhile is kept: git's own lock is held, and each key is set alone.
        """
        if _bytes(self.path) == self.before:
            return ()
        lock = f"{self.path}.lock"
        try:
            handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return (f"not looked through, as git has a lock there: `{self.path}`",)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_bytes(self.path) or b"")
            with contextlib.suppress(OSError):
                os.chmod(lock, os.lstat(self.path).st_mode & 0o777)
            return self._restored(lock)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock)

    def _restored(self, lock: str) -> tuple[str, ...]:
        # The keys as git reads them: with `--file` it obeys none of them.
        before = f"{lock}.before"
        try:
            with open(before, "xb") as file:
                file.write(self.before)
            old, new = _keys(before), _keys(lock)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(before)
        if new is None or old is None:
            # Nothing that can be taken apart: as it was.
            with open(lock, "wb") as file:
                file.write(self.before)
            os.replace(lock, self.path)
            return (f"put back, as it could not be read: `{self.path}`",)
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        refused = sorted(key for key in changed if not _may_stay(key, old, new))
        for key in refused:
            _git(lock, "--unset-all", key)
            for value in old.get(key, ()):
                _git(lock, "--add", key, value)
        if not refused:
            return ()
        os.replace(lock, self.path)
        shown = ", ".join(f"`{key}`" for key in refused)
        return (f"taken out of `{self.path}`, as no command changes it: {shown}",)


def opened_config(path: str) -> OpenConfig | None:
    data = _bytes(path)
    return None if data is None else OpenConfig(path, data)


def _may_stay(key: str, old: _Keys, new: _Keys) -> bool:
    if _KEPT.fullmatch(key) is None:
        # With a branch or a remote all of its keys go, and come under another name.
        is_section = key.startswith(("branch.", "remote."))
        return is_section and (key not in new or _is_renamed(key, old, new))
    more = Counter(new.get(key, ())) - Counter(old.get(key, ()))
    return not any("::" in value or value[:1] in ("!", "-") for value in more)


def _is_renamed(key: str, old: _Keys, new: _Keys) -> bool:
    section, name = key.partition(".")[0], key.rpartition(".")[2]
    return any(
        other.startswith(f"{section}.") and other.endswith(f".{name}") and old[other] == new[key]
        for other in old
        if other not in new
    )


def _keys(path: str) -> _Keys | None:
    text = _git(path, "--no-includes", "--list", "-z")
    if text is None:
        return None
    found: dict[str, list[str]] = {}
    for entry in text.split("\0"):
        if entry:
            key, _, value = entry.partition("\n")
            found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def _git(path: str, *arguments: str) -> str | None:
    program = shutil.which("git", path=PROGRAM_PATH)
    if program is None:
        return None
    try:
        done = subprocess.run(
            (program, "config", "--file", path, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            cwd="/",
            env={"PATH": PROGRAM_PATH, "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def _bytes(path: str) -> bytes | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(CONFIG_MAX)
    except OSError:
        return None


def checked(files: Iterable[OpenConfig]) -> tuple[str, ...]:
    return tuple(note for file in files for note in file.check())


_READ_ONLY = {
    GitRole.WHOLE: ("hooks", "config", "modules", "worktrees", "commondir", "config.worktree"),
    GitRole.COMMON: (
        *("hooks", "config", "info", "modules", "worktrees", "commondir", "config.worktree"),
        *("HEAD", "index"),
    ),
    GitRole.LINKED: ("commondir", "gitdir", "config.worktree", "modules"),
}
"""What of a directory no run writes; gitrepository-layout(5) and git-worktree(1)."""
_IF_THERE = frozenset({"info", "HEAD", "index", "gitdir"})
"""Those of them that are never made by a run: git makes them with the repository."""
_ALTERNATES = "objects/info/alternates"
_SHARED = regex(
    r"objects|refs|logs|packed-refs|shallow|description|branches|rr-cache|lfs|gc\.log|reftable"
    r"|FETCH_HEAD|ORIG_HEAD|COMMIT_EDITMSG|fsmonitor--daemon.*"
)
"""What git makes at the top of a common directory that starts nothing and blocks nothing."""
_OF_MAIN = regex(
    r"[A-Z_]+|[A-Za-z.-]+\.lock|rebase-(?:merge|apply)|sequencer|gc\.pid(?:\.lock)?|index"
)
"""What git makes there for the main work tree, perhaps at the hands of a person during the run."""
SETTLE_SECONDS = 0.2
"""How long a lock of another program of git is waited for: most are held for milliseconds."""


class GitMounts(Struct):
    """What to mount of the git directories of one workspace, made by `shield_git`."""

    outside: dict[str, MountCover] = field(default_factory=dict)
    """Before the workspace, in this order."""
    inside: dict[str, MountCover] = field(default_factory=dict)
    """After all that covers the workspace."""
    opened: list[OpenConfig] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was removed, in words; known at the end."""


class _HeldDirectory(Struct):
    """One directory during a run."""

    directory: GitDirectory
    handle: int
    mounts: ProtectedMounts
    names: frozenset[str]
    """At its top, before the run."""
    main: tuple[object, ...]
    """The state of the main work tree's index and HEAD, which no run can change."""
    had_alternates: bool


@contextlib.asynccontextmanager
async def shield_git(
    places: GitPlaces | None, *, stash: KeptPlaceholders | None, read_only: bool
) -> AsyncIterator[GitMounts]:
    """Yield the mounts for the git directories; what a run made there is looked at afterwards.

    Args:
        stash: Makes placeholders; None where nothing is mounted.
        read_only: The run can write none of them.

    Raises:
        SandboxError: "protect-failed", a directory cannot be looked at or held.
    """
    found = GitMounts()
    if places is None:
        yield found
        return
    read_only = read_only or places.read_only
    for path in (*filter(None, [places.top]), *places.alternates):
        found.outside[path] = MountCover.READ_ONLY
    async with AsyncExitStack() as holding:
        kept: list[_HeldDirectory] = []
        for directory in places.directories:
            is_in = is_inside(directory.path, places.workspace)
            covers = found.inside if is_in else found.outside
            if read_only:
                # What is read-only already is so with all in it.
                if not is_in and not any(is_inside(directory.path, one) for one in found.outside):
                    covers[directory.path] = MountCover.READ_ONLY
                continue
            handle = await holding.enter_async_context(held(directory.path))
            try:
                one = _survey(directory, handle, places)
                if stash is not None:
                    stash.record(directory.path, one.mounts.missing)
                    place_missing(one.mounts.missing, stash)
            except OSError as error:
                message = f"cannot protect git's directory: {error}"
                raise SandboxError("protect-failed", message) from error
            kept.append(one)
            covers[directory.path] = MountCover.PIN
            # The writable ones below it come later, over these.
            covers |= one.mounts.covers
            found.inside |= _linked_to(one.mounts, places.workspace)
        found.outside |= dict(map(_mask, places.masks))
        if places.opens_config and not read_only:
            found.opened += filter(None, map(opened_config, _configs(places)))
            if any(map(_has_hooks, found.opened)):
                found.notes.append("git ran no hooks, as this line may write its configuration")
        try:
            yield found
        finally:
            found.notes += checked(found.opened)
            for one in kept:
                restore(one.mounts)
                found.notes += _looked_at(one)
                if stash is not None:
                    tidy(one.handle, one.mounts.missing, stash)


def _has_hooks(file: OpenConfig) -> bool:
    try:
        names = os.listdir(os.path.join(os.path.dirname(file.path), "hooks"))
    except OSError:
        return b"hookspath" in file.before.lower()
    is_set = b"hookspath" in file.before.lower()
    return is_set or any(not name.endswith(".sample") for name in names)


def _mask(path: str) -> tuple[str, MountCover]:
    is_directory = os.path.isdir(path)
    return path, MountCover.CLOSED_DIRECTORY if is_directory else MountCover.CLOSED_FILE


def _configs(places: GitPlaces) -> Iterator[str]:
    directories = (places.own, *(one.path for one in places.directories))
    yield from dict.fromkeys((*(f"{path}/config" for path in directories), *places.configs))


def _linked_to(mounts: ProtectedMounts, workspace: str) -> dict[str, MountCover]:
    """Return what is in the workspace that a link in git's directory leads to, such as hooks."""
    targets = (os.path.realpath(path) for path in mounts.links)
    return {
        path: MountCover.READ_ONLY
        for path in targets
        if is_inside(path, workspace) and os.path.exists(path)
    }


def _survey(directory: GitDirectory, handle: int, places: GitPlaces) -> _HeldDirectory:
    path = directory.path
    mounts = ProtectedMounts(path)
    for name in _READ_ONLY[directory.role]:
        if directory.role is GitRole.LINKED and name == "config.worktree":
            _look_at_worktree_config(mounts, places)
        elif name not in _IF_THERE or os.path.lexists(f"{path}/{name}"):
            look_at(mounts, name)
    return _HeldDirectory(
        directory=directory,
        handle=handle,
        mounts=mounts,
        names=frozenset(os.listdir(path)),
        main=_state_of_main(path),
        had_alternates=os.path.lexists(f"{path}/{_ALTERNATES}"),
    )


def _look_at_worktree_config(mounts: ProtectedMounts, places: GitPlaces) -> None:
    """Cover the settings of one linked work tree, which git reads where the shared ones say so."""
    path = f"{mounts.workspace}/config.worktree"
    if os.path.lexists(path):
        look_at(mounts, "config.worktree")
        return
    common = next((d.path for d in places.directories if d.role is GitRole.COMMON), places.own)
    settings = opened_config(f"{common}/config")
    if settings is None or reads_worktree_config(settings.before):
        miss_file(mounts, path)


def _looked_at(one: _HeldDirectory) -> Iterator[str]:
    """Remove what the run may not have made, and yield what that was."""
    path, role = one.directory.path, one.directory.role
    try:
        new = sorted({*os.listdir(path)} - one.names)
    except OSError:
        return
    new = [name for name in new if not is_placeholder(f"{path}/{name}")]
    if os.path.lexists(f"{path}/{_ALTERNATES}") and not one.had_alternates:
        new.append(_ALTERNATES)
    removed, left = [], []
    for name in new:
        if not _is_refused(name, role):
            continue
        if role is GitRole.COMMON and _OF_MAIN.fullmatch(name) and _is_of_another(one, name):
            if os.path.lexists(f"{path}/{name}"):
                left.append(name)
            continue
        remove(f"{path}/{name}")
        removed.append(name)
    if removed:
        yield f"removed from git's directory `{path}`, as no run makes it: {_shown(removed)}"
    if left:
        yield (
            f"left in git's directory `{path}`, as git is at work there outside of the run: "
            f"{_shown(left)}"
        )


def _is_refused(name: str, role: GitRole) -> bool:
    if name == _ALTERNATES:
        return True
    if role is GitRole.COMMON:
        return not _SHARED.fullmatch(name)
    return name in _READ_ONLY[role]


def _is_of_another(one: _HeldDirectory, name: str) -> bool:
    """Whether a new name is more likely that of a program outside, by what no run can do.

    The main work tree's index and HEAD are read-only in a run. A lock is left by a run only if the
    program that held it is gone, and with the run all of its programs are.
    """
    path = one.directory.path
    trees = tuple(_trees_of(path))
    deadline = time.monotonic() + SETTLE_SECONDS
    while name.endswith(".lock") and time.monotonic() < deadline:
        if not os.path.lexists(f"{path}/{name}"):
            return True
        if not _is_git_at_work(trees):
            return False
        time.sleep(0.01)
    return _state_of_main(path) != one.main or _is_git_at_work(trees)


def _state_of_main(path: str) -> tuple[object, ...]:
    state: list[object] = []
    for name in ("index", "HEAD"):
        try:
            info = os.lstat(f"{path}/{name}")
        except OSError:
            state.append(None)
        else:
            state.append((info.st_ino, info.st_size, info.st_mtime_ns))
    return tuple(state)


def _is_git_at_work(trees: Iterable[str]) -> bool:
    """Whether the user runs a program of git in one of some work trees.

    Git goes to the top of the work tree before it does anything (git(1), -C; setup.c).
    """
    user = os.geteuid()
    for process in (f"/proc/{name}" for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError), open(f"{process}/comm", "rb") as file:
            if file.read(3) == b"git" and os.stat(process).st_uid == user:
                at = os.readlink(f"{process}/cwd")
                if any(is_inside(at, tree) for tree in trees):
                    return True
    return False


def _trees_of(directory: str) -> Iterator[str]:
    """Yield the main work tree of a common directory, and the linked ones; no run names these."""
    yield os.path.dirname(directory)
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{directory}/worktrees"):
            own = f"{directory}/worktrees/{name}"
            with contextlib.suppress(OSError, ValueError, PathError):
                if back := read_pointer_file(own, "gitdir"):
                    yield os.path.realpath(os.path.join(own, os.path.dirname(back)))


def _shown(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
