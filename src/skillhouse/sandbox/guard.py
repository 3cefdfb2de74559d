"""Limits memory and number of a run's processes: by control groups, or else by rlimits.

A control group (version 2 or 1) is made for each run beside or below our own and removed after it.
Its name contains that of our process, so that groups of a crashed one are found and removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
from msgspec import Struct

from skillhouse.floor.crash_cleanup import (
    COMMON_NAME,
    clean_groups,
    kill_group,
    owner_name,
    remove_group,
)
from skillhouse.sandbox.profile import Limits, SandboxError

HELPERS = 2
"""Processes of bubblewrap itself that are counted."""
EMPTY_SECONDS = 5.0
"""Longest wait for killed processes to leave a group; freeing their memory takes time."""

_NUMBERS = itertools.count()


class CgroupPlace(Struct, frozen=True, kw_only=True):
    """Where groups can be made: one directory in version 2, one for each controller in 1."""

    version: int
    memory: Path
    pids: Path
    cpu: Path | None = None
    """Where processor time can be weighted too; the level does not require it."""

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.memory,) if self.memory == self.pids else (self.memory, self.pids)

    @property
    def parents(self) -> tuple[Path, ...]:
        """The directories, and that of processor time: all in which groups are made."""
        return tuple(dict.fromkeys((*self.directories, *((self.cpu,) if self.cpu else ()))))


def find_place(process: Path) -> CgroupPlace | None:
    """Return where groups can be made; `process` is /proc/self, or a test's substitute."""
    try:
        mounts = (process / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        groups = (process / "cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    own = dict(_own_directories(mounts, groups))
    if unified := own.get(""):
        # A sibling is preferred: version 2 gives a group with processes no controlled children.
        for parent in (unified.parent, unified):
            if _controls(parent) and _writable(parent):
                cpu = parent if _controls(parent, "cpu") else None
                return CgroupPlace(version=2, memory=parent, pids=parent, cpu=cpu)
    memory, pids = own.get("memory"), own.get("pids")
    if memory and pids and _writable(memory) and _writable(pids):
        cpu = own.get("cpu")
        cpu = cpu if cpu and _writable(cpu) else None
        return CgroupPlace(version=1, memory=memory, pids=pids, cpu=cpu)
    return None


def _own_directories(mounts: str, groups: str) -> Iterator[tuple[str, Path]]:
    """Yield (controller, directory of our own group); the controller of version 2 is ""."""
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, choices = after.split()[:3]
        names = [""] if kind == "cgroup2" else choices.split(",") if kind == "cgroup" else []
        for name in names:
            if name in paths:
                relative = os.path.relpath(paths[name], root)
                yield name, Path(point) / ("" if relative.startswith("..") else relative)


def _controls(directory: Path, *names: str) -> bool:
    try:
        given = (directory / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return set(names or ("memory", "pids")) <= set(given)


def _writable(directory: Path) -> bool:
    return os.access(directory, os.W_OK) and os.access(directory / "cgroup.procs", os.W_OK)


class CgroupGuard:
    """The kernel counts for the whole run; `add` its first process before it starts others."""

    def __init__(
        self, place: CgroupPlace, limits: Limits, *, cpu_weight: int | None = None
    ) -> None:
        """Make the group.

        Args:
            cpu_weight: Its share of contended processors, where the default is 100; without it,
                each of its processes has a share of its own.
        """
        self.resource_limits: Mapping[int, int] = _common(limits)
        self.inner_limits: Mapping[int, int] = {}
        name = f"{COMMON_NAME}{owner_name()}-{next(_NUMBERS)}"
        self._version = place.version
        self._memory, self._pids = place.memory / name, place.pids / name
        self._cpu = place.cpu / name if place.cpu and cpu_weight else None
        parents = dict.fromkeys((*place.directories, *((place.cpu,) if self._cpu else ())))
        self._directories = tuple(parent / name for parent in parents if parent)
        try:
            for directory in self._directories:
                directory.mkdir()
            self._limit(limits)
            self._share(cpu_weight)
        except OSError as error:
            _discard(self._directories)
            raise SandboxError("cgroup-failed", f"cannot make a control group: {error}") from error

    def _limit(self, limits: Limits) -> None:
        memory = str(limits.memory_bytes)
        _write(f"{self._pids}/pids.max", str(limits.processes + HELPERS))
        if self._version == 2:
            _write(f"{self._memory}/memory.max", memory)
            _write(f"{self._memory}/memory.oom.group", "1")
            # A kernel without swap accounting has no such file.
            with contextlib.suppress(FileNotFoundError):
                _write(f"{self._memory}/memory.swap.max", "0")
            return
        _write(f"{self._memory}/memory.limit_in_bytes", memory)
        with contextlib.suppress(FileNotFoundError):
            _write(f"{self._memory}/memory.memsw.limit_in_bytes", memory)

    def _share(self, weight: int | None) -> None:
        if self._cpu is not None and weight is not None:
            # The default is 100 in version 2, and 1024 in version 1.
            if self._version == 2:
                _write(f"{self._cpu}/cpu.weight", str(weight))
            else:
                _write(f"{self._cpu}/cpu.shares", str(weight * 1_024 // 100))

    def start(self, spawn: Callable[[], T]) -> T:
        """Return what `spawn` does, with the processes that it starts in the group.

        In version 1 this thread goes in and out again around it, in 0.05 ms: to move another
        process, the kernel waits until all processors have passed by, which takes 5-15 ms. In
        version 2 a thread cannot go alone, so `add` follows.
        """
        if self._version == 2:
            return spawn()
        try:
            self._go(self._directories)
            return spawn()
        finally:
            self._go(tuple(directory.parent for directory in self._directories))

    def _go(self, directories: tuple[Path, ...]) -> None:
        for directory in directories:
            _join(f"{directory}/tasks", 0)

    def add(self, pid: int) -> None:
        if self._version == 2:
            _join(f"{self._memory}/cgroup.procs", pid)

    is_watching = False

    async def watch(self, init: int) -> str:
        return ""

    def reached(self) -> str:
        events = "memory.events" if self._version == 2 else "memory.oom_control"
        if _count(self._memory / events, "oom_kill"):
            return "memory"
        return "processes" if _count(self._pids / "pids.events", "max") else ""

    def kill(self) -> None:
        for directory in self._directories:
            kill_group(directory)

    async def remove(self) -> None:
        """Remove the group once its processes are gone; until then kill what is in it."""
        with anyio.move_on_after(EMPTY_SECONDS):
            while not _discard(self._directories):
                self.kill()
                await anyio.sleep(0.001)
            return
        raise SandboxError("cgroup-busy", "processes of a run cannot be killed")


def sweep(place: CgroupPlace) -> None:
    """Kill and remove the groups of processes that no longer exist (after a crash)."""
    clean_groups(place.parents)


def _discard(directories: tuple[Path, ...]) -> bool:
    """Remove the groups; False while one still holds processes."""
    removed = [remove_group(directory) for directory in directories]
    return all(removed)


def _join(path: str, process: int) -> None:
    try:
        _write(path, str(process))
    except OSError as error:
        raise SandboxError("cgroup-failed", f"cannot join a control group: {error}") from error


def _write(path: str, text: str) -> None:
    # Without O_CREAT: a file that the kernel does not have is an error.
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _count(path: Path, name: str) -> int:
    """Return the number behind `name` in a file of lines "name number"."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


OPEN_FILES = 1_024
"""Open files of each process (the usual soft limit of Linux distributions)."""
WATCH_SECONDS = 0.01
"""Pause between two checks of a run without control group: the limits of each process bound what a
bomb can do meanwhile, and a check costs 0.1 ms."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

T = TypeVar("T")


class ProcessGuard(Protocol):
    resource_limits: Mapping[int, int]
    """Limits of bubblewrap and all below, set before it reads its options."""
    inner_limits: Mapping[int, int]
    """Limits of the processes inside only, set before the program starts."""

    is_watching: bool
    """Whether `watch` does something: else the kernel enforces all limits."""

    def start(self, spawn: Callable[[], T]) -> T:
        """Return the result of `spawn`, with the processes that it starts under the limits."""
        ...

    def add(self, pid: int) -> None:
        """Put a waiting process under the limits."""
        ...

    async def watch(self, init: int) -> str:
        """Return the exceeded limit; "" where there was none, or the kernel enforces it."""
        ...

    def reached(self) -> str:
        """Return the limit that the kernel reports as exceeded: "memory", "processes" or ""."""
        ...

    def kill(self) -> None: ...

    async def remove(self) -> None: ...


def _common(limits: Limits) -> dict[int, int]:
    return {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_FSIZE: limits.file_bytes,
    }


class RlimitGuard:
    """The kernel limits each process, and we poll all of them.

    RLIMIT_DATA, since RLIMIT_AS stops programs that reserve addresses (V8). RLIMIT_NPROC counts
    within the run's own user namespace; but a process that is the superuser's outside may always
    fork (Linux, copy_process), and polling is too slow for that, so `detect` offers this level only
    to other users.
    """

    def __init__(
        self, limits: Limits, *, pause_seconds: Callable[[], float] = lambda: WATCH_SECONDS
    ) -> None:
        self._limits = limits
        self._pause_seconds = pause_seconds
        self.resource_limits: Mapping[int, int] = _common(limits) | {
            resource.RLIMIT_DATA: limits.memory_bytes
        }
        # Not on bubblewrap itself: there it would count all processes of the user.
        self.inner_limits: Mapping[int, int] = {resource.RLIMIT_NPROC: limits.processes}

    is_watching = True

    def start(self, spawn: Callable[[], T]) -> T:
        return spawn()

    def add(self, pid: int) -> None:
        """Do nothing."""

    async def watch(self, init: int) -> str:
        while True:
            began = time.monotonic()
            processes, memory_bytes = usage(init, stop_at=self._limits.processes + 2)
            if not processes:
                return ""
            if processes > self._limits.processes + 1:
                return "processes"
            if memory_bytes > self._limits.memory_bytes:
                return "memory"
            await anyio.sleep(self._pause(began))

    def _pause(self, began: float) -> float:
        """Return the pause behind a check, which leaves most of the time to others: one of 1,000
        processes takes some 10 ms."""
        return max(self._pause_seconds(), 4 * (time.monotonic() - began))

    def reached(self) -> str:
        return ""

    def kill(self) -> None:
        """Do nothing: the first process inside takes all others with it."""

    async def remove(self) -> None:
        """Do nothing."""


def usage(init: int, *, stop_at: int) -> tuple[int, int]:
    """Return the number of processes from `init` down, and their resident bytes.

    Shared memory is counted for each, so the sum is never too small. Counting ends at `stop_at`
    processes.
    """
    count = total = 0
    waiting = [init]
    while waiting and count < stop_at:
        pid = waiting.pop()
        place = Path("/proc", str(pid))
        try:
            resident = int((place / "statm").read_text().split()[1])
            for task in os.listdir(place / "task"):
                children = (place / "task" / task / "children").read_text()
                waiting += map(int, children.split())
        except (OSError, ValueError):
            continue
        count += 1
        total += resident * _PAGE_BYTES
    return count, total
