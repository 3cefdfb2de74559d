"""What a provider may send before it is taken for broken or hostile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelHTTPError,
    UsageLimitExceeded,
)
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


_HINTS = {
    400: "the provider does not take the request; `/compact` or another model may help",
    401: "the key is not taken; set the right one, or name its variable with `--key-variable`",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "there is no such model or address; check `--model` and `--base-url`",
    413: "the conversation is too long for it; `/compact` makes it short",
    429: "too many requests or no credit; wait a little, then send it again",
}
_SERVER = "the provider has a fault; send it again later"
_REDIRECT = "it leads to another address, which is not followed; give the right `--base-url`"


def failure_reason(error: AgentRunError) -> str:
    """Return why there is no answer, and what to do; the provider's words in it are untrusted."""
    if isinstance(error, UsageLimitExceeded):
        return f"more than {REQUESTS_MAX} requests or {CALLS_MAX} calls for one prompt; say `go on`"
    if isinstance(error, ModelHTTPError):
        hint = _HINTS.get(error.status_code, _SERVER if error.status_code >= 500 else "")
        said = _said(error.body)
        what = f"the model's address answered {error.status_code}"
        return "; ".join([f"{what}: {said}" if said else what, *([hint] if hint else [])])
    text = str(error)
    if isinstance(error, ModelAPIError):
        if text.startswith("Error code: 3"):
            return f"the model's address answered {text.removeprefix('Error code: ')}; {_REDIRECT}"
        if text.strip(". ").lower() in ("connection error", "request timed out"):
            return (
                "the model cannot be reached; check the network, `--base-url`, and that its "
                "server runs"
            )
    return text


def _said(body: object) -> str:
    """Return the message in an error's body, in the forms that providers have."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("message") or body.get("detail")
    return body if isinstance(body, str) else ""
