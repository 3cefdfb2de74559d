"""The terminal loop: reads lines, and runs each on one event loop that Ctrl-C interrupts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from skillhouse.frontends.chat.commands import Commands
from skillhouse.frontends.chat.conversation import Answered
from skillhouse.frontends.chat.screen import Screen

PROMPT = "> "
QUIT = ("/quit", "/exit")


def talk(loop: Loop, commands: Commands, screen: Screen, read: Callable[[str], str]) -> None:
    """Handle lines until `/quit` or Ctrl-D; Ctrl-C ends only the current answer."""
    while True:
        try:
            line = read(PROMPT)
            while line.endswith("\\"):
                line = f"{line[:-1]}\n{read('. ')}"
        except EOFError:
            screen.note("")
            return
        except KeyboardInterrupt:
            screen.note("\n`/quit` or Ctrl-D ends the chat")
            continue
        if line.strip() in QUIT:
            return
        if not line.strip():
            continue
        try:
            show(loop.run(lambda: commands.take(line)), screen)  # noqa: B023 - it runs at once
        except StoppedError:
            screen.end_line()
            screen.note("stopped; the conversation goes on")


def show(answered: Answered | None, screen: Screen) -> None:
    """Show the reason of a failure, and the pending approvals."""
    if answered is None:
        return
    if answered.reason:
        screen.error(answered.reason)
    for approval in answered.pending:
        screen.note(f"waits for approval: skillhouse approvals approve {approval}")


def line_reader(commands: Commands) -> Callable[[str], str]:
    """Return a function that reads a line, with history and completion if readline is there."""
    try:
        import readline  # noqa: PLC0415 - not on every platform
    except ImportError:
        return input

    def complete(text: str, state: int) -> str | None:
        # The words begin with the commands.
        lines = [f"/{word} " for word in commands.words if f"/{word}".startswith(text)]
        matches = list(dict.fromkeys(lines)) if text.startswith("/") else []
        return matches[state] if state < len(matches) else None

    readline.set_completer_delims(" \n")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    return input


T = TypeVar("T")


class StoppedError(Exception):
    """The user stopped the current answer."""


class Loop:
    """One event loop on one thread for the whole chat.

    Sandboxed processes end with the thread that started them (decision 10), so all answers share
    one; the main thread waits for it and for the user.
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
            StoppedError: Ctrl-C; the function was cancelled and has ended.
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
