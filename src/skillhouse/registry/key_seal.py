"""Private keys as encrypted PKCS #8, which other programs can open too."""

from __future__ import annotations

import base64
import hashlib
import secrets
import textwrap

from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import padding, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.x509 import ObjectIdentifier

from skillhouse.registry.certificates import CURVES
from skillhouse.registry.trust import PublisherError

COST, BLOCK, PARALLEL = 1 << 14, 8, 5
"""scrypt's N, r and p (OWASP Password Storage Cheat Sheet): 16 MiB, as much as OpenSSL opens."""
KEY_MAX = 4_096
"""Bytes of the file of a key."""
_LABEL = "ENCRYPTED PRIVATE KEY"
_PBES2 = ObjectIdentifier("1.2.840.113549.1.5.13")
_SCRYPT = ObjectIdentifier("1.3.6.1.4.1.11591.4.11")
_AES_256_CBC = ObjectIdentifier("2.16.840.1.101.3.4.1.42")


@asn1.sequence
class _ScryptParameters:
    """RFC 7914, section 7.1."""

    salt: bytes
    cost: int
    block: int
    parallel: int


@asn1.sequence
class _Derivation:
    """PBES2's algorithm that makes a key of a password (RFC 8018, appendix A.4)."""

    algorithm: ObjectIdentifier
    parameters: _ScryptParameters


@asn1.sequence
class _Encryption:
    """PBES2's cipher."""

    algorithm: ObjectIdentifier
    initial: bytes


@asn1.sequence
class _Parameters:
    """PBES2's two algorithms."""

    derivation: _Derivation
    encryption: _Encryption


@asn1.sequence
class _Algorithm:
    """PBES2 with its parameters."""

    algorithm: ObjectIdentifier
    parameters: _Parameters


@asn1.sequence
class _EncryptedKey:
    """EncryptedPrivateKeyInfo (RFC 5208, section 6)."""

    algorithm: _Algorithm
    data: bytes


def new_private_key(curve: type[ec.EllipticCurve]) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def seal_key(key: ec.EllipticCurvePrivateKey, password: bytes) -> bytes:
    """Return a private key in PEM, encrypted with scrypt and AES-256."""
    plain = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    salt, initial = secrets.token_bytes(16), secrets.token_bytes(16)
    derived = hashlib.scrypt(
        password, salt=salt, n=COST, r=BLOCK, p=PARALLEL, maxmem=1 << 26, dklen=32
    )
    padder = padding.PKCS7(128).padder()
    padded = padder.update(plain) + padder.finalize()
    cipher = Cipher(algorithms.AES(derived), modes.CBC(initial)).encryptor()
    sealed = _EncryptedKey(
        algorithm=_Algorithm(
            algorithm=_PBES2,
            parameters=_Parameters(
                derivation=_Derivation(
                    algorithm=_SCRYPT,
                    parameters=_ScryptParameters(
                        salt=salt, cost=COST, block=BLOCK, parallel=PARALLEL
                    ),
                ),
                encryption=_Encryption(algorithm=_AES_256_CBC, initial=initial),
            ),
        ),
        data=cipher.update(padded) + cipher.finalize(),
    )
    lines = textwrap.wrap(base64.b64encode(asn1.encode_der(sealed)).decode(), 64)
    return "\n".join((f"-----BEGIN {_LABEL}-----", *lines, f"-----END {_LABEL}-----", "")).encode()


def open_key(pem: bytes, password: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the private key of an encrypted PEM text.

    Raises:
        PublisherError: `key`, another password, another kind of key, or one without a password.
    """
    if len(pem) > KEY_MAX or _LABEL.encode() not in pem:
        raise PublisherError("key", f"expected a PEM text `{_LABEL}` of at most {KEY_MAX} bytes")
    try:
        key = serialization.load_pem_private_key(pem, password)
    except (ValueError, TypeError):
        # Not chained: what a library says of a secret is no business of a log.
        raise PublisherError("key", "does not open: another password, or it is damaged") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, CURVES):
        raise PublisherError("key", "expected a key on P-256 or P-384")
    return key
