"""Delivers to whoever called the progress of a call and its result.

What a model gets repeats no secret, and what people do not see of it (terminal escapes and other
controls, bidirectional controls, tag characters) is there as visible escapes. That holds for the
text and for every text of the data, since adapters hand both to models. Only a skill's own code
gets the data of its calls as it is: it is no model, and what it returns passes here in turn.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from skillhouse.floor.threads import in_thread
from skillhouse.skill import revealed
from skillhouse.tools.call import Progress, ProgressHandler, ReportProgress, ToolResult, bounded

PRESENTED_AT_ONCE = 16_384
"""Characters of a result that are looked through on the event loop: some milliseconds."""


async def presented(
    result: ToolResult, conceal: Callable[[str], str], *, to_code: bool
) -> ToolResult:
    """`to_code` is for a skill's own code, whose data keeps what people do not see."""
    if len(result.content) > PRESENTED_AT_ONCE:
        return await in_thread(lambda: _presented(result, conceal, to_code=to_code))
    return _presented(result, conceal, to_code=to_code)


def _presented(result: ToolResult, conceal: Callable[[str], str], *, to_code: bool) -> ToolResult:
    def shown(text: str) -> str:
        return revealed(conceal(text))

    data = result.data
    if data is not None:
        data = {key: _mapped(value, conceal if to_code else shown) for key, value in data.items()}
    text = shown(result.content)
    # It was cut already; escapes may have made it longer.
    content = bounded(text) if len(text) > len(result.content) else text
    return replace(result, content=content, data=data)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value


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
    """Return one printable line.

    >>> _shown("half\\n\\x1b[31mdone")
    'half  [31mdone'
    """
    return "".join(c if c.isprintable() else " " for c in text[:MESSAGE_MAX])
