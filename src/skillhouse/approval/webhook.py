"""Sends each question, signed, to the one address that the operator set."""

from __future__ import annotations

import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from skillhouse.approval.request import ApprovalRequest, allowed_answers
from skillhouse.approval.signatures import secret_bytes, signed_headers
from skillhouse.floor import ConfigError, SkillhouseError

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Sends a body to an address and returns the status; raises SkillhouseError or OSError."""

PREVIEW_MAX = 200
"""Characters of a text that a chat shows (S000-80)."""

logger = logging.getLogger(__name__)


class WebhookChannel:
    """Tells a service or device of each question; the answer comes back signed, or elsewhere."""

    def __init__(
        self,
        url: str,
        secret: str,
        post: Post,
        *,
        page: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take where to send, what to sign with, and what sends.

        Args:
            url: https, or http on this machine.
            secret: Base64, of 24 bytes or more; known to the receiver.
            post: Sends one body.
            page: Address of the transaction page, for a link; it opens with the person's own key.
            clock: Seconds since 1970.

        Raises:
            ConfigError: the address is of another kind.
            SignatureError: the secret is none.
        """
        self._url = checked_url(url)
        self._secret = secret_bytes(secret)
        self._post = post
        self._page = page
        self._clock = clock

    async def ask(self, request: ApprovalRequest) -> None:
        """Send the question; nobody answers here."""
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
    """Return a question as plain values, made from the same bytes that a yes is bound to."""
    return {
        "type": "approval.asked",
        "approval": request.id,
        "nonce": request.nonce,
        "content": request.content,
        "content_digest": request.content_digest,
        "title": request.title,
        "text": chat_text(request),
        "facts": [list(fact) for fact in request.facts],
        "reasons": list(request.reasons),
        "level": request.level,
        "user": request.user,
        "answers": [answer.value for answer in allowed_answers(request)],
        "always": list(request.always),
        "expires_ms": request.expires_ms,
        "page": f"{page}/approvals/{request.id}" if page else "",
    }


def chat_text(request: ApprovalRequest) -> str:
    """Return a question as a chat shows it: the tool, what it is about, and how each text begins.

    All of each text is among the facts, and on the page.
    """
    begun = (
        f"{label}: {text if len(text) <= PREVIEW_MAX else f'{text[:PREVIEW_MAX]}…'}"
        for label, text in request.facts
    )
    return "\n".join((request.title, f"tool: {request.tool}", *begun))


def checked_url(url: str) -> str:
    """Return an address to which questions may be sent.

    Raises:
        ConfigError: it is neither https nor on this machine, or holds a password.
    """
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
