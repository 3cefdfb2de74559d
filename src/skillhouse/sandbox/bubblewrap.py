"""The options for bubblewrap: a new root, made in order, that holds only what is listed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from skillhouse.floor import dataclass
from skillhouse.sandbox import inner_scripts
from skillhouse.sandbox.inner_scripts import HOME
from skillhouse.sandbox.profile import Limits, SandboxError, SandboxProfile
from skillhouse.sandbox.protected_mounts import MountCover
from skillhouse.sandbox.run_checks import missing_names

SHARED_MEMORY_BYTES = 64 << 20
"""Size of /dev/shm, as in a container of Docker."""
SKILL_PLACE = "/skill"
"""Path of a cell's skill, inside (reference/security.md 1.4)."""
UID = 65534
"""User and group inside; outside they are the caller's, who may write the workspace."""

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "urandom")
_DEVICE_LINKS = {
    "random": "urandom",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_ETC = ("alternatives", "ld.so.cache")
"""What ordinary programs need of /etc, if the host has it; none of it is secret."""
_ETC_TRUST = ("ssl/certs", "ssl/openssl.cnf", "pki/tls", "ca-certificates")
"""Trusted certificates, for runs that reach servers."""
_ETC_NETWORK = ("resolv.conf", "hosts")
_ETC_FILES = {
    "/etc/passwd": f"nobody:x:{UID}:{UID}:nobody:{HOME}:/bin/sh\n",
    "/etc/group": f"nogroup:x:{UID}:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_ETC_HOSTS = {"/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n"}
CELL_FILES: Mapping[str, str] = _ETC_FILES | _ETC_HOSTS
"""The files that a cell gets instead of the host's."""
_GIT_SETTINGS = "[safe]\n\tbareRepository = explicit\n[core]\n\tcheckStat = minimal\n"
"""git-config(1). A directory that looks like a repository is none unless it is named as one; the
index knows the files' owner as it is outside, so by owner all would seem changed."""
_IGNORED = "/etc/skillhouse-gitignore"
_IGNORING = "/etc/skillhouse-gitconfig"
_DIRECTORIES = (MountCover.EMPTY_DIRECTORY, MountCover.CLOSED_DIRECTORY)
_HIDING = (MountCover.EMPTY_FILE, *_DIRECTORIES)
_SYSTEM = tuple(
    Path(path)
    for path in ("/usr", "/etc", "/proc", "/sys", "/dev", "/boot", "/run", "/bin", "/lib", "/sbin")
)


def etc_files(profile: SandboxProfile) -> Mapping[str, str]:
    """Return the texts of the files that a run gets instead of the host's."""
    own = _ETC_FILES if profile.paths is None else {**_ETC_FILES, **_git_files(profile)}
    if profile.network:
        return own
    bridged = (
        {inner_scripts.BRIDGE_SCRIPT: inner_scripts.bridge_script()} if profile.proxy_socket else {}
    )
    return own | _ETC_HOSTS | bridged


def _git_files(profile: SandboxProfile) -> Mapping[str, str]:
    """Return git's settings, by which it passes over the placeholders in the workspace's own
    repository: `git clean` and `git stash -u` would fail on them, as they cannot be removed.
    """
    workspace = str(profile.workspace)
    names = () if profile.read_only else missing_names(profile)
    if not names or "\n" in workspace:
        return {"/etc/gitconfig": _GIT_SETTINGS}
    # Both a pattern and a quoted text.
    place = re.sub(r"([*?\[\\])", r"\\\1", f"{workspace}/.git")
    quoted = re.sub(r'(["\\])', r"\\\1", place)
    condition = f'[includeIf "gitdir:{quoted}"]\n\tpath = {_IGNORING}\n'
    return {
        "/etc/gitconfig": _GIT_SETTINGS + condition,
        _IGNORING: f"[core]\n\texcludesFile = {_IGNORED}\n",
        _IGNORED: "".join(f"/{re.escape(name)}/\n" for name in names if "\n" not in name),
    }


def check_places(profile: SandboxProfile, cwd: Path) -> None:
    """Refuse a system directory as workspace, and a current directory that is not mounted."""
    workspace = profile.workspace
    refused = workspace == Path("/") or any(workspace.is_relative_to(path) for path in _SYSTEM)
    if refused or str(workspace) == HOME:
        raise SandboxError("workspace-refused", f"expected a project's directory: {workspace}")
    if not any(cwd.is_relative_to(path) for path in (workspace, *profile.readable)):
        message = f"expected a directory in the workspace `{workspace}` or a skill: {cwd}"
        raise SandboxError("cwd-outside", message)


def options(
    profile: SandboxProfile,
    covers: Mapping[str, MountCover],
    *,
    cwd: Path,
    files: Mapping[str, int],
) -> Iterator[str]:
    """Yield the options of a run, which bubblewrap reads by `--args`.

    Args:
        covers: What is mounted over the protected paths.
        files: The descriptor of each of `etc_files` and of the profile's sealed files.
    """
    yield from _start(profile, "sandbox", *(("--share-net",) if profile.network else ()))
    yield from _own(profile, files)
    yield from _places(profile, covers, files)
    yield from ("--chdir", str(cwd))
    yield from _programs()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """What a cell sees besides the system's programs, read-only."""

    skill: Path
    skill_place: str
    mounts: tuple[tuple[Path, str], ...]
    """Its dependencies and what its interpreter needs, each with its path inside."""
    limits: Limits
    environment: Mapping[str, str]
    """Variables beside those of every run."""
    forks: bool
    """True: it may make namespaces for its calls."""


def cell_options(view: CellView, *, files: Mapping[str, int]) -> Iterator[str]:
    """Yield the options of a cell: no workspace, and nothing of the host is writable.

    There is no /proc: it would show all calls of a cell that forks, and in `mountinfo`, which no
    mount can cover for processes to come, where on the host each bind comes from.
    """
    profile = SandboxProfile(view.skill, limits=view.limits, environment=view.environment)
    capabilities = ("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP")
    yield from _start(profile, "cell", *(capabilities if view.forks else ()))
    yield from _own(profile, files, processes=False)
    # A call, as its owner, could make it writable, and a later call would see what it wrote.
    yield from ("--remount-ro", "/dev")
    yield from ("--ro-bind", str(view.skill), view.skill_place)
    for path, place in view.mounts:
        yield from ("--ro-bind", str(path), place)
    yield from ("--chdir", view.skill_place)
    yield from _programs()


def _start(profile: SandboxProfile, hostname: str, *more: str) -> Iterator[str]:
    """Yield the namespaces, capabilities and variables; `more` widens them."""
    yield from ("--unshare-all", "--unshare-user", "--disable-userns")
    yield from ("--uid", str(UID), "--gid", str(UID), "--cap-drop", "ALL", "--hostname", hostname)
    yield from more
    yield from ("--new-session", "--die-with-parent", "--clearenv")
    proxied = inner_scripts.proxy_variables() if profile.proxy_socket else {}
    for name, value in {**inner_scripts.variables(profile.environment), **proxied}.items():
        yield from ("--setenv", name, value)


def _own(
    profile: SandboxProfile, files: Mapping[str, int], *, processes: bool = True
) -> Iterator[str]:
    reaching = _ETC_TRUST if profile.network or profile.proxy_socket else ()
    for name in _ETC + reaching + (_ETC_NETWORK if profile.network else ()):
        path = f"/etc/{name}"
        if os.path.exists(path):
            yield from ("--ro-bind", path, path)
    for path, descriptor in files.items():
        if path not in profile.sealed:
            yield from ("--perms", "0444", "--file", str(descriptor), path)
    if profile.proxy_socket:
        yield from ("--ro-bind", str(profile.proxy_socket), inner_scripts.BRIDGE_SOCKET)
    # INVARIANT: read-only. What /proc/sys and /proc/sysrq-trigger do is for the superuser's id, not
    # for capabilities, so a run that is root's outside could set kernel.core_pattern, which names
    # a program for the host to run. bubblewrap 0.8 means to cover them and here does not.
    if processes:
        yield from ("--proc", "/proc", "--remount-ro", "/proc")
    # Not `--dev`: it binds twice as many devices, into a directory of any size.
    yield from ("--size", "4096", "--perms", "0555", "--tmpfs", "/dev")
    for name in _DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, target in _DEVICE_LINKS.items():
        yield from ("--symlink", target, f"/dev/{name}")
    for path, size in writable(profile.limits):
        yield from ("--size", str(size), "--perms", "1777", "--tmpfs", path)


def writable(limits: Limits) -> tuple[tuple[str, int], ...]:
    """Return the writable directories in memory, with their sizes in bytes."""
    return (
        ("/dev/shm", min(SHARED_MEMORY_BYTES, limits.memory_bytes)),  # noqa: S108 - its own.
        (HOME, min(limits.file_bytes, limits.memory_bytes)),
    )


def _places(
    profile: SandboxProfile, covers: Mapping[str, MountCover], files: Mapping[str, int]
) -> Iterator[str]:
    """Yield the binds in such an order that none covers a stricter one."""
    workspace = profile.workspace
    readable = sorted(set(profile.readable))
    for directory in readable:
        if not directory.is_relative_to(workspace):
            yield from ("--ro-bind", str(directory), str(directory))
    bind = "--ro-bind" if profile.read_only else "--bind"
    yield from (bind, str(workspace), str(workspace))
    # Binds first: bubblewrap reads the table of all mounts again for each one.
    for path, cover in sorted(covers.items(), key=lambda item: item[1] in _DIRECTORIES):
        if not (profile.read_only and cover is MountCover.PIN):
            yield from _cover(path, cover)
    for directory in readable:
        if directory.is_relative_to(workspace):
            yield from ("--ro-bind", str(directory), str(directory))
    hidden = {path for path, cover in covers.items() if cover in _HIDING}
    for path in profile.sealed:
        if hidden.isdisjoint((path, *map(str, Path(path).parents))):
            mode = "0555" if os.access(path, os.X_OK) else "0444"
            yield from ("--perms", mode, "--ro-bind-data", str(files[path]), path)


def _programs() -> Iterator[str]:
    """Yield the system's programs, and make the root directory read-only.

    INVARIANT: they come last. If we are killed while we write the options, bubblewrap uses those
    that it received; without these there is no program to run, whatever else is missing.
    """
    directories = [f"/{name}" for name in _MERGED if os.path.isdir(f"/{name}")]
    bound = [path for path in directories if not os.path.islink(path)]
    for path in ("/usr", *bound):
        yield from ("--dir", path)
    for path in directories:
        if path not in bound:
            yield from ("--symlink", os.readlink(path), path)
    yield from ("--remount-ro", "/")
    for path in (*bound, "/usr"):
        yield from ("--ro-bind", path, path)


def _cover(path: str, cover: MountCover) -> tuple[str, ...]:
    if cover is MountCover.PIN:
        return ("--bind", path, path)
    if cover is MountCover.READ_ONLY:
        return ("--ro-bind", path, path)
    if cover in _DIRECTORIES:
        # One page: all that a run gets if it makes the directory writable.
        mode = "0555" if cover is MountCover.EMPTY_DIRECTORY else "0000"
        return ("--size", "4096", "--perms", mode, "--tmpfs", path)
    # bubblewrap binds with `nodev`, so that the device cannot be opened: the answer is EACCES.
    return ("--ro-bind", "/dev/null", path)
