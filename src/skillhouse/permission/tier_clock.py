"""The time that cooldowns and allowances go by, which setting the clock does not move."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS = secrets.token_hex(16)


class Instant(Protocol):
    """One look at both clocks, in milliseconds; the signer's `Moment` is one as well."""

    @property
    def wall_ms(self) -> int:
        """Time since 1970, which anybody with the right to may set."""
        ...

    @property
    def running_ms(self) -> int:
        """Time since the machine started, sleep included; nobody can set it."""
        ...

    @property
    def boot(self) -> str:
        """Which start of the machine that was."""
        ...


InstantClock = Callable[[], Instant]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemInstant:
    """This machine's clocks at one moment."""

    wall_ms: int
    running_ms: int
    boot: str


def system_instant() -> Instant:
    """Return this moment; where boots have no name, this process takes the place of one."""
    wall_ms = time.time_ns() // 1_000_000
    try:
        boot = _BOOT_ID.read_text().strip()
        running = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        boot, running = _PROCESS, time.monotonic_ns()
    return SystemInstant(wall_ms=wall_ms, running_ms=running // 1_000_000, boot=boot)


def tick(connection: sqlite3.Connection, instant: Instant) -> int:
    """Return the time in milliseconds, never less than before, and keep it.

    Within one boot only the running clock counts, so setting the wall clock moves nothing. Across
    a reboot the wall clock is believed as long as it does not go back; where it does, time goes
    on from where it was. All windows here are lengths of time, so a day that is named wrongly does
    not matter.
    """
    row = connection.execute(
        "SELECT boot, anchor_ms, running_ms, now_ms FROM tier_clock WHERE id = 1"
    ).fetchone()
    if row is None:
        anchor_ms, running_ms, now_ms = instant.wall_ms, instant.running_ms, instant.wall_ms
    elif row[0] == instant.boot:
        anchor_ms, running_ms = row[1], row[2]
        now_ms = max(row[3], anchor_ms + instant.running_ms - running_ms)
    else:
        now_ms = max(row[3], instant.wall_ms)
        anchor_ms, running_ms = now_ms, instant.running_ms
    connection.execute(
        "INSERT OR REPLACE INTO tier_clock VALUES (1, ?, ?, ?, ?)",
        (instant.boot, anchor_ms, running_ms, now_ms),
    )
    return int(now_ms)
