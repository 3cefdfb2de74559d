"""The files of signatures: a Sigstore bundle 0.3 that holds a DSSE envelope and certificates."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from skillhouse.floor import DecodeError, dataclass
from skillhouse.floor.documents import json_value
from skillhouse.registry.certificates import curve_hash
from skillhouse.registry.trust import SIGNATURE_MAX, PublisherError

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
TIMESTAMPS_MAX = 4
DEPTH_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureBundle:
    """What a file of a signature holds; none of it is checked but its form."""

    payload: bytes
    payload_type: str
    signature: bytes
    certificates: tuple[bytes, ...]
    """In DER; the signer's first, a root never."""
    timestamps: tuple[bytes, ...] = ()
    """RFC 3161 responses over the signature."""

    @property
    def signed(self) -> bytes:
        return signed_bytes(self.payload_type, self.payload)


def signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding.

    >>> signed_bytes("a/b", b"c")
    b'DSSEv1 3 a/b 1 c'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign_payload(
    payload: bytes,
    payload_type: str,
    *,
    key: ec.EllipticCurvePrivateKey,
    certificates: Sequence[bytes],
) -> SignatureBundle:
    """Return a bundle over a payload."""
    signed = signed_bytes(payload_type, payload)
    return SignatureBundle(
        payload=payload,
        payload_type=payload_type,
        signature=key.sign(signed, ec.ECDSA(curve_hash(key.curve))),
        certificates=tuple(certificates),
    )


def check_signature(bundle: SignatureBundle, key: ec.EllipticCurvePublicKey) -> None:
    """Refuse, with `signature`, a bundle that was not signed with a key."""
    try:
        # The hash is that of the key's curve: nothing in the file chooses an algorithm.
        key.verify(bundle.signature, bundle.signed, ec.ECDSA(curve_hash(key.curve)))
    except InvalidSignature as error:
        message = "was not made with the key of the certificate, or what it signs was changed"
        raise PublisherError("signature", message) from error


def write_bundle(bundle: SignatureBundle) -> bytes:
    """Return a bundle as its file."""
    material: dict[str, Any] = {
        "x509CertificateChain": {
            "certificates": [{"rawBytes": _text(one)} for one in bundle.certificates]
        },
        "tlogEntries": [],
    }
    if bundle.timestamps:
        stamps = [{"signedTimestamp": _text(one)} for one in bundle.timestamps]
        material["timestampVerificationData"] = {"rfc3161Timestamps": stamps}
    value = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": _text(bundle.payload),
            "payloadType": bundle.payload_type,
            "signatures": [{"sig": _text(bundle.signature), "keyid": ""}],
        },
    }
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def read_bundle(data: bytes, payload_type: str) -> SignatureBundle:
    """Return what a file of a signature holds.

    Raises:
        PublisherError: `size`, or `bundle` for whatever is not exactly such a file.
    """
    if len(data) > SIGNATURE_MAX:
        raise PublisherError("size", f"expected a signature of at most {SIGNATURE_MAX} bytes")
    value = strict_json(data, "bundle")
    _keys(value, {"mediaType", "verificationMaterial", "dsseEnvelope"})
    if value["mediaType"] != MEDIA_TYPE:
        _refuse(f"expected the media type {MEDIA_TYPE}, got {str(value['mediaType'])[:80]!r}")
    material, envelope = value["verificationMaterial"], value["dsseEnvelope"]
    _keys(material, {"x509CertificateChain"}, {"tlogEntries", "timestampVerificationData"})
    if material.get("tlogEntries", []) != []:
        _refuse("entries of a transparency log cannot be checked yet")
    _keys(material["x509CertificateChain"], {"certificates"})
    _keys(envelope, {"payload", "payloadType", "signatures"})
    if envelope["payloadType"] != payload_type:
        _refuse(f"expected a payload {payload_type}, got {str(envelope['payloadType'])[:80]!r}")
    signatures = _list(envelope["signatures"])
    if len(signatures) != 1:
        _refuse(f"expected one signature, got {len(signatures)}")
    _keys(signatures[0], {"sig"}, {"keyid"})
    return SignatureBundle(
        payload=_bytes(envelope["payload"]),
        payload_type=payload_type,
        signature=_bytes(signatures[0]["sig"]),
        certificates=_each(material["x509CertificateChain"]["certificates"], "rawBytes"),
        timestamps=_timestamps(material.get("timestampVerificationData")),
    )


def _timestamps(value: Any) -> tuple[bytes, ...]:
    if value is None:
        return ()
    _keys(value, {"rfc3161Timestamps"})
    found = _each(value["rfc3161Timestamps"], "signedTimestamp")
    if len(found) > TIMESTAMPS_MAX:
        _refuse(f"expected at most {TIMESTAMPS_MAX} timestamps")
    return found


def _each(value: Any, key: str) -> tuple[bytes, ...]:
    items = _list(value)
    for item in items:
        _keys(item, {key})
    return tuple(_bytes(item[key]) for item in items)


def strict_json(data: bytes, step: str) -> Any:
    """Return JSON as `json_value` reads it, without fractions and not nested deeply.

    Raises:
        PublisherError: of the `step` given.
    """

    if data.startswith(b"\xef\xbb\xbf"):
        raise PublisherError(step, "is no JSON: a byte order mark")
    try:
        value = json_value(data)
    except DecodeError as error:
        raise PublisherError(step, f"is no JSON: {str(error)[:80]}") from error
    if _has_fractions(value):
        raise PublisherError(step, "expected whole numbers")
    if _depth(value) > DEPTH_MAX:
        raise PublisherError(step, f"is nested deeper than {DEPTH_MAX}")
    return value


def _has_fractions(value: Any) -> bool:
    """Whether a value that `json_value` returned has a number with a fraction."""
    if isinstance(value, (dict, list)):
        return any(map(_has_fractions, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested, counted no further than the limit."""
    level, depth = [value], 0
    while level and depth <= DEPTH_MAX:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        level, depth = inner, depth + 1
    return depth


def _keys(value: Any, needed: set[str], optional: set[str] | None = None) -> None:
    if not isinstance(value, dict):
        _refuse("expected an object")
    missing = needed - value.keys()
    unknown = value.keys() - needed - (optional or set())
    if missing or unknown:
        word = "has no" if missing else "has an unknown"
        _refuse(f"{word} key `{min(missing or unknown)[:40]}`")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        _refuse("expected a list")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        _refuse("expected a text in base64")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        _refuse("expected a text in base64")
    if _text(data) != value:
        # Two spellings of one signature would have two digests.
        _refuse("expected base64 in its one spelling")
    return data


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _refuse(message: str) -> NoReturn:
    raise PublisherError("bundle", message)
