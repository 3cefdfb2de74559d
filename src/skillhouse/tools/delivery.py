"""Delivers to whoever called the progress of a call and its result.

What a model gets repeats no secret, and what people do not see of it (terminal escapes and other
controls, bidirectional controls, tag characters) is there as visible escapes. That holds for the
text and for every text of the data, since adapters hand both to models. Of a long result a model
gets a part, and the rest is in a file that it may read. Only a skill's own code gets the data of
its calls as it is, and all of it: it is no model, and what it returns passes here in turn.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import LEFT_OUT, left_out_text
from skillhouse.skill import revealed
from skillhouse.tools.call import (
    OUTPUT_MAX,
    Excerpt,
    Progress,
    ProgressHandler,
    ReportProgress,
    ToolResult,
)
from skillhouse.tools.result_files import (
    KeptFile,
    ResultFiles,
    bound_for,
    bounded_data,
    ends_of,
    excerpt_of,
    gets_whole,
    joined,
)
from skillhouse.tools.tool import Session

PRESENTED_AT_ONCE = 16_384
"""Characters of a result that are looked through on the event loop: some milliseconds."""
CONCEALED_FACTOR = 4
"""How many times what is kept of a result is looked through for secrets; of a longer one nothing
else is used."""
SECRET_MAX = 131_072
"""Characters of a secret at most (MAX_ARG_STRLEN, execve(2))."""


class Delivery:
    """Makes of a tool's result what its caller gets."""

    def __init__(
        self,
        conceal: Callable[[str], str],
        results: ResultFiles | None,
        *,
        has_read: Callable[[], bool],
    ) -> None:
        """`conceal` takes secrets out of a text; `results` keeps what is too long for a model, if
        the model has the tool `read` (`has_read`), which only a long result asks."""
        self.conceal = conceal
        self._results = results
        self._has_read = has_read

    async def delivered(self, result: ToolResult, session: Session) -> ToolResult:
        if len(result.content) > PRESENTED_AT_ONCE:
            return await in_thread(lambda: self._delivered(result, session))
        return self._delivered(result, session)

    def _delivered(self, result: ToolResult, session: Session) -> ToolResult:
        if result.excerpt == "whole" or gets_whole(session):
            return _presented(result, self.conceal, to_code=bool(session.origin_digest))
        # Of a long result, data is cut before it is looked through: a model gets little of it.
        most = min(result.most, OUTPUT_MAX)

        def presented_by(conceal: Callable[[str], str]) -> ToolResult:
            return _presented(result, conceal, to_code=False, data_most=most)

        presented, results, bound = result, self._results, bound_for(session.client_info)
        is_long = len(result.content) > OUTPUT_MAX
        if results is None or not is_long:
            presented = presented_by(self.conceal)
            is_long = bound.size(presented.content) > bound.most
        if results is not None and is_long:
            # INVARIANT: no file holds a secret that no record of the log may hold.
            hide = results.hide
            presented = presented_by(lambda text: hide(self.conceal(text)))
        content, data, kept = presented.content, presented.data, None
        if bound.size(content) > bound.most:
            content, kept = self._excerpt(presented, session)
        if data is not None:
            data = bounded_data(data, result.excerpt, kept)
        if content is presented.content and data is presented.data:
            return presented
        return replace(presented, content=content, data=data)

    def _excerpt(self, result: ToolResult, session: Session) -> tuple[str, KeptFile | None]:
        kept, why = None, "there is no tool to read it with"
        if self._results is not None and self._has_read():
            try:
                kept = self._results.keep(session, result.content)
            except OSError as error:
                # The call is done: its result is delivered as far as it goes.
                why = (error.strerror or "it cannot be written").lower()
        bound = bound_for(session.client_info)
        return excerpt_of(result.content, result.excerpt, kept, why=why, bound=bound), kept


def _presented(
    result: ToolResult,
    conceal: Callable[[str], str],
    *,
    to_code: bool,
    data_most: int | None = None,
) -> ToolResult:
    if result.has_gaps:
        conceal = partial(_across_gaps, conceal=conceal)

    def shown(text: str) -> str:
        if data_most is not None and len(text) > data_most:
            return _readable(text, conceal, result.excerpt, data_most)
        return revealed(conceal(text))

    data = result.data
    if data is not None:
        data = {key: _mapped(value, conceal if to_code else shown) for key, value in data.items()}
    content = _readable(result.content, conceal, result.excerpt, result.most)
    return replace(result, content=content, data=data)


def _readable(text: str, conceal: Callable[[str], str], excerpt: Excerpt, most: int) -> str:
    """Return at most `most` characters of a text, without secrets, hidden ones as escapes."""
    if len(text) <= most:
        head, tail, unseen = conceal(text), "", 0
    else:
        # INVARIANT: secrets are taken out before the text is cut, so that none is cut through.
        head, tail, unseen = _concealed_ends(text, conceal, excerpt, CONCEALED_FACTOR * most)
    whole = head + tail
    if len(whole) > most:
        head, tail = ends_of(whole, most, excerpt)
    lost = unseen + len(whole) - len(head) - len(tail)
    head, tail = revealed(head), revealed(tail)
    if (size := len(head) + len(tail)) > most:
        # Escapes are longer.
        head, tail = ends_of(head + tail, most, excerpt)
        lost += size - len(head) - len(tail)
    return joined(head, tail, lost)


def _concealed_ends(
    text: str, conceal: Callable[[str], str], excerpt: Excerpt, concealed_max: int
) -> tuple[str, str, int]:
    """Return the beginning and the end of a text, and how many characters are in neither.

    What is next to a cut is left out, since a secret may go on behind it: the environment of a
    process has no longer value (MAX_ARG_STRLEN, execve(2)).
    """
    if len(text) <= concealed_max:
        return conceal(text), "", 0
    most = concealed_max // 2 if excerpt == "ends" else concealed_max
    head, tail = conceal(text[:most])[:-SECRET_MAX], ""
    if excerpt == "ends":
        tail = conceal(text[-most:])[SECRET_MAX:]
    return head, tail, len(text) - len(head) - len(tail)


def _across_gaps(text: str, conceal: Callable[[str], str]) -> str:
    """Return a text without secrets, and without what is next to a gap: one may go on in there.

    Where it is short, half of it stays.
    """
    # Texts and the numbers of bytes between them, in turns.
    parts = LEFT_OUT.split(text)
    for place in range(0, len(parts), 2):
        part = conceal(parts[place])
        before = min(SECRET_MAX, len(part) // 2) if place else 0
        behind = min(SECRET_MAX, len(part) // 2) if place + 1 < len(parts) else 0
        parts[place] = part[before : len(part) - behind]
        for gap, lost in ((place - 1, part[:before]), (place + 1, part[len(part) - behind :])):
            if lost:
                parts[gap] = str(int(parts[gap]) + len(lost.encode("utf-8", "replace")))
        if place and before:
            parts[place] = f"\n{parts[place]}"
        if behind:
            parts[place] += "\n"
    return "".join(left_out_text(int(one)) if at % 2 else one for at, one in enumerate(parts))


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
    total: float | None = 1.0,
    conceal: Callable[[str], str] = lambda text: text,
    pause_seconds: float = PAUSE_SECONDS,
    last_seconds: float = LAST_SECONDS,
) -> AsyncIterator[ReportProgress]:
    """Yield what takes progress while a call runs; the last report is sent before this ends.

    A listener that fails hears nothing more of the call, and the call goes on. `conceal` takes
    secrets out of a message.
    """
    relay = _Relay(listener, pause_seconds, total, conceal)
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

    def __init__(
        self,
        listener: ProgressHandler,
        pause_seconds: float,
        total: float | None,
        conceal: Callable[[str], str],
    ) -> None:
        self._total = total
        self._conceal = conceal
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
        message = _shown(self._conceal(text))
        self._newest = Progress(progress=fraction, total=self._total, message=message)
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
