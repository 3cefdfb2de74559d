"""Limits for what a provider sends, and messages for its failures."""

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
"""Requests to the model for one prompt, which ends a model that calls tools forever."""
CALLS_MAX = 200
"""Tool calls for one prompt; of an answer that exceeds it no call is made."""
ANSWER_MAX = 1_000_000
"""Characters of one answer with thoughts and calls; models' own limit is about half."""
PARTS_MAX = 2_000
"""Texts, thoughts and calls of one answer."""
BODY_MAX = 32 * 1_048_576
"""Bytes of one HTTP response; the protocol adds about 200 bytes to each byte of an answer."""

TIMEOUT_SECONDS = 600
"""Maximum silence; models think long before they answer."""
CONNECT_SECONDS = 5


class TooMuchError(SkillhouseError):
    """The provider sent more than `Measured` allows."""


def limits() -> UsageLimits:
    return UsageLimits(request_limit=REQUESTS_MAX, tool_calls_limit=CALLS_MAX)


class Measured:
    def __init__(self) -> None:
        self._characters = 0
        self._parts = 0

    def take(self, event: object) -> None:
        """Count an event of a stream; raises TooMuchError."""
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


def _length(piece: object) -> int:
    if isinstance(piece, TextPart | ThinkingPart):
        return len(piece.content)
    if isinstance(piece, ToolCallPart):
        return len(piece.args_as_json_str())
    if isinstance(piece, TextPartDelta | ThinkingPartDelta):
        return len(piece.content_delta or "")
    if isinstance(piece, ToolCallPartDelta):
        return len(str(piece.args_delta or ""))
    return 0


def bounded_client() -> httpx2.AsyncClient:
    """Return a client whose responses end in an error after `BODY_MAX` bytes.

    Libraries read a whole line before its content can be counted. Redirects are not followed, since
    they would send the conversation, and a key in a custom header, to another address.
    """
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_bound]},
        follow_redirects=False,
    )


async def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        # A few compressed bytes can expand to any number.
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
    """Return why there is no answer, and the remedy; the provider's text in it is untrusted."""
    if isinstance(error, UsageLimitExceeded):
        return f"more than {REQUESTS_MAX} requests or {CALLS_MAX} calls for one prompt; say `go on`"
    if isinstance(error, ModelHTTPError):
        hint = _HINTS.get(error.status_code, _SERVER if error.status_code >= 500 else "")
        detail = _detail(error.body)
        what = f"the model's address answered {error.status_code}"
        return "; ".join([f"{what}: {detail}" if detail else what, *([hint] if hint else [])])
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


def _detail(body: object) -> str:
    """Return the message in the body of an error, in the providers' various forms."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("message") or body.get("detail")
    return body if isinstance(body, str) else ""
