"""Why there is no answer, or only a part of one, and what the user can do about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

import anyio
import httpx2
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ModelResponse

from skillhouse.extensions.chat.models import CALLS_MAX, REQUESTS_MAX, TIMEOUT_SECONDS, TooMuchError
from skillhouse.floor import SkillhouseError

T = TypeVar("T")

Status = Literal["ok", "unreachable", "failed", "broken"]
"""`broken`: the provider began an answer, and what arrived is not all of it."""

_GO_ON = "what arrived is kept, and `go on` asks for the rest"


class BrokenAnswerError(SkillhouseError):
    """A provider's answer is not whole, or cannot be read."""


def check_end(response: ModelResponse) -> None:
    """Raise BrokenAnswerError unless the model ended this answer itself.

    A connection that is closed without an error looks like an end to an HTTP client that was given
    no length, so only the finish reason of the protocol counts: `finish_reason` (OpenAI),
    `response.completed` (OpenAI Responses), `stop_reason` (Anthropic), `finishReason` (Gemini).
    """
    details = response.provider_details or {}
    # The library's own `stop` replaces a missing reason; the provider's is in the details.
    raw, reason = details.get("finish_reason"), response.finish_reason
    if not raw and reason in (None, "stop"):
        raise BrokenAnswerError(f"the answer broke off before its end; {_GO_ON}")
    if reason == "length":
        raise BrokenAnswerError(
            f"the answer was cut off at the model's limit of output tokens; {_GO_ON}"
        )
    if reason == "content_filter":
        why = details.get("refusal") or details.get("block_reason") or raw
        what = f": {why}" if isinstance(why, str) else ""
        raise BrokenAnswerError(f"the provider refused to answer, or to go on{what}")
    if reason == "error":
        raise BrokenAnswerError(f"the provider ended the answer with an error: {raw}")


@contextmanager
def readable() -> Iterator[None]:
    """Raise what a provider's package makes of an unreadable stream as BrokenAnswerError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        kind = type(error).__name__
        raise BrokenAnswerError(f"the provider's answer cannot be read ({kind})") from error
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise BrokenAnswerError(f"the connection ended within the answer; {_GO_ON}") from error


async def within_silence(events: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the events; raise BrokenAnswerError if none comes for `TIMEOUT_SECONDS`."""
    while True:
        try:
            with anyio.fail_after(TIMEOUT_SECONDS):
                event = await anext(events)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise BrokenAnswerError(
                f"nothing more of the answer came for {TIMEOUT_SECONDS:g} seconds; {_GO_ON}"
            ) from error
        yield event


def failure_of(
    error: AgentRunError | TooMuchError | BrokenAnswerError, *, has_begun: bool
) -> tuple[Status, str]:
    """Return the status and reason of a failed prompt.

    `has_begun` says that the failed request had brought a part of an answer.
    """
    if isinstance(error, TooMuchError):
        return "failed", str(error)
    if isinstance(error, BrokenAnswerError):
        return "broken", str(error)
    if not isinstance(error, ModelAPIError):
        return "failed", failure_reason(error)
    if has_begun or _is_in_stream(error):
        return "broken", f"the answer broke off: {_broken_reason(error)}; {_GO_ON}"
    return "unreachable", failure_reason(error)


def _is_in_stream(error: ModelAPIError) -> bool:
    """Return whether the error came within an answer that the provider had accepted."""
    if not isinstance(error, ModelHTTPError):
        texts = (str(one) for one in _causes(error))
        return any("without sending complete message body" in text for text in texts)
    response = getattr(error.__cause__, "response", None)
    status = getattr(response, "status_code", None)
    return status is None or status < 400


def _broken_reason(error: ModelAPIError) -> str:
    if isinstance(error, ModelHTTPError):
        return _detail(error.body) or f"error {error.status_code}"
    for cause in _causes(error):
        if isinstance(cause, httpx2.TimeoutException):
            return f"nothing more came for {TIMEOUT_SECONDS:g} seconds"
        if isinstance(cause, httpx2.TransportError):
            return "the connection ended"
        if isinstance(cause, httpx2.DecodingError):
            return str(cause)
    return str(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


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
    if isinstance(error, UnexpectedModelBehavior):
        if text.startswith("Streamed response ended without content"):
            return (
                "the model's address sent no stream of an answer; check `--model`, and that "
                "`--base-url` is an API of this provider"
            )
        if text.startswith("Exceeded maximum output retries"):
            return "the model gave an empty answer; send it again, or try another model"
    return text


def _detail(body: object) -> str:
    """Return the message in the body of an error, in the providers' various forms."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("message") or body.get("detail")
    return body if isinstance(body, str) else ""
