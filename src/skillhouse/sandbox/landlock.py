"""Runs a command behind Landlock, where bubblewrap is missing or may make no namespaces.

Landlock only allows: what it grants in a workspace leaves out the protected paths.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from msgspec import Struct, field

from skillhouse.floor import structs
from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name
from skillhouse.floor.errors import first_of
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import landlock_inside, scratch
from skillhouse.sandbox.bubblewrap import JAVA_MANAGEMENT, java_settings
from skillhouse.sandbox.crash_watch import watch_for_crashes
from skillhouse.sandbox.guard import CgroupGuard, CgroupPlace, ProcessGuard, RlimitGuard, usage
from skillhouse.sandbox.interpreters import interpreter, variables
from skillhouse.sandbox.landlock_inside import CHANGE, LIST, WRITE
from skillhouse.sandbox.landlock_rules import READ
from skillhouse.sandbox.process import Command, Run
from skillhouse.sandbox.profile import (
    PINNED,
    Completed,
    Limits,
    OutputListener,
    SandboxError,
    SandboxProfile,
    Streams,
    with_git_settings,
)
from skillhouse.sandbox.protected_mounts import MountCover, ProtectedMounts
from skillhouse.sandbox.run_options import (
    checked,
    mounts_of,
    persistent_scan,
    skill_covers,
    with_scan,
)
from skillhouse.sandbox.seccomp import program as filter_program
from skillhouse.sandbox.seccomp import shared_program
from skillhouse.sandbox.status import SandboxLevel

GRANTS_MAX = 50_000
"""Rules of one run, 4 µs each; a workspace that needs more is refused."""
_HIDING = (MountCover.CLOSED_FILE, MountCover.CLOSED_DIRECTORY)


class Grants(Struct):
    """Rules for paths below one workspace."""

    workspace: str
    rules: list[tuple[str, int, bool]] = field(default_factory=list)
    """A relative path, the rights, and whether it is a directory; all of one directory in a row."""
    fixed: list[str] = field(default_factory=list)
    """Directories in which nothing can be made, renamed or removed, the workspace's own as `.`."""
    _kept: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of the protected files that have several names."""


class _Node(Struct):
    """A path that is covered, or has covered ones below it."""

    cover: MountCover | None = None
    below: dict[str, _Node] = field(default_factory=dict)

    def hides(self) -> bool:
        return self.cover in _HIDING or any(node.hides() for node in self.below.values())


def grants_for(
    workspace: str, covers: Mapping[str, MountCover], *, read_only: bool = False
) -> Grants:
    """Return the grants for a workspace.

    Args:
        workspace: Its real path.
        covers: What would be mounted over its protected paths, as `protected_mounts` finds it.
        read_only: Allow no change at all.

    Raises:
        SandboxError: "protect-failed", it would take too many rules or cannot be read.
    """
    root = _tree(workspace, covers)
    grants = Grants(workspace, _kept=frozenset(_linked(covers)))
    try:
        _grant(grants, root, "", may_read=False, may_change=not read_only)
    except OSError as error:
        message = f"cannot read the workspace to protect its files: {error}"
        raise SandboxError("protect-failed", message) from error
    return grants


def _tree(workspace: str, covers: Mapping[str, MountCover]) -> _Node:
    root = _Node()
    for path, cover in covers.items():
        node = root
        for name in os.path.relpath(path, workspace).split("/"):
            node = node.below.setdefault(name, _Node())
        node.cover = cover
    return root


def _linked(covers: Mapping[str, MountCover]) -> Iterable[tuple[int, int]]:
    for path, cover in covers.items():
        if cover in (MountCover.READ_ONLY, MountCover.CLOSED_FILE) and os.path.lexists(path):
            info = os.lstat(path)
            if info.st_nlink > 1 and stat.S_ISREG(info.st_mode):
                yield info.st_dev, info.st_ino


def _grant(grants: Grants, node: _Node, relative: str, *, may_read: bool, may_change: bool) -> None:
    """Add the rules of a directory that has protected paths, or places of some, below it.

    Args:
        may_read: Whether a rule above it allows to read everything below it already.
        may_change: Whether what is not protected below it may be changed.
    """
    if not may_read:
        may_read = not node.hides()
        _add(grants, relative, READ if may_read else LIST, is_directory=True)
    if not may_change and may_read:
        return
    if may_change:
        grants.fixed.append(relative or ".")
    within = []
    with os.scandir(f"{grants.workspace}/{relative}" if relative else grants.workspace) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            path = f"{relative}/{entry.name}" if relative else entry.name
            known = node.below.get(entry.name)
            if known is None:
                _grant_entry(grants, entry, path, may_read=may_read, may_change=may_change)
            elif known.cover not in _HIDING and not entry.is_symlink():
                within.append((path, known, entry.is_dir()))
    # After the entries of this directory, so that it is opened once.
    for path, known, is_directory in within:
        free = may_change and known.cover in (None, MountCover.PIN)
        if is_directory and (free or known.hides()):
            _grant(grants, known, path, may_read=may_read, may_change=free)
        elif not may_read:
            _add(grants, path, READ, is_directory=is_directory)


def _grant_entry(
    grants: Grants, entry: os.DirEntry[str], path: str, *, may_read: bool, may_change: bool
) -> None:
    """Add the rule of an entry that is not protected, and has nothing protected below it."""
    if entry.is_symlink():
        return
    is_directory = entry.is_dir()
    rights = 0 if may_read else READ
    if may_change and is_directory:
        rights = WRITE
    elif may_change and entry.is_file() and not _is_kept(grants, entry):
        rights = CHANGE
    if rights and (is_directory or entry.is_file()):
        _add(grants, path, rights, is_directory=is_directory)


def _is_kept(grants: Grants, entry: os.DirEntry[str]) -> bool:
    """Whether it is another name of a protected file: a rule is about the file, not its name."""
    if not grants._kept:  # noqa: SLF001 - made by this module.
        return False
    info = entry.stat(follow_symlinks=False)
    return (info.st_dev, info.st_ino) in grants._kept  # noqa: SLF001


def _add(grants: Grants, path: str, rights: int, *, is_directory: bool) -> None:
    if len(grants.rules) >= GRANTS_MAX:
        message = f"expected at most {GRANTS_MAX} entries beside protected files in the workspace"
        raise SandboxError("protect-failed", message)
    grants.rules.append((path, rights if is_directory else rights & ~LIST, is_directory))


SUPERVISING = 2
"""Processes of ours beside the program's: the supervisor and its watcher."""
SHOWN_MAX = 8
"""Directories that a result names."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("alternatives", "ld.so.cache", "ssl/certs", "ssl/openssl.cnf", "pki/tls", "ca-certificates")
_ETC_HOST = ("passwd", "group", "nsswitch.conf", "hosts", "localtime")
"""The host's own, which every user may read; bubblewrap would show others."""
_DEVICES = (
    ("/dev/null", CHANGE),
    ("/dev/zero", READ),
    ("/dev/urandom", READ),
    ("/dev/random", READ),
    ("/dev/full", CHANGE),
)
_KERNEL = tuple(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "uptime", "loadavg"))
_KERNEL += ("/proc/version", "/proc/filesystems", "/sys/devices/system/cpu/online")
"""What programs read to see how large the machine is; nothing of it is of a process."""
_GIT = {"safe.bareRepository": "explicit"}
"""git-config(1): as in the file that bubblewrap shows, which cannot be shown here."""
_GIT_FILES = (".gitconfig", ".config/git/ignore", ".config/git/attributes")
"""Where git has a person's settings, below HOME; the last two by default (gitignore(5))."""
_PROGRAMS = ".skillhouse-programs"
ATTRIBUTES = "modes, owners and times of files cannot be set"
_REFUSALS = (
    b"Permission denied",
    b"Operation not permitted",
    b"EACCES",
    b"EPERM",
    b"PermissionError",
)


class LandlockGuard(RlimitGuard):
    """The limits of a run whose first process, as `Run` knows it, is the watcher."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._limits = limits
        # Set by the supervisor on the program: where all processes of the user count, the
        # supervisor could not start it.
        self.inner_limits: Mapping[int, int] = {}
        self._supervisor = 0

    def add(self, pid: int) -> None:
        self._supervisor = pid

    async def watch(self, init: int) -> str:
        most = self._limits.processes + SUPERVISING
        while True:
            began = time.monotonic()
            processes, memory_bytes = usage(self._supervisor, stop_at=most + 1)
            if not processes:
                return ""
            if processes > most:
                return "processes"
            if memory_bytes > self._limits.memory_bytes:
                return "memory"
            await anyio.sleep(self._pause(began))


class LandlockLauncher:
    level = SandboxLevel.LANDLOCK

    def __init__(self, machine: str, *, place: CgroupPlace | None) -> None:
        """Make a launcher; `place` is where control groups can be made, None for rlimits."""
        self._filters = {
            "seccomp": filter_program(machine, shared_objects=False),
            "shared": shared_program(machine),
        }
        self._place = place

    async def run(
        self,
        argv: Sequence[str],
        profile: SandboxProfile,
        *,
        cwd: Path,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
        streams: Streams | None = None,
    ) -> Completed:
        asked_at = time.monotonic()
        profile, cwd = checked(argv, profile, cwd)
        _check_reach(profile)
        scan = await persistent_scan(profile)
        guard: ProcessGuard = LandlockGuard(profile.limits)
        if self._place is not None:
            guard = CgroupGuard(self._place, profile.limits)
        watch_for_crashes().note(f"temporary:{tempfile.gettempdir()}")
        scratch_place = tempfile.mkdtemp(prefix=f"{COMMON_NAME}{owner_name()}-")
        granted: list[Grants] = []
        try:
            await in_thread(lambda: _furnish(profile, scratch_place))
            async with AsyncExitStack() as shielded:

                async def prepare() -> None:
                    mounts = mounts_of(profile, scan, None)
                    found = await shielded.enter_async_context(mounts)
                    granted.append(await in_thread(lambda: _grants(profile, found)))

                def options(descriptors: Mapping[str, int]) -> Iterable[str]:
                    settings = self._settings(profile, granted[0], cwd, scratch_place)
                    yield from ("--shared", str(descriptors["shared"]))
                    yield from ("--settings", json.dumps(settings))

                command = Command(
                    program=Path(interpreter()[0]),
                    script=("-I", "-S", landlock_inside.__file__),
                    argv=argv,
                    files=self._filters,
                    options=options,
                )
                try:
                    run = Run(command, guard, profile.limits, on_output=on_output, streams=streams)
                    done = await run.complete(stdin, prepare=prepare)
                finally:
                    with anyio.CancelScope(shield=True):
                        await guard.remove()
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(lambda: scratch.remove(scratch_place))
        started = None if run.began_at is None else run.began_at - asked_at
        notes = (*_limits_met(done, granted[0]), *_changed_seals(profile))
        return with_scan(structs.replace(done, start_seconds=started, notes=notes), scan)

    def _settings(
        self, profile: SandboxProfile, grants: Grants, cwd: Path, place: str
    ) -> Mapping[str, object]:
        system = [(path, READ) for path in SYSTEM]
        system += [(f"/etc/{name}", READ) for name in (*_ETC, *_ETC_HOST)]
        for java in java_settings():
            names = (name for name in os.listdir(java) if name != JAVA_MANAGEMENT)
            system += [(f"{java}/{name}", READ) for name in names]
        system += [*_DEVICES, *((path, READ) for path in _KERNEL)]
        # Nothing can be made in a directory that holds protected paths, so git only reads here.
        git = (one.path for one in profile.git.directories) if profile.git else ()
        borrowed = profile.git.alternates if profile.git else ()
        system += [(path, READ) for path in (*git, *borrowed)]
        system += [*_readable(profile), *((str(path), READ) for path in interpreter()[1])]
        system += [(place, WRITE), *_tools(profile)]
        return {
            "parent": os.getpid(),
            "workspace": grants.workspace,
            "grants": grants.rules,
            "system": system,
            "cwd": str(cwd),
            "variables": _variables(profile, place),
            # A control group counts better.
            "processes": 0 if self._place else profile.limits.processes,
            "running": 0 if self._place else processes_of(os.getuid()),
        }


def _variables(profile: SandboxProfile, place: str) -> Mapping[str, str]:
    given = with_git_settings(variables(profile.environment, profile.tools), _GIT)
    # Nothing can be shown elsewhere than where it is.
    shown = profile.tools.caches.shown if profile.tools.caches else {}
    given = {name: str(shown.get(value, value)) for name, value in given.items()}
    path = given["PATH"].replace(PINNED, f"{place}/{_PROGRAMS}")
    own = {"PATH": path, "HOME": place, "TMPDIR": place, "GIT_CONFIG_NOSYSTEM": "1"}
    settings = {"GIT_CONFIG_GLOBAL": f"{place}/{_GIT_FILES[0]}"}
    return {**given, **own, **(settings if "GIT_CONFIG_GLOBAL" in given else {})}


def _furnish(profile: SandboxProfile, place: str) -> None:
    """Put into the run's home what bubblewrap shows at paths of its own."""
    git = profile.tools.git
    for name, text in zip(_GIT_FILES, (git.config, git.ignored, git.attributes), strict=True):
        path = Path(place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text, encoding="utf-8", errors="surrogateescape")
    for name, program in profile.tools.pinned.items():
        link = Path(place, _PROGRAMS, name)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(program)


def _tools(profile: SandboxProfile) -> Iterator[tuple[str, int]]:
    yield from ((str(path), READ) for path in profile.tools.mounts)
    caches = profile.tools.caches
    if caches is None:
        return
    # A rule holds for all beneath a directory, so one that has closed ones is granted by entries.
    directory = str(caches.directory)
    covers = {str(path): MountCover.READ_ONLY for path in caches.closed}
    for relative, rights, _ in grants_for(directory, covers).rules if covers else ():
        yield os.path.join(directory, relative) if relative else directory, rights
    yield from ((str(path), WRITE) for path in (caches.opened if covers else (directory,)))


def _check_reach(profile: SandboxProfile) -> None:
    """Refuse what this level cannot bound."""
    if profile.network or profile.proxy_socket is not None:
        message = "no network at the sandbox level `landlock`: it cannot bound where commands reach"
        raise SandboxError("network-refused", f"{message}; install bubblewrap, or run without it")
    if profile.writable:
        message = "a read-only workspace with writable directories needs bubblewrap"
        raise SandboxError("place-refused", message)
    for path in profile.readable:
        if profile.workspace.is_relative_to(path):
            message = "a readable directory holds the workspace, so its secrets could be read"
            raise SandboxError("place-refused", f"{message}: {path}")


def processes_of(user: int) -> int:
    """Return the number of threads that run for a user, which RLIMIT_NPROC counts."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            # One may end meanwhile. What is not dumpable belongs to root here, and is not counted:
            # then fewer processes can be started.
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += os.stat(f"/proc/{name}/task").st_nlink - 2
    return count


def _grants(profile: SandboxProfile, mounts: ProtectedMounts) -> Grants:
    start = f"{mounts.workspace}/"
    hidden = {path: one for path, one in _closed(profile).items() if path.startswith(start)}
    covers = {**_sealed_as_covers(profile, mounts), **hidden}
    return grants_for(mounts.workspace, covers, read_only=profile.read_only)


def _closed(profile: SandboxProfile) -> dict[str, MountCover]:
    closed = {MountCover.EMPTY_DIRECTORY: MountCover.CLOSED_DIRECTORY}
    return {path: closed.get(cover, cover) for path, cover in skill_covers(profile).items()}


def _readable(profile: SandboxProfile) -> Iterator[tuple[str, int]]:
    """Yield what can be read besides the workspace: of skills all but what is hidden there."""
    hidden = _closed(profile)
    for directory in map(str, profile.readable):
        below = {path: cover for path, cover in hidden.items() if path.startswith(f"{directory}/")}
        if not below:
            yield directory, READ
            continue
        for relative, rights, _ in grants_for(directory, below, read_only=True).rules:
            yield os.path.join(directory, relative) if relative else directory, rights


def _limits_met(done: Completed, grants: Grants) -> Iterator[str]:
    """Yield why something may have failed, if it looks as if this level were the reason."""
    output = done.stderr + done.stdout
    if done.exit_code == 0 or not any(text in output for text in _REFUSALS):
        return
    if grants.fixed:
        names = first_of([f"`{name}`" for name in grants.fixed], SHOWN_MAX)
        yield (
            f"sandbox level landlock: nothing can be made, renamed or removed directly in {names}"
            f", which hold protected paths, and {ATTRIBUTES}; use a directory below them, "
            "or the tools `write` and `edit`"
        )
    else:
        yield f"sandbox level landlock: {ATTRIBUTES}"


def _changed_seals(profile: SandboxProfile) -> Iterator[str]:
    for path, data in profile.sealed.items():
        if _bytes(path, len(data)) != data:
            yield f"changed by another program during the run, so not as it was approved: `{path}`"


def _sealed_as_covers(profile: SandboxProfile, mounts: ProtectedMounts) -> Mapping[str, MountCover]:
    """Return the covers, with the approved files among them: no descriptor takes their place.

    Raises:
        SandboxError: "seal-failed", one of them has other bytes than those that were approved.
    """
    for path, data in profile.sealed.items():
        if _bytes(path, len(data)) != data:
            raise SandboxError("seal-failed", f"the file is not as it was approved: {path}")
    inside = (p for p in profile.sealed if p.startswith(f"{mounts.workspace}/"))
    return {**dict.fromkeys(inside, MountCover.READ_ONLY), **mounts.covers}


def _bytes(path: str, size: int) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return file.read(size + 1)
    except OSError:
        return None
