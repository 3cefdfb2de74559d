"""The options for bubblewrap that each run has, and those of cells.

A new root is made, in order, that holds only what is listed.
"""

from __future__ import annotations

import functools
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from skillhouse.sandbox import interpreters
from skillhouse.sandbox.interpreters import HOME
from skillhouse.sandbox.masks import own_directory
from skillhouse.sandbox.profile import Limits, SandboxProfile

SHARED_MEMORY_BYTES = 64 << 20
"""Size of /dev/shm, as in a container of Docker."""
SKILL_PLACE = "/skill"
"""Path of a cell's skill, inside."""
UID = 65534
"""User and group inside; outside they are the caller's, who may write the workspace."""

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_CELL_DEVICES = ("null", "zero", "urandom")
_DEVICES = (*_CELL_DEVICES, "full", "random", "tty")
_DEVICE_LINKS = {
    "random": "urandom",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_ETC = ("alternatives", "ld.so.cache")
"""What ordinary programs need of /etc, if the host has it; none of it is secret."""
JAVA_MANAGEMENT = "management"
"""The part of a JDK's settings that may hold passwords."""
_ETC_TRUST = ("ssl/certs", "ssl/openssl.cnf", "pki/tls", "ca-certificates")
"""Trusted certificates, for runs that reach servers."""
_ETC_NETWORK = ("resolv.conf", "hosts")
ETC_FILES = {
    "/etc/passwd": f"nobody:x:{UID}:{UID}:nobody:{HOME}:/bin/sh\n",
    "/etc/group": f"nogroup:x:{UID}:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
ETC_HOSTS = {"/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n"}
CELL_FILES: Mapping[str, str] = ETC_FILES | ETC_HOSTS
"""The files that a cell gets instead of the host's."""


@functools.cache
def java_settings() -> tuple[str, ...]:
    """Return where Debian's JDKs have their settings, to which their own files link.

    Without `java.security` no compiler starts.
    """
    found = (
        place for place in glob.glob("/etc/java-*") if os.path.isdir(f"{place}/{JAVA_MANAGEMENT}")
    )
    return tuple(sorted(found)[:4])


class CellView(Struct, frozen=True, kw_only=True):
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
    reaches: bool = False
    """True: it sees the trusted certificates, as its calls may have a way to servers."""


def cell_options(view: CellView, *, files: Mapping[str, int]) -> Iterator[str]:
    """Yield the options of a cell: no workspace, and nothing of the host is writable.

    There is no /proc: it would show all calls of a cell that forks, and in `mountinfo`, which no
    mount can cover for processes to come, where on the host each bind comes from.
    """
    profile = SandboxProfile(view.skill, limits=view.limits, environment=view.environment)
    capabilities = ("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP")
    yield from namespace_options(profile, "cell", *(capabilities if view.forks else ()))
    yield from own_options(profile, files, is_cell=True)
    yield from ("--ro-bind", str(view.skill), view.skill_place)
    for path, place in view.mounts:
        yield from ("--ro-bind", str(path), place)
    for name in _ETC_TRUST if view.reaches else ():
        if os.path.exists(trusted := f"/etc/{name}"):
            yield from ("--ro-bind", trusted, trusted)
    yield from ("--chdir", view.skill_place)
    yield from program_options()


def namespace_options(profile: SandboxProfile, hostname: str, *more: str) -> Iterator[str]:
    """Yield the namespaces, capabilities and variables; `more` widens them."""
    yield from ("--unshare-all", "--unshare-user", "--disable-userns")
    yield from ("--uid", str(UID), "--gid", str(UID), "--cap-drop", "ALL", "--hostname", hostname)
    yield from more
    yield from ("--new-session", "--die-with-parent", "--clearenv")
    proxied = interpreters.proxy_variables() if profile.proxy_socket else {}
    for name, value in {
        **interpreters.variables(profile.environment, profile.tools),
        **proxied,
    }.items():
        yield from ("--setenv", name, value)


def own_options(
    profile: SandboxProfile, files: Mapping[str, int], *, is_cell: bool = False
) -> Iterator[str]:
    """Yield what is the run's own: /etc, /dev, memory and, but for a cell, /proc."""
    reaching = _ETC_TRUST if profile.network or profile.proxy_socket else ()
    for name in _ETC + reaching + (_ETC_NETWORK if profile.network else ()):
        path = f"/etc/{name}"
        if os.path.exists(path):
            yield from ("--ro-bind", path, path)
    for path in java_settings():
        yield from ("--ro-bind", path, path, "--tmpfs", f"{path}/{JAVA_MANAGEMENT}")
    for path, descriptor in files.items():
        if path not in profile.sealed:
            yield from ("--perms", "0444", "--file", str(descriptor), path)
    if profile.proxy_socket:
        yield from ("--ro-bind", str(profile.proxy_socket), interpreters.BRIDGE_SOCKET)
    # INVARIANT: read-only. What /proc/sys and /proc/sysrq-trigger do is for the superuser's id, not
    # for capabilities, so a run that is root's outside could set kernel.core_pattern, which names
    # a program for the host to run. bubblewrap 0.8 means to cover them and here does not.
    if not is_cell:
        yield from ("--proc", "/proc", "--remount-ro", "/proc")
    yield from _cell_devices() if is_cell else _devices()
    for path, size in writable(profile.limits):
        yield from ("--size", str(size), "--perms", "1777", "--tmpfs", path)
    # Its owner could make it writable and fill what `--dev` makes, which is of any size; a later
    # call of a cell would see it. Terminals and memory are file systems of their own below it.
    yield from ("--remount-ro", "/dev")


def _devices() -> Iterator[str]:
    """Yield the devices of a command: those of a cell, `full`, and terminals of its own.

    Only `--dev` mounts a devpts, as an instance in which no terminal of the host has a name. It
    brings `tty` too, which is the terminal that a program has made its own; a run begins without
    one. Were bubblewrap's output a terminal, it would be `console`, which is a file of ours here.
    """
    yield from ("--dev", "/dev")
    place = _device_place()
    if place != "/dev":
        for name in _DEVICES:
            yield from ("--dev-bind", f"{place}/{name}", f"/dev/{name}")
    yield from ("--dev-bind", f"{place}/null", "/dev/console")


class _DeviceFiles:
    """Files of devices that are ours, as those of the host; where /dev is, devices can be opened.

    Raises OSError where this process may not make them.
    """

    def __init__(self) -> None:
        self.place = own_directory(self, Path("/dev"))
        for name in _DEVICES:
            os.mknod(f"{self.place}/{name}", stat.S_IFCHR, os.stat(f"/dev/{name}").st_rdev)
        os.close(os.open(f"{self.place}/null", os.O_RDWR | os.O_CLOEXEC))


@functools.cache
def _device_files(process: int) -> _DeviceFiles | None:
    del process  # A fork has its own: those of the process before go with that.
    try:
        return _DeviceFiles() if os.geteuid() == 0 else None
    except OSError:
        return None


def _device_place() -> str:
    """Return where the files are that a run has of devices.

    INVARIANT: the superuser's runs have none of the host's. Their owner could change the mode of
    `/dev/null` for every process of the machine, as no mount of bubblewrap's is read-only and lets
    devices be opened.
    """
    files = _device_files(os.getpid())
    if files is None:
        return "/dev"
    for name in _DEVICES:
        # An earlier run may have changed it.
        os.chmod(f"{files.place}/{name}", 0o666)  # noqa: S103 - as those of the host.
    return files.place


def _cell_devices() -> Iterator[str]:
    """Yield what code needs that starts no programs, in a directory of one page."""
    yield from ("--size", "4096", "--perms", "0555", "--tmpfs", "/dev")
    place = _device_place()
    for name in _CELL_DEVICES:
        yield from ("--dev-bind", f"{place}/{name}", f"/dev/{name}")
    for name, target in _DEVICE_LINKS.items():
        yield from ("--symlink", target, f"/dev/{name}")


def writable(limits: Limits) -> tuple[tuple[str, int], ...]:
    """Return the writable directories in memory, with their sizes in bytes."""
    return (
        ("/dev/shm", min(SHARED_MEMORY_BYTES, limits.memory_bytes)),  # noqa: S108 - its own.
        (HOME, min(limits.tmp_bytes, limits.memory_bytes)),
    )


def program_options(
    denied: Iterable[str] = (),
    mask: str = "",
    runners: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the system's programs, and make the root directory read-only.

    INVARIANT: they come last. If we are killed while we write the options, bubblewrap uses those
    that it received; without these there is no program to run, whatever else is missing. Where
    programs are covered, the links by which each finds its loader come after them.

    Args:
        denied: Real paths of programs that are covered.
        mask: What is mounted over them.
        runners: Such programs that run the command all the same, and the paths of them inside.
    """
    directories = [f"/{name}" for name in _MERGED if os.path.isdir(f"/{name}")]
    bound = [path for path in directories if not os.path.islink(path)]
    links = [
        word
        for path in directories
        if path not in bound
        for word in ("--symlink", os.readlink(path), path)
    ]
    for path in ("/usr", *bound):
        yield from ("--dir", path)
    for path, place in runners.items():
        yield from ("--ro-bind", path, place)
    denied = tuple(denied)
    if not denied:
        yield from links
        yield from ("--remount-ro", "/")
    for path in (*bound, "/usr"):
        yield from ("--ro-bind", path, path)
    for path in denied:
        yield from ("--ro-bind", mask, path)
    if denied:
        yield from links
        yield from ("--remount-ro", "/")
