"""What a companion app says, each message signed as a whole with the key of its device."""

from __future__ import annotations

import base64
import binascii
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from msgspec import Struct

from skillhouse.approval import Answer, SignatureError
from skillhouse.floor import DecodeError, shaped

POINT_BYTES = 65
"""Of an uncompressed point of P-256 (SEC 1, 2.3.3)."""
HALF_BYTES = 32
"""Of each half of a signature, as WebCrypto makes them (IEEE P1363)."""


class AppMessage(Struct, frozen=True, kw_only=True, tag_field="do"):
    """INVARIANT: what is to be done is among what is signed, so that no message passes for one of
    another kind."""

    device: str


class Look(AppMessage, frozen=True, kw_only=True, tag="look"):
    """The app is open and shows what there is."""

    part: str = "waiting"
    """`waiting`, or `activity`."""
    seen: str = ""
    """Tag of what it shows already."""


class Alive(AppMessage, frozen=True, kw_only=True, tag="alive"):
    """A push was delivered."""


class GiveAnswer(AppMessage, frozen=True, kw_only=True, tag="answer"):
    approval: str
    nonce: str
    content_digest: str
    answer: Answer
    message: str = ""
    typed: str = ""
    """What the person typed, where what signs asks for it."""


class StopAll(AppMessage, frozen=True, kw_only=True, tag="stop"):
    pass


class Subscribe(AppMessage, frozen=True, kw_only=True, tag="subscribe"):
    """Where pushes go: what the browser's `pushManager` gave."""

    endpoint: str
    p256dh: str
    auth: str


class Unsubscribe(AppMessage, frozen=True, kw_only=True, tag="unsubscribe"):
    pass


class Leave(AppMessage, frozen=True, kw_only=True, tag="leave"):
    """The person removed the pairing in the app."""


Message = Look | Alive | GiveAnswer | StopAll | Subscribe | Unsubscribe | Leave


class PairingRequest(Struct, frozen=True, kw_only=True):
    code: str
    public_key: str
    """`Device.public_key`."""
    name: str = ""
    """What the person called the device; else what the code was made for."""


def message_of(body: bytes) -> Message:
    """Return a message of which nothing is proved yet; SignatureError for what is none."""
    try:
        # mypy: a union is no type.
        message: Message = shaped(json.loads(body), Message)  # type: ignore[arg-type]
    except (ValueError, RecursionError, DecodeError) as error:
        raise SignatureError("missing", "expected the JSON of a message") from error
    return message


def pairing_of(body: bytes) -> PairingRequest:
    try:
        asked = shaped(json.loads(body), PairingRequest)
        _key_of(asked.public_key)
    except (ValueError, RecursionError, DecodeError) as error:
        raise SignatureError("missing", "expected a code and a key of P-256") from error
    return asked


def is_signed_by(public_key: str, signed: bytes, signature: bytes) -> bool:
    """Whether a signature (base64 of its two halves) is of these bytes and by this key."""
    try:
        halves = base64.b64decode(signature, validate=True)
        if len(halves) != 2 * HALF_BYTES:
            return False
        first, second = (
            int.from_bytes(half, "big") for half in (halves[:HALF_BYTES], halves[HALF_BYTES:])
        )
        _key_of(public_key).verify(encode_dss_signature(first, second), signed, ECDSA(SHA256()))
    except (binascii.Error, ValueError, InvalidSignature):
        return False
    return True


def _key_of(public_key: str) -> EllipticCurvePublicKey:
    """Return the key; ValueError for what is no uncompressed point of the curve."""
    point = base64.b64decode(public_key, validate=True)
    if len(point) != POINT_BYTES:
        raise ValueError("expected an uncompressed point of P-256")
    return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point)
