"""Signed messages between skillhouse and a person's device or service: HMAC, time, and once.

The form is that of Standard Webhooks (standardwebhooks.com): the headers `webhook-id`,
`webhook-timestamp` and `webhook-signature`, the last being `v1,` and the base64 of the HMAC-SHA256
of `id.timestamp.body`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping

from skillhouse.floor import SkillhouseError

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
    """Return the headers that go with a body."""
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
    """Return the id of a message whose signature and time are right; the caller takes it once.

    Args:
        headers: With lower-case names.
        body: As it came.
        secret: What only the house and the sender know.
        now_seconds: Seconds since 1970.

    Raises:
        SignatureError: the message is not taken.
    """
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not message_id or len(message_id) > ID_MAX or not timestamp.isascii():
        raise SignatureError("missing", "expected the headers of a signed message")
    if not timestamp.isdigit() or len(timestamp) > 12:
        raise SignatureError("missing", "expected a time in seconds since 1970")
    wanted = _signature(body, secret, message_id, timestamp).encode()
    given = headers.get("webhook-signature", "").encode().split()
    signatures = [part.removeprefix(b"v1,") for part in given if part.startswith(b"v1,")]
    if not any(hmac.compare_digest(wanted, signature) for signature in signatures):
        raise SignatureError("wrong", "the signature is not right")
    if abs(now_seconds - int(timestamp)) > WINDOW_SECONDS:
        raise SignatureError("old", f"the message is more than {WINDOW_SECONDS} seconds off")
    return message_id


def secret_bytes(text: str) -> bytes:
    """Return a secret as it is written, with or without the `whsec_` of Standard Webhooks.

    Raises:
        SignatureError: it is no base64, or shorter than 24 bytes (Standard Webhooks).
    """
    try:
        secret = base64.b64decode(text.strip().removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SignatureError("missing", "expected a secret in base64") from error
    if len(secret) < 24:
        raise SignatureError("missing", "expected a secret of 24 bytes or more")
    return secret


def _signature(body: bytes, secret: bytes, message_id: str, timestamp: str) -> str:
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()
