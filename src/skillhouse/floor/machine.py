"""This machine: its clocks and signals, and where a process and its user's files are."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

from msgspec import Struct

from skillhouse.floor.errors import LocationError
from skillhouse.floor.paths import is_utf8
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import PartialStruct

SERVER_NAME = regex("[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""What a server may be called: a name of a host, or of a pod."""
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS = os.urandom(16).hex()


def seconds_of(text: str, *, units: str, digits: int) -> int | None:
    """Return a length of time of at most so many digits and one of the units; None for no such.

    >>> seconds_of("24h", units="mhd", digits=5), seconds_of("90s", units="mhd", digits=5)
    (86400, None)
    """
    number, unit = text[:-1], text[-1:]
    is_number = number.isascii() and number.isdecimal() and len(number) <= digits
    return int(number) * _SECONDS[unit] if is_number and unit in units and unit else None


@contextmanager
def signals_to(handle: Callable[..., object]) -> Iterator[None]:
    """Call `handle` on SIGINT and SIGTERM within the block; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ClockReading(Struct, frozen=True, kw_only=True):
    """One reading of both clocks, in milliseconds."""

    wall_ms: int
    """Time since 1970, which anybody with the right to may set."""
    running_ms: int
    """Time since the machine started, sleep included; it cannot be set."""
    boot: str
    """Which start of the machine that was."""


Clock = Callable[[], ClockReading]


def system_clock() -> ClockReading:
    """Return this moment; where boots have no name, this process takes the place of one."""
    wall_ms = time.time_ns() // 1_000_000
    try:
        boot = _BOOT_ID.read_text().strip()
        running = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        boot, running = _PROCESS, time.monotonic_ns()
    return ClockReading(wall_ms=wall_ms, running_ms=running // 1_000_000, boot=boot)


def short_boot_id() -> str:
    """Return the beginning of the id of this start of the system, where it has one."""
    try:
        return _BOOT_ID.read_text("utf-8")[:8]
    except (OSError, ValueError):
        return ""


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


STATE_VARIABLE = "SKILLHOUSE_STATE_DIRECTORY"
STATE_ADVICE = f"set {STATE_VARIABLE} to a directory that you can write"
_HOME_ADVICE = "set HOME to a directory that you can write"
_UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def is_unwritable(error: BaseException | None) -> bool:
    """Whether a place refuses to be written, as a read-only file system does.

    >>> is_unwritable(OSError(errno.EROFS, "read-only")), is_unwritable(OSError(errno.EIO, "bad"))
    (True, False)
    """
    return isinstance(error, OSError) and error.errno in _UNWRITABLE


def state_advice(error: BaseException | None) -> str:
    """Return what to set where the place of the state refuses to be written; else nothing."""
    return STATE_ADVICE if is_unwritable(error) else ""


MANAGED_FILE = Path("/etc/skillhouse/config.toml")


def _current() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        message = "the current directory is gone; go to another one"
        raise LocationError(message, Path(os.environ.get("PWD", "."))) from None


class Locations(PartialStruct, frozen=True, kw_only=True):
    """Directories and environment of this process: everything that is not configuration."""

    HIDDEN: ClassVar = frozenset({"environment"})
    """It may hold any secret."""

    start: Path
    """Where the agent works."""
    home: Path
    environment: Mapping[str, str]
    managed_file: Path = MANAGED_FILE

    @classmethod
    def here(cls, start: Path | None = None) -> Self:
        """Return the places of this process, with `start` below its current directory.

        Raises:
            LocationError: the current directory is gone, or there is no home.
        """
        if start is None or not start.is_absolute():
            start = Path(_current(), start or "")
        try:
            home = Path.home()
        except RuntimeError:
            # No HOME, and a user that the system does not list, as in some containers.
            message = "there is no home directory; set the variable HOME"
            raise LocationError(message, Path("~")) from None
        return cls(start=start, home=home, environment=os.environ)

    def check(self) -> None:
        """Refuse places that cannot be kept: in databases, records and answers names are text.

        Raises:
            LocationError: the name of one of them is not UTF-8.
        """
        for path in (self.start, self.home, self.state(), self.cache()):
            if not is_utf8(str(path)):
                message = "the name of this directory is not UTF-8; rename it, or work in another"
                raise LocationError(message, path)

    @property
    def user_file(self) -> Path:
        return self.home / ".config/skillhouse/config.toml"

    @property
    def policy_file(self) -> Path:
        """The user's tier policy, as published; without one, calls have no tiers."""
        return self.user_file.parent / "policy.yml"

    @property
    def published_file(self) -> Path:
        """The user's repositories, where they are written as design 002 prints them."""
        return self.user_file.parent / "config.yaml"

    @property
    def profiles(self) -> Path:
        return self.user_file.parent / "profiles"

    def cache(self) -> Path:
        """Return the directory of files that can be rebuilt (XDG base directories)."""
        return self._base("XDG_CACHE_HOME", ".cache")

    def state(self) -> Path:
        """Return the directory of files that must not be lost (XDG base directories)."""
        return self._base("XDG_STATE_HOME", ".local/state")

    def advice(self, error: OSError) -> str:
        """Return what to set for a file of ours that cannot be written; "" if nothing helps.

        >>> me = Locations(start=Path("/work"), home=Path("/home/me"), environment={})
        >>> me.advice(OSError(errno.EROFS, "read-only", "/home/me/.local"))
        'set SKILLHOUSE_STATE_DIRECTORY to a directory that you can write'
        """
        if not is_unwritable(error) or not isinstance(error.filename, str):
            return ""
        path = Path(error.filename)
        state = Path(self.environment.get(STATE_VARIABLE) or self.state())
        if self.home.is_relative_to(path):
            return _HOME_ADVICE
        if path.is_relative_to(state) or state.is_relative_to(path):
            return STATE_ADVICE
        return _HOME_ADVICE if path.is_relative_to(self.home) else ""

    def _base(self, variable: str, otherwise: str) -> Path:
        # The specification has relative paths ignored; one would be a folder of the project.
        base = Path(self.environment.get(variable, ""))
        return (base if base.is_absolute() else self.home / otherwise) / "skillhouse"
