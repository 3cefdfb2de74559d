"""Lets code that is not asynchronous make calls, all on one thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

T = TypeVar("T")


class Portal:
    """A thread with an event loop of its own, alive until it is closed.

    One thread for all calls: a sandboxed process ends with the thread that started it
    (`--die-with-parent`), so a thread a call would kill what it started.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function on the thread and return its result."""
        return self._portal.call(function)

    def close(self) -> None:
        """End the thread; running calls are waited for."""
        self._stack.close()
