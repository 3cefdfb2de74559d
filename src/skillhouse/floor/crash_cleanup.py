"""Removes what a killed process of ours left: sandboxes, control groups and directories.

Whatever we leave on a machine has its owner's name: process id, start time, pid namespace and boot.
It is removed only if that very process is gone; of another pid namespace that is not known here.

It runs in two ways: by each start that sees such names, and as a script with the standard library
only, which `crash_watch` starts when its process was killed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

SANDBOX_NAME = "skillhouse-sandbox-"
"""Begins the first word of the command line of each bubblewrap, before the owner."""
COMMON_NAME = "skillhouse-"
"""Begins the names of control groups and temporary directories, before the owner."""
MARKER_NAME = "running-"
"""A file in the state directory while its owner runs: lines "kind:value", as `clean` takes them."""
COPY_NAME = "cell-"
STASH_NAME = "placeholders-"
END = "end"
"""The line by which a process says that it has ended properly."""
GONE_SECONDS = 4.0
PAUSE_SECONDS = 0.01
MARKER_BYTES = 1 << 20
PLACEHOLDER_NS = 1_000_000_007 * 1_000_000_000
"""Modification time of a placeholder, by which one that a crash left behind is recognised: no other
directory has exactly this second with zero nanoseconds, unless a program set it."""
PLACEHOLDER_FILES = {"commondir": b".", "config.worktree": b""}
"""Placeholders that are files, with their content: git fails on a directory there. It reads that
the repository is the directory itself, as it is without the file (gitrepository-layout(5))."""
PLACEHOLDER_SOCKETS = frozenset({".gitmodules", ".npmrc"})
"""Placeholders that are sockets, on which a run has an empty file: pnpm, yarn and bun fail on a
directory there, and git warns of one. Git passes over a socket, so that no one commits what is not
theirs."""

_PROC = Path("/proc")
_OWNER = re.compile(r"([0-9a-f]+)\.([0-9a-f]+)\.([0-9a-f]{8})\.([0-9a-f]{8})(?:-.*)?", re.DOTALL)
"""Short, as the address of a socket below a temporary directory has 107 bytes at most."""


def owner_name() -> str:
    """Return the name of this process, which no other one ever has."""
    return _owner_of(os.getpid())


@functools.cache
def _owner_of(pid: int) -> str:
    try:
        if os.readlink(_PROC / "self") == str(pid):
            return f"{pid:x}.{_started(pid):x}.{_namespace():08x}.{_boot()}"
        boot = _boot()
    except OSError:
        boot = "0" * 8
    # There is no /proc, or that of another namespace: what has this name is never removed.
    return f"{pid:x}.0.{0:08x}.{boot}"


@functools.cache
def _boot() -> str:
    text = (_PROC / "sys/kernel/random/boot_id").read_bytes()
    return hashlib.sha256(text).hexdigest()[:8]


def _namespace() -> int:
    return os.stat(_PROC / "self/ns/pid").st_ino


def _started(pid: int) -> int:
    """Return the start time of a process that runs, in ticks since the boot; 0 for none."""
    try:
        _, _, rest = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return 0
    fields = rest.split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_left(name: str, prefix: str) -> bool:
    """Whether something of that name is ours, and its owner is gone."""
    found = _OWNER.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    if found is None:
        return False
    pid, started, namespace, boot = found.groups()
    if sys.platform != "linux":
        return False
    if boot != _boot():
        return int(namespace, 16) != 0
    return int(namespace, 16) == _namespace() and _started(int(pid, 16)) != int(started, 16)


def clean(lines: Iterable[str]) -> None:
    """Remove what gone processes left, in the places that lines "kind:value" name.

    Kinds: `state` (its markers are read too), `copies`, `temporary`, `cgroup`, `placeholder`.
    """
    end_sandboxes()
    _remove(lines)


def _remove(lines: Iterable[str]) -> None:
    for kind, _, value in (line.rstrip("\n").partition(":") for line in lines):
        if kind == "cgroup":
            clean_groups((Path(value),))
        elif kind == "temporary":
            _remove_trees(value, COMMON_NAME)
        elif kind == "copies":
            _remove_trees(value, COPY_NAME)
        elif kind == "placeholder":
            _remove_placeholders(value)
        elif kind == "state":
            _remove_marked(Path(value), left_markers(Path(value)))


def clean_state(state: Path) -> None:
    """Remove what the markers of a state directory name, if their owners are gone."""
    if markers := left_markers(state):
        end_sandboxes()
        _remove_marked(state, markers)


def _remove_marked(state: Path, markers: Iterable[Path]) -> None:
    for marker in markers:
        _remove(line for line in _marker_lines(marker) if not line.startswith("state:"))
        with contextlib.suppress(OSError):
            marker.unlink()
    sweep_stashes(state)


def left_markers(state: Path) -> tuple[Path, ...]:
    """Return the markers of processes that are gone; one listing of the directory."""
    try:
        names = os.listdir(state)
    except OSError:
        return ()
    return tuple(state / name for name in sorted(names) if is_left(name, MARKER_NAME))


def _marker_lines(marker: Path) -> list[str]:
    try:
        handle = os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            return []
        return os.fsdecode(file.read(MARKER_BYTES)).splitlines()


def end_sandboxes() -> None:
    """Kill each bubblewrap whose owner is gone, until none is left.

    One that is killed while it makes its namespaces can leave a first process inside that is not
    bound to it yet, so it is looked again.
    """
    until = time.monotonic() + GONE_SECONDS
    quiet = 0
    while quiet < 2 and time.monotonic() < until:
        killed = sum(map(_kill, _left_sandboxes()))
        quiet = 0 if killed else quiet + 1
        if killed or quiet < 2:
            time.sleep(PAUSE_SECONDS)


def _left_sandboxes() -> Iterator[int]:
    for place in os.listdir(_PROC):
        if place.isdigit() and _is_left_sandbox(place):
            yield int(place)


def _is_left_sandbox(pid: str) -> bool:
    try:
        with open(_PROC / pid / "cmdline", "rb") as file:
            word = os.fsdecode(file.read(200).partition(b"\0")[0])
        return is_left(word, SANDBOX_NAME) and _is_own(pid)
    except OSError:
        return False


def _is_own(pid: str) -> bool:
    """Whether a process is of our user: others may give theirs any command line."""
    for line in (_PROC / pid / "status").read_text(errors="replace").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1]) == os.geteuid()
    return False


def _kill(pid: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Looked at while the handle is held, so the number is not another process's by now.
        if not _is_left_sandbox(str(pid)):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def clean_groups(parents: Iterable[Path]) -> None:
    """Kill what is in control groups of gone processes, and remove them."""
    for parent in dict.fromkeys(parents):
        try:
            names = os.listdir(parent)
        except OSError:
            continue
        for name in names:
            group = parent / name
            if is_left(name, COMMON_NAME) and _owned(group):
                until = time.monotonic() + GONE_SECONDS
                while not remove_group(group) and time.monotonic() < until:
                    kill_group(group)
                    time.sleep(PAUSE_SECONDS)


def remove_group(group: Path) -> bool:
    """Remove a control group; False while it holds processes."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def kill_group(group: Path) -> None:
    """Kill all processes of a control group."""
    try:
        # Without O_CREAT: a file that the kernel does not have is an error.
        handle = os.open(group / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            for pid in map(int, (group / "cgroup.procs").read_text().split()):
                # 0 is a process of another pid namespace, and would kill our own group.
                if pid not in (0, os.getpid()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        return
    except OSError:
        return
    with contextlib.suppress(OSError):
        os.write(handle, b"1")
    os.close(handle)


def _owned(path: Path) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()


def _remove_trees(base: str, prefix: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            path = Path(base, name)
            if is_left(name, prefix) and _owned(path):
                shutil.rmtree(path, ignore_errors=True)


def sweep_stashes(state: Path) -> None:
    """Remove the reusable placeholders of gone processes."""
    remove_stashes(state, lambda name: is_left(name, STASH_NAME))


def remove_stashes(state: Path, is_meant: Callable[[str], bool]) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(state):
            if is_meant(name) and _owned(state / name):
                # Only empty directories are removed: rmdir, never a whole tree.
                with contextlib.suppress(OSError):
                    for inner in os.listdir(state / name):
                        os.rmdir(state / name / inner)
                    os.rmdir(state / name)


def is_placeholder(path: str) -> bool:
    """Whether a path is our empty directory, our socket, or our file that says nothing.

    Any program can give its own the same time, so what it holds counts as well.
    """
    try:
        info = os.lstat(path)
        if info.st_mtime_ns != PLACEHOLDER_NS:
            return False
        if stat.S_ISDIR(info.st_mode):
            return not os.listdir(path)
        if stat.S_ISSOCK(info.st_mode):
            return os.path.basename(path) in PLACEHOLDER_SOCKETS
        content = PLACEHOLDER_FILES.get(os.path.basename(path))
        if content is None or not stat.S_ISREG(info.st_mode) or info.st_size != len(content):
            return False
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False


def remove_placeholder(path: str) -> None:
    """Remove a placeholder; what a program of the host put there meanwhile stays."""
    if not is_placeholder(path):
        return
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)


def _remove_placeholders(value: str) -> None:
    """Remove placeholders from a workspace that no run uses; the last one out does."""
    try:
        workspace, *paths = json.loads(value)
        handle = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError, TypeError):
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in paths:
            if path.startswith(f"{workspace}/"):
                remove_placeholder(path)
    except OSError:
        return
    finally:
        os.close(handle)


if __name__ == "__main__":
    clean(sys.argv[1:])
