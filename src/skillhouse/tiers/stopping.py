"""Stops everything: the file, the database, the calls that run, and what a stop does besides."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skillhouse.floor import StateError
from skillhouse.tiers.call_table import Line, lines

WAIT_SECONDS = 1.0
"""How long a stop waits until every process has ended its calls."""
_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNotice:
    """What those are told who do a part of a stop or a resume."""

    by: str
    reason: str
    action: str
    """What the policy wants: revoke-all-session-keys, pause-all or shutdown; or `resume`."""


Step = tuple[str, Callable[[StopNotice], object]]
"""A part of a stop, with its name: revoke the session keys, write to the log, tell people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """What came of a stop."""

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
    """The calls of this process that a stop ends."""

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

    Raises:
        StateError: no way worked.
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
