"""Blocking work of an event loop (disk, locks, databases), done on threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")

THREADS_MAX = 32
"""Pieces of work at one moment; a further one waits. Each may wait ten seconds for a lock."""
_PAUSE_SECONDS = 0.005

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("skillhouse threads")


async def in_thread(work: Callable[[], T], *, limiter: anyio.CapacityLimiter | None = None) -> T:
    """Do a piece of work on another thread, and return what it returns.

    `limiter` bounds work that may itself wait for such work; None is the bound of all other.

    Work that was begun is waited for, also when the caller is cancelled: what follows a
    cancellation finds it done or not begun, never half done.
    """
    limiter = limiter or of_loop(_limiter, THREADS_MAX)
    is_running = False

    def run() -> T:
        nonlocal is_running
        is_running = True
        try:
            return work()
        finally:
            is_running = False

    try:
        return await to_thread.run_sync(run, limiter=limiter)
    except BaseException:
        # The cancellation of a task by asyncio itself ends the waiting, but not the work.
        with anyio.CancelScope(shield=True):
            while is_running:  # noqa: ASYNC110 - a thread sets it.
                await anyio.sleep(_PAUSE_SECONDS)
        raise


async def finish_in_thread(work: Callable[[], object]) -> None:
    """Do what is to be done in any case, as the record of a call that was cancelled.

    A cancellation does not keep it from beginning: neither one of a scope around it, nor one of
    the task by asyncio itself, as at the end of a server, where no scope is a shield.
    """
    claim, ended = threading.Lock(), threading.Event()

    def run() -> bool:
        if not claim.acquire(blocking=False):
            return False
        try:
            work()
        finally:
            ended.set()
        return True

    try:
        with anyio.CancelScope(shield=True):
            await in_thread(run)
    except BaseException:
        # What was still waiting for a thread is done here: once, whichever comes first.
        if not ended.is_set() and not run():
            ended.wait()
        raise


def of_loop(known: RunVar[anyio.CapacityLimiter], most: int) -> anyio.CapacityLimiter:
    """Return the limiter of the running event loop, made for `most` where it has none yet."""
    try:
        return known.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(most)
        known.set(limiter)
        return limiter
