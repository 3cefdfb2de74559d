"""What a provider may send before it is taken for broken or hostile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.usage import UsageLimits

from skillhouse.floor import SkillhouseError

REQUESTS_MAX = 50
"""Requests to the model for one prompt, so that a model that calls in circles ends."""
CALLS_MAX = 200
"""Calls of tools for one prompt; an answer that would exceed it gets none of its calls made."""
ANSWER_MAX = 1_000_000
"""Characters of one answer with its thoughts and calls; models end at about half of it."""
PARTS_MAX = 2_000
"""Texts, thoughts and calls of one answer."""
BODY_MAX = 32 * 1_048_576
"""Bytes of one response over HTTP; the protocol says each piece of an answer with 200 others."""

TIMEOUT_SECONDS = 600
"""How long nothing may come; models think long before they answer."""
CONNECT_SECONDS = 5


class TooMuchError(SkillhouseError):
    """The provider sends more than any model says."""


def limits() -> UsageLimits:
    """Return how often one prompt may go to the model, and call tools."""
    return UsageLimits(request_limit=REQUESTS_MAX, tool_calls_limit=CALLS_MAX)


class Measured:
    """Counts one answer while it comes."""

    def __init__(self) -> None:
        self._characters = 0
        self._parts = 0

    def take(self, event: object) -> None:
        """Count an event of a stream.

        Raises:
            TooMuchError: it is more than an answer.
        """
        if isinstance(event, PartStartEvent):
            self._parts += 1
            self._characters += _length(event.part)
        elif isinstance(event, PartDeltaEvent):
            self._characters += _length(event.delta)
        if self._characters > ANSWER_MAX or self._parts > PARTS_MAX:
            raise TooMuchError(
                f"the answer was ended: it has more than {ANSWER_MAX:,} characters or "
                f"{PARTS_MAX:,} parts; try another model or `--base-url`"
            )


def _length(said: object) -> int:
    if isinstance(said, TextPart | ThinkingPart):
        return len(said.content)
    if isinstance(said, ToolCallPart):
        return len(said.args_as_json_str())
    if isinstance(said, TextPartDelta | ThinkingPartDelta):
        return len(said.content_delta or "")
    if isinstance(said, ToolCallPartDelta):
        return len(str(said.args_delta or ""))
    return 0


def bounded_client() -> httpx2.AsyncClient:
    """Return a client whose responses end in an error after `BODY_MAX` bytes.

    Libraries read a line whole before anybody can count what it says. Redirects are not followed:
    they would take the conversation, and a key in a header of its own, to another address.
    """
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_bound]},
        follow_redirects=False,
    )


async def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        # A few bytes of it can be as many as they like.
        raise httpx2.DecodingError("the response is compressed, which was not asked for")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = BODY_MAX
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.DecodingError(f"the response has more than {BODY_MAX} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
