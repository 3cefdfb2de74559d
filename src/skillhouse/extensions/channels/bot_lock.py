"""The lock of the one process that serves the channels of a state, and whether it lives."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from skillhouse.floor import SkillhouseError, make_private
from skillhouse.floor.lock import try_lock
from skillhouse.frontends.answers.json_form import JsonAnswer

LOCK_FILE = "bot.lock"
ALIVE_SECONDS = 15.0
"""How often the bot marks its lock, which says that its event loop goes on."""
STALE_SECONDS = 90.0
TAKE_SECONDS = 1.0
"""How long a start tries: a check holds the lock for a moment."""


class BotError(SkillhouseError):
    """The bot cannot run: another process of this state does."""


class BotStateAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Whether a bot of a state runs."""

    is_running: bool
    reason: str = ""
    """Why it does not count as running."""


@contextmanager
def only_bot(state_directory: Path) -> Iterator[int]:
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
                raise BotError("another process serves the channels of this state; end it first")
            time.sleep(0.05)
        os.utime(handle)
        yield handle
    finally:
        os.close(handle)


async def show_alive(handle: int) -> None:
    """Mark the lock's file again and again, until it is cancelled."""
    while True:
        os.utime(handle)
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
