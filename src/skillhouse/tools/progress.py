"""Relays the progress of a call to a listener without ever holding the call up."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from skillhouse.tools.call import Progress, ProgressHandler, ReportProgress

PAUSE_SECONDS = 0.1
"""Shortest time between two reports to a listener; of those in between only the newest is sent."""
LAST_SECONDS = 1.0
"""How long the result waits until the last report is taken."""
MESSAGE_MAX = 1_000
"""Characters of a message; it is the skill's, and untrusted."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def relayed(
    listener: ProgressHandler,
    *,
    pause_seconds: float = PAUSE_SECONDS,
    last_seconds: float = LAST_SECONDS,
) -> AsyncIterator[ReportProgress]:
    """Yield what takes progress while a call runs; the last report is sent before this ends.

    A listener that fails hears nothing more of the call, and the call goes on.
    """
    relay = _Relay(listener, pause_seconds)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.run)
            try:
                yield relay.say
            finally:
                relay.finish()
                with anyio.move_on_after(last_seconds):
                    await relay.is_done.wait()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The relay raises nothing, so it is what the call itself raised.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


class _Relay:
    """The newest report, of a skill that may send thousands, for a listener that may be slow."""

    def __init__(self, listener: ProgressHandler, pause_seconds: float) -> None:
        self._listener = listener
        self._pause_seconds = pause_seconds
        self._newest: Progress | None = None
        self._most = -1.0
        self._news = anyio.Event()
        self._is_over = anyio.Event()
        self.is_done = anyio.Event()

    def say(self, fraction: float, text: str) -> None:
        """Take how much is done, from 0 to 1; what is no more than before is passed over."""
        # MCP: "The progress value MUST increase with each notification".
        if fraction <= self._most:
            return
        self._most = fraction
        self._newest = Progress(progress=fraction, total=1.0, message=_shown(text))
        self._news.set()

    def finish(self) -> None:
        self._is_over.set()
        self._news.set()

    async def run(self) -> None:
        """Send what is new, with pauses, until the call is over or the listener fails."""
        try:
            while not self._is_over.is_set():
                await self._news.wait()
                self._news = anyio.Event()
                await self._tell()
                with anyio.move_on_after(self._pause_seconds):
                    await self._is_over.wait()
            await self._tell()
        except Exception:
            # The edge to a frontend: its fault is for our log, and costs no call.
            logger.exception("telling of progress")
        finally:
            self.is_done.set()

    async def _tell(self) -> None:
        progress, self._newest = self._newest, None
        if progress is not None:
            await self._listener(progress)


def _shown(text: str) -> str:
    """Return a line of printable characters.

    >>> _shown("half\\n\\x1b[31mdone")
    'half  [31mdone'
    """
    return "".join(c if c.isprintable() else " " for c in text[:MESSAGE_MAX])
