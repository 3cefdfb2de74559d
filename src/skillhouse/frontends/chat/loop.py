"""The thread on which a chat's calls run, and Ctrl-C that ends one answer and not the program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

T = TypeVar("T")


class StoppedError(Exception):
    """The person stopped what was running."""


class Loop:
    """One event loop on one thread for the whole chat.

    What runs in the sandbox ends with the thread that started it (decision 10), so there is one
    for all answers; the program's first thread waits for it and for the person.
    """

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function to its end.

        Raises:
            StoppedError: Ctrl-C; what ran has been cancelled, and has ended.
        """
        running = _RunningTurn(function)
        future = self._portal.start_task_soon(running.run)
        while True:
            try:
                future.result()
            except KeyboardInterrupt:
                self._portal.start_task_soon(running.stop)
            else:
                break
        if not running.results:
            raise StoppedError
        return running.results[0]


class _RunningTurn(Generic[T]):
    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._scope: anyio.CancelScope | None = None
        self._is_stopped = False
        self.results: list[T] = []

    async def run(self) -> None:
        with anyio.CancelScope() as self._scope:
            if self._is_stopped:
                self._scope.cancel()
            self.results.append(await self._function())

    async def stop(self) -> None:
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()
