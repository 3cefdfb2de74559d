"""Signed messages: their form (HMAC, time, and once), and the webhook that gets each question.

The form is that of Standard Webhooks (standardwebhooks.com): the headers `webhook-id`,
`webhook-timestamp` and `webhook-signature`, the last being `v1,` and the base64 of the HMAC-SHA256
of `id.timestamp.body`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from skillhouse.approval.request import (
    FOUND_HEADING,
    SENT_HEADING,
    ApprovalRequest,
    allowed_answers,
    rows_of,
)
from skillhouse.floor import ConfigError, SkillhouseError

WINDOW_SECONDS = 300
"""How old a message may be, and how far in the future (Standard Webhooks, "Verifying")."""
ID_MAX = 128
"""Characters of a message's id."""


class SignatureError(SkillhouseError):
    """A message is not taken; `code` is missing, old, wrong or repeated."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def signed_headers(
    body: bytes, *, secret: bytes, message_id: str, now_seconds: float
) -> dict[str, str]:
    timestamp = str(int(now_seconds))
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{_signature(body, secret, message_id, timestamp)}",
    }


def verified_id(
    headers: Mapping[str, str], body: bytes, *, secret: bytes, now_seconds: float
) -> str:
    """Return the id of a message that is signed and recent (seconds since 1970); the caller takes
    it once. Header names are in lower case. Raises SignatureError."""

    def is_right(signed: bytes, signature: bytes) -> bool:
        wanted = base64.b64encode(hmac.digest(secret, signed, "sha256"))
        return hmac.compare_digest(wanted, signature)

    return proved_id(headers, body, is_right, version="v1", now_seconds=now_seconds)


Proves = Callable[[bytes, bytes], bool]
"""Whether a signature, as it was sent, is one of these bytes."""


def proved_id(
    headers: Mapping[str, str], body: bytes, proves: Proves, *, version: str, now_seconds: float
) -> str:
    """Return what `verified_id` does, for signatures of any kind; `version` is before each."""
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not message_id or len(message_id) > ID_MAX or not timestamp.isascii():
        raise SignatureError("missing", "expected the headers of a signed message")
    if not timestamp.isdigit() or len(timestamp) > 12:
        raise SignatureError("missing", "expected a time in seconds since 1970")
    mark, signed = f"{version},".encode(), signed_bytes(body, message_id, timestamp)
    given = headers.get("webhook-signature", "").encode().split()
    signatures = [part.removeprefix(mark) for part in given if part.startswith(mark)]
    if not any(proves(signed, signature) for signature in signatures):
        raise SignatureError("wrong", "the signature is not right")
    if abs(now_seconds - int(timestamp)) > WINDOW_SECONDS:
        raise SignatureError("old", f"the message is more than {WINDOW_SECONDS} seconds off")
    return message_id


def secret_bytes(text: str) -> bytes:
    """Return a secret, with or without the `whsec_` of Standard Webhooks; SignatureError if it is
    no base64, or shorter than 24 bytes."""
    try:
        secret = base64.b64decode(text.strip().removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SignatureError("missing", "expected a secret in base64") from error
    if len(secret) < 24:
        raise SignatureError("missing", "expected a secret of 24 bytes or more")
    return secret


def signed_bytes(body: bytes, message_id: str, timestamp: str) -> bytes:
    return b".".join((message_id.encode(), timestamp.encode(), body))


def _signature(body: bytes, secret: bytes, message_id: str, timestamp: str) -> str:
    signed = signed_bytes(body, message_id, timestamp)
    return base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()


Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Sends a body to an address and returns the status; raises SkillhouseError or OSError."""

PREVIEW_MAX = 200
"""Characters of a text that a chat shows (S000-80)."""

logger = logging.getLogger(__name__)


class WebhookChannel:
    def __init__(
        self,
        url: str,
        secret: str,
        post: Post,
        *,
        page: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`url` and `secret` are as `checked_url` and `secret_bytes` take them, also in their
        errors. `page` is the address of the transaction page, for a link; it opens with the
        person's own key."""
        self._url = checked_url(url)
        self._secret = secret_bytes(secret)
        self._post = post
        self._page = page
        self._clock = clock

    async def ask(self, request: ApprovalRequest) -> None:
        body = json.dumps(question_value(request, self._page)).encode()
        headers = signed_headers(
            body, secret=self._secret, message_id=request.id, now_seconds=self._clock()
        )
        try:
            status = await self._post(self._url, headers, body)
        except (SkillhouseError, OSError) as error:
            logger.warning("the webhook of approvals cannot be reached: %s", error)
            return
        if not 200 <= status < 300:
            logger.warning("the webhook of approvals answered with status %d", status)


def question_value(request: ApprovalRequest, page: str = "") -> dict[str, object]:
    """Return plain values, from the same bytes to which an approval is bound."""
    return {
        "type": "approval.asked",
        "approval": request.id,
        "nonce": request.nonce,
        "content": request.content,
        "content_digest": request.content_digest,
        "title": request.title,
        "text": chat_text(request),
        "facts": {
            "found": [list(fact) for fact in request.found],
            "sent": [list(fact) for fact in request.sent],
        },
        "reasons": list(request.reasons),
        "level": request.level,
        "user": request.user,
        "answers": [answer.value for answer in allowed_answers(request)],
        "always": list(request.always),
        "expires_ms": request.expires_ms,
        "page": f"{page}/approvals/{request.id}" if page else "",
    }


def chat_text(request: ApprovalRequest) -> str:
    """Return the beginning of each text; all of it is among the facts, and on the page.

    Only a line of ours begins at its first column: what was found and what was sent are blocks
    below a line each, and no value or name of the call passes for such a line, also where a window
    of `ROW_COLUMNS` would have broken it.
    """
    lines = [" ".join(request.title.split()), f"tool: {request.tool}"]
    for heading, facts in ((FOUND_HEADING, request.found), (SENT_HEADING, request.sent)):
        lines += [heading] if facts else []
        for label, text in facts:
            begun = text if len(text) <= PREVIEW_MAX else f"{text[:PREVIEW_MAX]}…"
            first, *rest = begun.splitlines() or [""]
            lines += [f"  {' '.join(label.split())}: {first}", *(f"    {line}" for line in rest)]
    lines = [row for line in lines for row in rows_of(line)]
    return "\n".join(lines)


def checked_url(url: str) -> str:
    """Return the address; ConfigError if it is neither https nor on this machine, or has a
    password."""
    try:
        parts = urlsplit(url)
        host, user = parts.hostname or "", parts.username
        _ = parts.port
    except ValueError as error:
        raise ConfigError("expected an address for the webhook", key="webhook_url") from error
    is_plain = not any(c.isspace() or c == "\\" or not c.isprintable() for c in url)
    secure = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    if not host or user is not None or not is_plain or not secure:
        raise ConfigError(
            "expected an https address without a password for the webhook, or http on this machine",
            key="webhook_url",
        )
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
