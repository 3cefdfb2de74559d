"""Makes keys and signs with them; runs in the signer's own process only."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.registry.passwords import SignerError
from skillhouse_signer.keys import KeyKind
from skillhouse_signer.transaction import Transaction

_CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""n of secp256k1 (SEC 2, section 2.4.1)."""


def new_secret(kind: KeyKind) -> bytes:
    while True:
        secret = secrets.token_bytes(32)
        if kind is KeyKind.ED25519 or 0 < int.from_bytes(secret) < _CURVE_ORDER:
            return secret


def secret_from(kind: KeyKind, text: bytes) -> bytes:
    """Return a private key from 64 hex digits or PEM without a password.

    Any other text is refused with "wrong-key" and is not repeated.
    """
    stripped = text.strip()
    if stripped.startswith(b"-----BEGIN"):
        return _from_pem(kind, stripped)
    try:
        secret = bytes.fromhex(stripped.removeprefix(b"0x").decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise SignerError("wrong-key", "expected 64 hex digits or a PEM text as private key")
    if kind is KeyKind.SECP256K1 and not 0 < int.from_bytes(secret) < _CURVE_ORDER:
        raise SignerError("wrong-key", "the number is no private key of secp256k1")
    return secret


def public_key(kind: KeyKind, secret: bytes) -> bytes:
    """Return the public key: 32 bytes, or 33 (compressed) of secp256k1."""
    if kind is KeyKind.ED25519:
        key: bytes = _ed25519(secret).public_key().public_bytes_raw()
        return key
    compressed: bytes = _account(secret)._key_obj.public_key.to_compressed_bytes()  # noqa: SLF001
    return compressed


def key_id(kind: KeyKind, secret: bytes) -> str:
    """Return who a key is: its address, or `ed25519:` and its public key."""
    if kind is KeyKind.ED25519:
        return f"ed25519:{public_key(kind, secret).hex()}"
    return str(_account(secret).address).lower()


def sign_message(kind: KeyKind, secret: bytes, text: str) -> bytes:
    """Return the signature of a text: Ed25519 of its UTF-8, or EIP-191 ("personal_sign").

    The prefix of EIP-191 keeps a message from being a transaction of any chain of secp256k1.
    """
    if kind is KeyKind.ED25519:
        signature: bytes = _ed25519(secret).sign(text.encode())
        return signature
    signable = _eth_messages().encode_defunct(text=text)
    return bytes(_account(secret).sign_message(signable).signature)


def sign_transaction(secret: bytes, transaction: Transaction) -> tuple[bytes, bytes, bytes]:
    """Return the signature (r, s, parity), the signed raw transaction and its hash."""
    digest = _keccak(transaction.unsigned())
    signed = _account(secret).unsafe_sign_hash(digest)
    parity = signed.v - 27
    raw = transaction.signed(parity, signed.r, signed.s)
    return bytes(signed.signature), raw, _keccak(raw)


def _ed25519(secret: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise MissingExtraError("signer", "cryptography") from error
    return Ed25519PrivateKey.from_private_bytes(secret)


def _account(secret: bytes) -> Any:
    try:
        with _same_recursion_limit():
            from eth_account import Account
    except ImportError as error:
        raise MissingExtraError("signer", "eth_account") from error
    return Account.from_key(secret)


def _eth_messages() -> Any:
    with _same_recursion_limit():
        from eth_account import messages

    return messages


@contextlib.contextmanager
def _same_recursion_limit() -> Iterator[None]:
    """Keep the limit: py_ecc lifts it so far that the stack would end first."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _keccak(data: bytes) -> bytes:
    from eth_utils.crypto import keccak

    return bytes(keccak(data))


def _from_pem(kind: KeyKind, text: bytes) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256K1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    loaders: Mapping[bool, Any] = {
        True: serialization.load_ssh_private_key,
        False: serialization.load_pem_private_key,
    }
    try:
        key = loaders[b"OPENSSH" in text[:64]](text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not chained: some messages repeat what they could not read.
        raise SignerError("wrong-key", "the PEM text is no private key without password") from None
    if kind is KeyKind.ED25519 and isinstance(key, Ed25519PrivateKey):
        return key.private_bytes_raw()
    if (
        kind is KeyKind.SECP256K1
        and isinstance(key, EllipticCurvePrivateKey)
        and isinstance(key.curve, SECP256K1)
    ):
        return key.private_numbers().private_value.to_bytes(32)
    raise SignerError("wrong-key", f"expected a private key of {kind}, got another")
