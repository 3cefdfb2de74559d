"""Stops everything: the file of the stop, the calls that run, and the further steps of a stop.

Each process has a file in which it counts its calls and whose lock it holds while it lives, so that
a stop can wait for the calls of all processes of one state and count those that ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from skillhouse.floor import StateError, descriptor, make_private
from skillhouse.floor.lock import LOCK_PAUSE_SECONDS, try_lock

READY, STOPPED = "ready", "stopped"
SIZE = 8_192
"""Bytes of the file: a reason of 500 and a name of 200 characters fit, escaped too."""
BY_MAX, REASON_MAX = 200, 500
IDS_MAX = 32
"""Stops that one file names; one of more is lifted on its machine alone."""
LOCK_SECONDS = 0.5
"""How long a stop waits for a process that lifts one: it is to be given in any case."""
_ID = re.compile("[0-9a-f]{32}")
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Neither through a link nor waiting for the other end of a pipe; Windows has no such flags."""


class StopMark:
    """A file named `stopped` while everything is stopped, and `ready` otherwise.

    INVARIANT: the name is the stop, and the content only gives the reason. Renaming a file that
    exists takes no block and no inode, so neither the database nor free disk space is needed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ready = os.fspath(directory / READY)
        self._stopped = os.fspath(directory / STOPPED)

    def reason(self) -> str:
        """Return why everything is stopped, or ""; `StateError` if that cannot be determined."""
        try:
            os.lstat(self._stopped)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            message = f"the state cannot be looked at: {error}"
            raise StateError(message, Path(self._stopped)) from error
        return self._said()

    def prepare(self) -> None:
        """Make the file that a stop renames, with its blocks, while there is space for it."""
        if os.path.lexists(self._ready) or os.path.lexists(self._stopped):
            return
        make_private(self.directory)
        with contextlib.suppress(FileExistsError):  # Another process was faster.
            self._write(b"", flags=os.O_CREAT | os.O_EXCL)

    def give(self, by: str, reason: str, ids: Sequence[str] = ()) -> bool:
        """Stop everything; False when this file stopped it before.

        Args:
            by: Who stops.
            reason: Why.
            ids: Identities of the stops, by which their rows lift the file; without any it is
                lifted on this machine alone.

        Raises `StateError` if the file could not be renamed, or a power cut may undo that.
        """
        try:
            with self._alone() as is_alone:
                if self.reason():
                    self._join(ids, is_alone=is_alone)
                    return False
                make_private(self.directory)
                is_written = False
                # A disk that copies on write may have no space even for this; the name is enough.
                with contextlib.suppress(OSError):
                    self._write(_said(by, reason, ids))
                    is_written = True
                os.rename(self._ready, self._stopped)
            # Only now, as a busy disk takes its time, and others are to see the name at once.
            if is_written:
                self._sync(self._stopped)
            self._sync(self.directory)
        except (OSError, ValueError) as error:
            message = f"the file of the stop cannot be written: {error}"
            raise StateError(message, Path(self._stopped)) from error
        return True

    def ids(self) -> tuple[str, ...]:
        """Return the identities of the stops that hold by this file; empty where that is unknown,
        or nothing is stopped."""
        found = self._read().get("ids")
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            return ()
        return tuple(found) if all(map(_ID.fullmatch, found)) else ()

    def lift(self, ids: Sequence[str] | None = None) -> bool:
        """Lift the stop; False when this file stopped nothing. After `StateError` it holds on.

        With `ids` it is lifted only while it names these and no others: False if it does not.
        """
        try:
            with self._alone() as is_alone:
                if not self.reason():
                    return False
                if ids is not None and (not is_alone or self.ids() != tuple(ids)):
                    return False
                return self._lifted()
        except (OSError, ValueError) as error:
            message = f"the file of the stop cannot be renamed: {error}"
            raise StateError(message, Path(self._stopped)) from error

    def _lifted(self) -> bool:
        # INVARIANT: what is prepared names no stop. The next stop may find no space to write its
        # own identity, and must not be lifted by the row of this one.
        try:
            self._write(b"", self._stopped, flags=0)
            self._sync(self._stopped)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self._stopped)
                return True
        # A power cut may bring the old name back, and that is the safe one.
        try:
            os.rename(self._stopped, self._ready)
        except FileNotFoundError:
            return False
        return True

    def _join(self, ids: Sequence[str], *, is_alone: bool) -> None:
        """Have a file that stops already name further stops, so that it outlasts the first.

        OSError: it cannot be written, so these stops are not sure to hold by it.
        """
        if not is_alone:
            raise OSError(None, "another process is about to lift the stop")
        known = self.ids()
        if not known or (ids and set(ids) <= set(known)):
            # A file without identities holds until it is lifted on this machine.
            return
        said = self._read()
        every = (*known, *(one for one in ids if one not in known)) if ids else ()
        data = _said(str(said.get("by", "")), str(said.get("reason", "")), every)
        self._write(data, self._stopped, flags=0)
        self._sync(self._stopped)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the lock of the directory for a block; False where another process keeps it."""
        if sys.platform == "win32":  # pragma: no cover - directories cannot be opened there
            yield True
            return
        try:
            handle = os.open(self.directory, os.O_RDONLY | _SAFELY)
        except (OSError, ValueError):
            # There is none yet, or none that can be used: what follows says so.
            yield False
            return
        with descriptor(handle):
            end = time.monotonic() + LOCK_SECONDS
            while not (is_held := try_lock(handle)) and time.monotonic() < end:
                time.sleep(LOCK_PAUSE_SECONDS)
            yield is_held

    def _write(self, data: bytes, path: str = "", flags: int = os.O_CREAT) -> None:
        """Write the whole file in place, so that it keeps the blocks that it has."""
        flags |= os.O_WRONLY | _SAFELY
        with descriptor(os.open(path or self._ready, flags, 0o600)) as handle:
            os.write(handle, data.ljust(SIZE))

    @staticmethod
    def _sync(path: str | Path) -> None:
        if sys.platform == "win32":  # pragma: no cover - directories cannot be opened there
            return
        with descriptor(os.open(path, os.O_RDONLY | _SAFELY)) as handle:
            os.fsync(handle)

    def _said(self) -> str:
        said = self._read()
        if {"by", "reason"} <= said.keys():
            return f"{said['reason']!s:.{REASON_MAX}} (by {said['by']!s:.{BY_MAX}})"
        return f"the file `{self._stopped}` says so"

    def _read(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            with descriptor(os.open(self._stopped, os.O_RDONLY | _SAFELY)) as handle:
                said = json.loads(os.read(handle, SIZE))
            return said if isinstance(said, dict) else {}
        return {}


def new_stop_id() -> str:
    """Return the identity of a stop that is about to be given."""
    return secrets.token_hex(16)


def _said(by: str, reason: str, ids: Sequence[str]) -> bytes:
    said: dict[str, object] = {"by": by[:BY_MAX], "reason": reason[:REASON_MAX]}
    if ids and len(ids) <= IDS_MAX and all(map(_ID.fullmatch, ids)):
        said["ids"] = list(ids)
    return json.dumps(said, ensure_ascii=False).encode(errors="backslashreplace")


CALLS = "calls"
KEPT_SECONDS = 60.0
"""How long the file of a process that has ended is kept, for a stop that is about to read it."""
_LINE = b"%10d %10d\n"


class Line(Struct, frozen=True, kw_only=True):
    """What the file of one process says."""

    name: str
    pid: int
    running: int
    """Calls that run in it, or wait for a person."""
    ended: int
    """Calls that stops have ended in it since it started."""
    is_alive: bool


class OwnLine:
    def __init__(self, directory: Path) -> None:
        """Make it, and remove those of processes that ended some time ago."""
        base = directory / CALLS
        make_private(base)
        for line in lines(directory):
            path = base / line.name
            with contextlib.suppress(FileNotFoundError):
                if not line.is_alive and path.stat().st_mtime < time.time() - KEPT_SECONDS:
                    path.unlink()
        self.pid = os.getpid()
        self.name = f"{self.pid}-{secrets.token_hex(8)}"
        self._path = base / self.name
        self._ended = 0
        made = base / f".{self.name}"
        self._handle = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try_lock(self._handle)
            self.write(0, 0)
            # Seen only now that its lock is held: one without a lock is of a process that ended.
            made.rename(self._path)
        except BaseException:
            os.close(self._handle)
            made.unlink(missing_ok=True)
            raise

    def write(self, running: int, ended: int) -> None:
        self._ended = ended
        if sys.platform != "win32":  # pragma: no branch - Windows has no `pwrite`.
            os.pwrite(self._handle, _LINE % (running, ended), 0)

    def close(self) -> None:
        """Release it; the file stays if a stop may still need it."""
        if not self._ended:
            self._path.unlink(missing_ok=True)
        os.close(self._handle)


def lines(directory: Path) -> Iterator[Line]:
    """Yield the lines of all processes that have any, also of those that have ended."""
    try:
        names = sorted(os.listdir(directory / CALLS))
    except FileNotFoundError:
        return
    for name in names:
        if not name.startswith("."):
            # One that goes away meanwhile ran nothing that was ended.
            with contextlib.suppress(FileNotFoundError, ValueError):
                yield _read(directory / CALLS / name)


def _read(path: Path) -> Line:
    with descriptor(os.open(path, os.O_RDONLY | _SAFELY)) as handle:
        # Asked before the numbers are read: one that ends in between has written its last ones.
        is_alive = not try_lock(handle)
        running, ended = map(int, os.read(handle, len(_LINE % (0, 0))).split())
    pid = int(path.name.partition("-")[0])
    return Line(name=path.name, pid=pid, running=running, ended=ended, is_alive=is_alive)


WAIT_SECONDS = 1.0
"""How long a stop waits until every process has ended its calls."""
_LOOK_SECONDS = 0.01


class StopNotice(Struct, frozen=True, kw_only=True):
    """What each step of a stop or a resume receives."""

    by: str
    reason: str
    action: str
    """What the policy wants: revoke-all-session-keys, pause-all or shutdown; or `resume`."""


Step = tuple[str, Callable[[StopNotice], object]]
"""A part of a stop, with its name: revoke the session keys, write to the log, tell people."""


class StopReport(Struct, frozen=True, kw_only=True):
    """What a stop did."""

    is_new: bool
    """False when everything was stopped already; the steps were done again."""
    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    """Names of steps with what went wrong; everything is stopped all the same."""
    ended: int = 0
    """Calls that ran, or waited for a person, and were ended; calls of skills' code count too."""
    silent: tuple[int, ...] = ()
    """Processes whose calls had not ended after `WAIT_SECONDS`."""
    killed: int = 0
    """Sandboxes of theirs that were killed from outside."""


class CallsHere(Protocol):
    def end(self, reason: str) -> tuple[str, int]:
        """End them; return the name of the line that cannot change before this returns, or "",
        and how many calls are ended behind it."""
        ...


class CallsToEnd:
    """Looks at the lines of all processes before a stop, and waits for them afterwards."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._before = {line.name: line.ended for line in self._lines()}

    def wait(self, here: Sequence[CallsHere], reason: str) -> tuple[int, tuple[int, ...]]:
        """Return how many calls have ended, and the processes in which some have not."""
        found = [calls.end(reason) for calls in here]
        own = {name for name, _ in found if name}
        latest: dict[str, Line] = {}
        until = time.monotonic() + WAIT_SECONDS
        while True:
            latest |= {line.name: line for line in self._lines() if line.name not in own}
            busy = [line for line in latest.values() if line.is_alive and line.running]
            if not busy or time.monotonic() >= until:
                break
            time.sleep(_LOOK_SECONDS)
        ended = sum(line.ended - self._before.get(line.name, 0) for line in latest.values())
        return ended + sum(count for _, count in found), tuple(sorted(line.pid for line in busy))

    def _lines(self) -> tuple[Line, ...]:
        try:
            return tuple(lines(self._directory))
        except OSError:
            # Calls are ended without this; only how many, and by whom, is not known.
            return ()


def do_steps(steps: Sequence[Step], notice: StopNotice) -> tuple[list[str], list[tuple[str, str]]]:
    """Do each step, whatever becomes of the others; return those done, and those that failed."""
    done: list[str] = []
    failed: list[tuple[str, str]] = []
    for name, step in steps:
        try:
            step(notice)
        except Exception as error:  # noqa: BLE001 - no step may keep the next from its work.
            failed.append((name, str(error) or type(error).__name__))
        else:
            done.append(name)
    return done, failed


def either(*ways: tuple[str, Callable[[], bool]]) -> tuple[bool, list[tuple[str, str]]]:
    """Write a stop down in each way; return whether it is new, and which ways failed with why.

    Raises the last `StateError` when no way worked.
    """
    found: list[bool] = []
    failed: list[tuple[str, str]] = []
    fault: StateError | None = None
    for name, way in ways:
        try:
            found.append(way())
        except StateError as error:
            failed.append((name, str(error)))
            fault = error
    if not found and fault is not None:
        raise fault
    return all(found), failed
