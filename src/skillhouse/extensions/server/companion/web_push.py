"""The cryptography of Web Push: encrypted content (RFC 8188, 8291) and who sends it (RFC 8292).

pywebpush does the same by http-ece, which has no wheel: installing it would run its code
(docs/decisions/0497). The tests decrypt with http-ece, and have RFC 8291's example.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

CURVE = ec.SECP256R1()
RECORD_BYTES = 4_096
SALT_BYTES = 16
OVERHEAD_BYTES = 17
"""Of a record: the tag, and the byte that ends its content."""


def new_key() -> bytes:
    """Return a new private key, as PEM."""
    key = ec.generate_private_key(CURVE)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a PEM; ValueError if it has none of this curve."""
    key = load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != CURVE.name:
        raise ValueError("expected a key of the curve P-256")
    return key


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key as an uncompressed point, 65 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def encrypted(
    content: bytes,
    receiver: bytes,
    secret: bytes,
    *,
    sender: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes = b"",
) -> bytes:
    """Return content in the coding `aes128gcm`, as one record, for a browser's keys.

    Args:
        content: At most 4,079 bytes.
        receiver: The point that a subscription calls `p256dh`.
        secret: Its 16 bytes `auth`.
        sender: The key of this message alone; None makes one.
        salt: 16 bytes; by default random ones.

    Raises:
        ValueError: the content is too long, or `receiver` is no point of the curve.
    """
    if len(content) > RECORD_BYTES - OVERHEAD_BYTES:
        raise ValueError(f"expected at most {RECORD_BYTES - OVERHEAD_BYTES} bytes of content")
    sender = sender or ec.generate_private_key(CURVE)
    salt = salt or os.urandom(SALT_BYTES)
    own = point_of(sender.public_key())
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, receiver)
    shared = sender.exchange(ec.ECDH(), theirs)
    key = _derived(shared, secret, b"WebPush: info\0" + receiver + own, 32)
    content_key = _derived(key, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(key, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + RECORD_BYTES.to_bytes(4) + bytes([len(own)]) + own
    return header + AESGCM(content_key).encrypt(nonce, content + b"\x02", None)


def vapid(claims: Mapping[str, object], key: ec.EllipticCurvePrivateKey) -> str:
    """Return the header `Authorization` with claims, signed by the sender's key."""
    parts = ({"typ": "JWT", "alg": "ES256"}, dict(claims))
    signed = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    signature = encoded(r.to_bytes(32) + s.to_bytes(32))
    return f"vapid t={signed}.{signature}, k={encoded(point_of(key.public_key()))}"


def encoded(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """Return the bytes of base64url with or without padding; ValueError if it is none."""
    plain = text.rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)


def _derived(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(key)
