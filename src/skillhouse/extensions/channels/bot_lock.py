"""The lock of the one process that serves the channels of a state, and whether it lives.

Of one machine it is the lock of a file; where the state is on a server, a row of it as well.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from skillhouse.answers.json_form import JsonAnswer
from skillhouse.floor import SkillhouseError, StateError, make_private
from skillhouse.floor.lock import try_lock
from skillhouse.floor.threads import in_thread
from skillhouse.store import STATE, STATE_FILE, pooled, state_clock, state_server

LOCK_FILE = "bot.lock"
ALIVE_SECONDS = 15.0
"""How often the bot marks its lock, which says that its event loop goes on."""
STALE_SECONDS = 90.0
_NAME = re.compile("[0-9a-f]{16}")
_NAME_MAX = 512
TAKE_SECONDS = 1.0
"""How long a start tries: a check holds the lock for a moment."""


logger = logging.getLogger(__name__)


class BotError(SkillhouseError):
    """The bot cannot run: another process of this state does."""


class BotStateAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Whether a bot of a state runs."""

    is_running: bool
    reason: str = ""
    """Why it does not count as running."""


class BotLock:
    """What the process has that serves the channels."""

    def __init__(self, handle: int, state: Path) -> None:
        self._handle = handle
        self._state = state if state_server(state) is not None else None
        self._own = secrets.token_hex(8) if self._state is None else _kept_name(handle)

    def take(self) -> None:
        """Mark it as held now; BotError if a process of another machine holds it."""
        os.utime(self._handle)
        if self._state is None:
            return
        now = int(state_clock(self._state, time.time)() * 1000)
        with pooled(self._state, STATE) as store, store.transaction() as connection:
            rows = connection.execute("SELECT text FROM notice WHERE name = 'bot'").fetchall()
            for holder, at_ms in (str(text).split() for (text,) in rows):
                if holder != self._own and int(at_ms) > now - int(STALE_SECONDS * 1000):
                    raise BotError(_TAKEN)
            connection.execute(
                "INSERT INTO notice (name, text) VALUES ('bot', ?) "
                "ON CONFLICT (name) DO UPDATE SET text = excluded.text",
                (f"{self._own} {now}",),
            )

    def release(self) -> None:
        if self._state is not None:
            with pooled(self._state, STATE) as store, store.transaction() as connection:
                connection.execute(
                    "DELETE FROM notice WHERE name = 'bot' AND text LIKE ?", (f"{self._own} %",)
                )


def _kept_name(handle: int) -> str:
    """Return the name of whoever has the lock of this file, the same as of the process before.

    The row of one that was killed then is no other's, and its next start has not to wait. A copy
    of the file, as in an image of several containers, is another file or on another host.
    """
    info = os.fstat(handle)
    place = f"{info.st_dev} {info.st_ino} {socket.gethostname()}"
    name, _, known = os.pread(handle, _NAME_MAX, 0).decode(errors="replace").partition(" ")
    if known != place or not _NAME.fullmatch(name):
        name = secrets.token_hex(8)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{name} {place}".encode(), 0)
    return name


_TAKEN = "another process serves the channels of this state; end it first"


@contextmanager
def only_bot(state_directory: Path) -> Iterator[BotLock]:
    """Be the only process that serves the channels of a state; yield what `show_alive` takes.

    Raises:
        BotError: another process is.
    """
    make_private(state_directory)
    handle = _opened(state_directory, os.O_RDWR | os.O_CREAT)
    try:
        end = time.monotonic() + TAKE_SECONDS
        while not try_lock(handle):
            if time.monotonic() > end:
                raise BotError(_TAKEN)
            time.sleep(0.05)
        lock = BotLock(handle, state_directory / STATE_FILE)
        lock.take()
        try:
            yield lock
        finally:
            try:
                lock.release()
            except StateError as error:
                logger.warning("the lock of the bot ends by itself: %s", error)
    finally:
        os.close(handle)


async def show_alive(lock: BotLock) -> None:
    """Mark the lock again and again, until it is cancelled; BotError once another one has it."""
    while True:
        try:
            await in_thread(lock.take)
        except StateError as error:
            # Without the state nothing is answered either, and no other process can take it.
            logger.warning("the lock of the bot cannot be marked: %s", error)
        await anyio.sleep(ALIVE_SECONDS)


def bot_state(state_directory: Path, now: float) -> BotStateAnswer:
    """Return whether a process holds the lock, and has marked it of late."""
    try:
        handle = _opened(state_directory, os.O_RDWR)
    except FileNotFoundError:
        return BotStateAnswer(is_running=False, reason="no bot of this state has run")
    try:
        age = now - os.fstat(handle).st_mtime
        if try_lock(handle, shared=True):
            return BotStateAnswer(is_running=False, reason="no bot of this state runs")
    finally:
        os.close(handle)
    if age > STALE_SECONDS:
        reason = f"the bot has not moved for {age:.0f} seconds"
        return BotStateAnswer(is_running=False, reason=reason)
    return BotStateAnswer(is_running=True)


def _opened(state_directory: Path, how: int) -> int:
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(state_directory / LOCK_FILE, how | flags, 0o600)
