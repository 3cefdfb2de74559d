"""Reads lines from a person until they end it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from skillhouse.frontends.chat.commands import COMMANDS, Commands
from skillhouse.frontends.chat.conversation import Answered
from skillhouse.frontends.chat.screen import Screen

PROMPT = "> "
QUIT = ("/quit", "/exit")


def talk(loop: Loop, commands: Commands, screen: Screen, read: Callable[[str], str]) -> None:
    """Take lines until `/quit` or Ctrl-D; Ctrl-C ends the answer that is coming, and no more."""
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
    """Tell what is left to say when an answer has ended."""
    if answered is None:
        return
    if answered.reason:
        screen.error(answered.reason)
    for approval in answered.pending:
        screen.note(f"waits for a yes: skillhouse approvals approve {approval}")


def line_reader(commands: Commands) -> Callable[[str], str]:
    """Return what reads a line, with its own history and completion where there is readline."""
    try:
        import readline  # noqa: PLC0415 - not on every platform
    except ImportError:
        return input

    def complete(text: str, state: int) -> str | None:
        found = [
            f"/{word} " for word in (*COMMANDS, *commands.words) if f"/{word}".startswith(text)
        ]
        found = list(dict.fromkeys(found)) if text.startswith("/") else []
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" \n")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    return input


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
