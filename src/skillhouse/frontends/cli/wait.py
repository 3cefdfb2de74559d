"""Waits at the command line for answers that are given elsewhere, as `call --wait` does."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from skillhouse.frontends.cli.options import UsageError
from skillhouse.presentation.question import answered_at, question_of, question_title
from skillhouse.presentation.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skillhouse.approval import Answer, ApprovalBroker, ApprovalRequest, Channel, Reply
    from skillhouse.frontends.cli.terminal import Terminal

WITHDRAWN = "its caller stopped waiting"
"""Why a question is closed that the person at the command line gave up."""
TICK_SECONDS = 1.0
LINE_SECONDS = 60.0
"""How often the line on a terminal changes, and how often one goes to a log."""
LAST_SECONDS = 1.0
"""How much longer the broker waits than this channel, whose end leaves the question open."""


class WaitingChannel:
    """Asks on another channel first; without an answer there, waits for one from elsewhere.

    A question whose time is over stays open: it can be answered later, and the call repeated.
    """

    def __init__(
        self,
        inner: Channel,
        terminal: Terminal,
        seconds: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wait `seconds` for all questions together; None is until they expire."""
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise UsageError(f"expected a number of seconds after --wait-seconds, got {seconds:g}")
        self._inner = inner
        self._terminal = terminal
        self._seconds = seconds
        self._clock = clock
        self._ends: float | None = None if seconds is None else clock() + seconds
        self._page = ""
        self._asked: list[str] = []

    def attach(self, approvals: ApprovalBroker) -> None:
        """Have the calls of this process wait as long as this channel does."""
        expires = approvals.settings.expires_seconds
        seconds = expires if self._seconds is None else min(self._seconds, expires)
        approvals.patience_seconds = seconds + LAST_SECONDS
        self._page = approvals.page

    async def ask(self, request: ApprovalRequest) -> Answer | Reply | None:
        self._asked.append(request.id)
        left = None if self._ends is None else max(0.0, self._ends - self._clock())
        with anyio.move_on_after(left):
            reply = await self._inner.ask(request)
            if reply is not None:
                return reply
            await self._wait(request)
        return None

    async def _wait(self, request: ApprovalRequest) -> None:
        place = answered_at(question_of(request), self._page)
        title = question_title(request.title)
        self._terminal.note_rows(f"waiting for an answer to {request.id}: {title}")
        self._terminal.note(f"  answer it on {place}; Ctrl-C stops waiting and withdraws it")
        began = self._clock()
        pause = TICK_SECONDS if self._terminal.is_watched else LINE_SECONDS
        with self._cleared_line():
            while True:
                await anyio.sleep(pause)
                seconds = round(self._clock() - began)
                if self._terminal.is_watched:
                    self._terminal.prompt(f"\r  {seconds} s\x1b[K")
                else:
                    self._terminal.note(f"  still waiting for {request.id} after {seconds} s")

    @contextmanager
    def _cleared_line(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self._terminal.is_watched:
                self._terminal.prompt("\r\x1b[K")

    def withdraw(self, approvals: ApprovalBroker) -> None:
        """Close the questions of the call that was stopped, and approvals it has not used."""
        closed = [one for one in self._asked if approvals.withdraw(one, WITHDRAWN)]
        if closed:
            self._terminal.note(f"{counted(len(closed), 'question')} withdrawn")
