"""Runs what waits for processes or other machines; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar, TypeVarTuple

import anyio

T = TypeVar("T")
Words = TypeVarTuple("Words")


def run_in_loop(work: Callable[[*Words], Awaitable[T]], *words: *Words) -> T:
    """Return what `work` returns, run in an event loop of its own.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, and `work` has ended.
    """

    async def watched() -> T:
        with _ended_by_second_interrupt():
            return await work(*words)

    return anyio.run(watched)


@contextmanager
def _ended_by_second_interrupt() -> Iterator[None]:
    """Have a second Ctrl-C end this process at once; its watcher ends what it started.

    The event loop takes the first, and cancels. A second one would be raised amid what that does,
    and the loop then waits for tasks that no one ends.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    taken = False

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal taken
        if taken:
            os._exit(128 + number)
        taken = True
        before(number, frame)

    signal.signal(signal.SIGINT, take)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
