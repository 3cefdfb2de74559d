"""Tickets of commands that wait to be run: each for one command, these bytes, one session, once.

A ticket is on the command line of the runner, where others may read it. It is of no use to them: it
is forgotten with the first attempt to use it, holds for the command that the judge keeps, and for a
process below the client that the hook was of.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct

from skillhouse.floor import SkillhouseError
from skillhouse.sandbox import Streams

LIFE_SECONDS = 600.0
"""How long a client may take from a hook's answer to the start of the command."""
WAITING_MAX = 500
ANCESTORS_MAX = 64


class TicketError(SkillhouseError):
    """A ticket is not valid here; it is used up."""


class ProcessId(NamedTuple):
    """A process, apart from later ones of its number."""

    pid: int
    start: str


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int
    notes: tuple[str, ...] = ()
    detail: Mapping[str, Any] = {}
    reason: str = ""
    """Why it was not run, or was ended."""
    place: str = ""
    """The answer of one who asked where an earlier command ended."""


class Ticket(Struct, frozen=True, kw_only=True):
    """One command that may be run."""

    command: str
    directory: tuple[int, int]
    """Device and inode of where it was asked for."""
    session: str
    call: str
    """Which call of the session it is: `open_calls.name_of` of its id."""
    above: tuple[ProcessId, ...]
    """The processes above the hook, the nearest first: the first that lives on is the client."""
    run: Callable[[Streams], Awaitable[RunEnd]]
    place: str = ""
    """The secret by which the client's shell asks afterwards where the command ended, where only
    its shell knows."""
    began: Callable[[], None]
    ended: Callable[[RunEnd], None]
    expires: float


class Tickets:
    """The tickets of one judge, in its memory alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # INVARIANT: held to read or change; calls are judged on several threads.
        self._lock = threading.Lock()
        self._waiting: dict[bytes, Ticket] = {}
        self._running: set[tuple[str, str]] = set()
        self._started: set[tuple[str, str]] = set()
        self._ends: dict[bytes, tuple[str, float]] = {}

    def issue(self, ticket: Ticket) -> str:
        """Keep a ticket, and return its secret.

        Raises:
            TicketError: too many wait.
        """
        secret = secrets.token_urlsafe(32)
        with self._lock:
            now = self._clock()
            self._waiting = {k: v for k, v in self._waiting.items() if v.expires > now}
            if len(self._waiting) >= WAITING_MAX:
                raise TicketError("too many commands wait to be run; repeat the call later")
            self._waiting[_key(secret)] = ticket
            self._started &= {(one.session, one.call) for one in self._waiting.values()}
        return secret

    def take(
        self,
        secret: str,
        *,
        command: str,
        directory: tuple[int, int],
        above: tuple[ProcessId, ...],
    ) -> Ticket:
        """Return and forget the ticket of a secret; whatever is wrong, it is used up.

        Raises:
            TicketError: there is none, or it is for something else.
        """
        with self._lock:
            # By its digest, so that how long this takes says nothing of the secrets.
            ticket = self._waiting.pop(_key(secret), None)
            if ticket is not None:
                self._started.discard((ticket.session, ticket.call))
            if ticket is None or ticket.expires <= self._clock():
                raise TicketError("the ticket is not known, was used or is too old")
            if ticket.command != command:
                raise TicketError("the ticket is for another command")
            if ticket.directory != directory:
                raise TicketError("the ticket is for another directory")
            client = next(filter(is_alive, ticket.above), None)
            if client is None or client.pid == 1 or client not in above:
                raise TicketError("the ticket is for another session")
            self._running.add((ticket.session, ticket.call))
        return ticket

    def note_end(self, secret: str, directory: str) -> None:
        """Keep where a command ended, for one who asks by its secret."""
        with self._lock:
            now = self._clock()
            self._ends = {k: v for k, v in self._ends.items() if v[1] > now}
            self._ends[_key(secret)] = (directory, now + LIFE_SECONDS)

    def take_end(self, secret: str) -> str:
        with self._lock:
            return self._ends.pop(_key(secret), ("", 0.0))[0]

    def over(self, ticket: Ticket) -> None:
        with self._lock:
            self._running.discard((ticket.session, ticket.call))

    def is_running(self, session: str, call: str) -> bool:
        with self._lock:
            return (session, call) in self._running

    def note_started(self, session: str, call: str) -> None:
        """Note that the client has started a command in the background, whose runner may come
        later than the end of the turn."""
        with self._lock:
            if any((one.session, one.call) == (session, call) for one in self._waiting.values()):
                self._started.add((session, call))

    def withdraw(self, session: str, call: str) -> bool:
        """Forget a ticket that no runner came with, and return whether none will: its command does
        not run, or will not. One that was started in the background is kept while it holds."""
        key = (session, call)
        with self._lock:
            if key in self._running:
                return False
            now = self._clock()
            kept = {k: v for k, v in self._waiting.items() if (v.session, v.call) != key}
            waits = any(v.expires > now for k, v in self._waiting.items() if k not in kept)
            if waits and key in self._started:
                return False
            self._waiting = kept
            self._started.discard(key)
            return True


def _key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def ancestors(pid: int) -> tuple[ProcessId, ...]:
    """Return the processes above one, the nearest first; none where they cannot be seen."""
    found: list[ProcessId] = []
    with suppress(OSError, ValueError):
        _, parent, _ = _stat(pid)
        while parent and len(found) < ANCESTORS_MAX:
            above, start = parent, _stat(parent)
            parent = start[1]
            found.append(ProcessId(above, start[2]))
    return tuple(found)


def is_alive(process: ProcessId) -> bool:
    try:
        state, _, start = _stat(process.pid)
    except (OSError, ValueError):
        return False
    return state != "Z" and start == process.start


def _stat(pid: int) -> tuple[str, int, str]:
    """Return state, parent and start of a process (proc_pid_stat(5))."""
    if pid <= 0:
        raise ValueError(pid)
    with open(f"/proc/{pid}/stat", "rb") as file:
        _, _, rest = file.read().rpartition(b")")
    fields = rest.split()
    return fields[0].decode(), int(fields[1]), fields[19].decode()


def place_of(directory: str | int) -> tuple[int, int]:
    found = os.stat(directory)
    return (found.st_dev, found.st_ino)
