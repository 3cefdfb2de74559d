"""Control groups: memory and processes of a whole run, counted by the kernel (version 2 or 1).

A group is made for each run beside or below our own and removed after it. Its name contains our
process id, so that groups of a crashed process are found, emptied and removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio

from skillhouse.sandbox.profile import Limits
from skillhouse.sandbox.sandbox_errors import SandboxError

HELPERS = 2
"""Processes of bubblewrap itself that are counted."""
EMPTY_SECONDS = 5.0
"""Longest wait for killed processes to leave a group; freeing their memory takes time."""

T = TypeVar("T")
_NAME = re.compile(r"skillhouse-(\d+)-\d+")
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupPlace:
    """Where groups can be made: one directory in version 2, one for each controller in 1."""

    version: int
    memory: Path
    pids: Path
    cpu: Path | None = None
    """Where processor time can be weighted too; the level does not require it."""

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.memory,) if self.memory == self.pids else (self.memory, self.pids)


def find_place(process: Path) -> CgroupPlace | None:
    """Return where this process can make groups, or None.

    Args:
        process: /proc/self, or a test's substitute.
    """
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


class Cage:
    """The control group of one run. `add` the first process before it starts others."""

    def __init__(
        self, place: CgroupPlace, limits: Limits, *, cpu_weight: int | None = None
    ) -> None:
        """Make the group.

        Args:
            cpu_weight: Its share of contended processors, where the default is 100; without it,
                each of its processes has a share of its own.

        Raises:
            SandboxError: "cgroup-failed".
        """
        name = f"skillhouse-{os.getpid()}-{next(_NUMBERS)}"
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
            self._discard()
            raise SandboxError("cgroup-failed", f"cannot make a control group: {error}") from error

    def _limit(self, limits: Limits) -> None:
        memory = str(limits.memory_bytes)
        _write(self._pids / "pids.max", str(limits.processes + HELPERS))
        if self._version == 2:
            _write(self._memory / "memory.max", memory)
            _write(self._memory / "memory.oom.group", "1")
            # A kernel without swap accounting has no such file.
            with contextlib.suppress(FileNotFoundError):
                _write(self._memory / "memory.swap.max", "0")
            return
        _write(self._memory / "memory.limit_in_bytes", memory)
        with contextlib.suppress(FileNotFoundError):
            _write(self._memory / "memory.memsw.limit_in_bytes", memory)

    def _share(self, weight: int | None) -> None:
        if self._cpu is not None and weight is not None:
            # The default is 100 in version 2, and 1024 in version 1.
            name, value = (
                ("cpu.weight", weight)
                if self._version == 2
                else ("cpu.shares", weight * 1_024 // 100)
            )
            _write(self._cpu / name, str(value))

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
        try:
            for directory in directories:
                _write(directory / "tasks", "0")
        except OSError as error:
            raise SandboxError("cgroup-failed", f"cannot join a control group: {error}") from error

    def add(self, pid: int) -> None:
        if self._version == 2:
            try:
                _write(self._memory / "cgroup.procs", str(pid))
            except OSError as error:
                message = f"cannot join a control group: {error}"
                raise SandboxError("cgroup-failed", message) from error

    def reached(self) -> str:
        """Return the exceeded limit: "memory", "processes" or ""."""
        events = "memory.events" if self._version == 2 else "memory.oom_control"
        if _count(self._memory / events, "oom_kill"):
            return "memory"
        return "processes" if _count(self._pids / "pids.events", "max") else ""

    def kill(self) -> None:
        _kill(self._directories)

    async def remove(self) -> None:
        """Remove the group once its processes are gone; until then kill what is in it.

        Raises:
            SandboxError: "cgroup-busy", processes are still there after EMPTY_SECONDS.
        """
        with anyio.move_on_after(EMPTY_SECONDS):
            while not self._discard():
                self.kill()
                await anyio.sleep(0.001)
            return
        raise SandboxError("cgroup-busy", "processes of a run cannot be killed")

    def _discard(self) -> bool:
        return _discard(self._directories)


def sweep(place: CgroupPlace) -> None:
    """Kill and remove the groups of processes that no longer exist (after a crash)."""
    for parent in place.directories:
        for directory in parent.glob("skillhouse-*"):
            owner = _NAME.fullmatch(directory.name)
            if owner is not None and not Path("/proc", owner[1]).exists():
                _kill((directory,))
                _discard((directory,))


def _discard(directories: tuple[Path, ...]) -> bool:
    """Remove the groups; False while one still holds processes."""
    for directory in directories:
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _kill(directories: tuple[Path, ...]) -> None:
    for directory in directories:
        try:
            _write(directory / "cgroup.kill", "1")
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                for pid in map(int, (directory / "cgroup.procs").read_text().split()):
                    # 0 is a process of another pid namespace, and would kill our own group.
                    if pid not in (0, os.getpid()):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def _write(path: Path, text: str) -> None:
    # Without O_CREAT: a file that the kernel does not have is an error.
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _count(path: Path, name: str) -> int:
    """Return the number behind `name` in a file of lines "name number"; 0 without it."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
