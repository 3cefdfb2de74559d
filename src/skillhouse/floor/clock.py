"""The time of this machine by two clocks, one of which cannot be set."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS = secrets.token_hex(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One reading of both clocks, in milliseconds."""

    wall_ms: int
    """Time since 1970, which anybody with the right to may set."""
    running_ms: int
    """Time since the machine started, sleep included; it cannot be set."""
    boot: str
    """Which start of the machine that was."""


Clock = Callable[[], Moment]


def system_clock() -> Moment:
    """Return this moment; where boots have no name, this process takes the place of one."""
    wall_ms = time.time_ns() // 1_000_000
    try:
        boot = _BOOT_ID.read_text().strip()
        running = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        boot, running = _PROCESS, time.monotonic_ns()
    return Moment(wall_ms=wall_ms, running_ms=running // 1_000_000, boot=boot)


class SteadyClock:
    """Seconds since 1970 that setting the clock back does not move back while the process runs.

    Setting it forward is believed for as long as it stays so: what ends, ends rather too early.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        running: Callable[[], float] | None = None,
    ) -> None:
        self._wall = wall
        self._running = running or _running
        self._ahead = wall() - self._running()

    def __call__(self) -> float:
        return max(self._wall(), self._ahead + self._running())


def _running() -> float:
    """Return seconds of a clock that cannot be set, with time asleep where the system counts it."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        return time.monotonic()
