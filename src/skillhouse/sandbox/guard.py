"""Limits memory and number of a run's processes: by control groups, or else by rlimits."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from skillhouse.sandbox.cgroup import Cage, CgroupPlace
from skillhouse.sandbox.profile import Limits

OPEN_FILES = 1_024
"""Open files of each process (the usual soft limit of Linux distributions)."""
WATCH_SECONDS = 0.01
"""Pause between two checks of a run without control group: the limits of each process bound what a
bomb can do meanwhile, and a check costs 0.1 ms."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

T = TypeVar("T")


class ProcessGuard(Protocol):
    """Enforces the limits of one run."""

    resource_limits: Mapping[int, int]
    """Limits of bubblewrap and all below, set before it reads its options."""
    inner_limits: Mapping[int, int]
    """Limits of the processes inside only, set before the program starts."""

    def start(self, spawn: Callable[[], T]) -> T:
        """Return the result of `spawn`, with the processes that it starts under the limits."""
        ...

    def add(self, pid: int) -> None:
        """Put a waiting process under the limits."""
        ...

    async def watch(self, init: int) -> str:
        """Return the exceeded limit; "" at once if the kernel enforces it."""
        ...

    def reached(self) -> str:
        """Return the limit that the kernel reports as exceeded, or ""."""
        ...

    def kill(self) -> None:
        """Kill the processes under the limits."""
        ...

    async def remove(self) -> None:
        """Release the means; no process is left."""
        ...


def _common(limits: Limits) -> dict[int, int]:
    return {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_FSIZE: limits.file_bytes,
    }


class CgroupGuard:
    """The kernel counts memory and processes of the whole run."""

    def __init__(
        self, place: CgroupPlace, limits: Limits, *, cpu_weight: int | None = None
    ) -> None:
        self._cage = Cage(place, limits, cpu_weight=cpu_weight)
        self.resource_limits: Mapping[int, int] = _common(limits)
        self.inner_limits: Mapping[int, int] = {}

    def start(self, spawn: Callable[[], T]) -> T:
        return self._cage.start(spawn)

    def add(self, pid: int) -> None:
        self._cage.add(pid)

    async def watch(self, init: int) -> str:
        return ""

    def reached(self) -> str:
        return self._cage.reached()

    def kill(self) -> None:
        self._cage.kill()

    async def remove(self) -> None:
        await self._cage.remove()


class RlimitGuard:
    """The kernel limits each process, and we poll all of them.

    RLIMIT_DATA, since RLIMIT_AS stops programs that reserve addresses (V8). RLIMIT_NPROC counts
    within the run's own user namespace; but a process that is the superuser's outside may always
    fork (Linux, copy_process), and polling is too slow for that, so `detect` offers this level only
    to other users.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.resource_limits: Mapping[int, int] = _common(limits) | {
            resource.RLIMIT_DATA: limits.memory_bytes
        }
        # Not on bubblewrap itself: there it would count all processes of the user.
        self.inner_limits: Mapping[int, int] = {resource.RLIMIT_NPROC: limits.processes}

    def start(self, spawn: Callable[[], T]) -> T:
        return spawn()

    def add(self, pid: int) -> None:
        """Do nothing."""

    async def watch(self, init: int) -> str:
        while True:
            processes, memory_bytes = usage(init, stop_at=self._limits.processes + 2)
            if not processes:
                return ""
            if processes > self._limits.processes + 1:
                return "processes"
            if memory_bytes > self._limits.memory_bytes:
                return "memory"
            await self.pause()

    async def pause(self) -> None:
        await anyio.sleep(WATCH_SECONDS)

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
