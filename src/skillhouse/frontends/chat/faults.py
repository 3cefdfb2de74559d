"""What a person is told when a model gives no answer."""

from __future__ import annotations

from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelHTTPError,
    UsageLimitExceeded,
)

from skillhouse.frontends.chat.bounds import CALLS_MAX, REQUESTS_MAX

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


def told(error: AgentRunError) -> str:
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
                f"{text.strip('. ').lower()}: is the model's server running, and is `--base-url` "
                "right?"
            )
    return text


def _said(body: object) -> str:
    """Return the message in an error's body, in the forms that providers have."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("message") or body.get("detail")
    return body if isinstance(body, str) else ""
