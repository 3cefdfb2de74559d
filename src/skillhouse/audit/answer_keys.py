"""The keys that sign what servers answer each other of their logs; needs the extra `server`."""

from __future__ import annotations

import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from skillhouse.audit.log_files import LogKeys, seal


def _signed(request: str, question: str, body: str) -> bytes:
    """Return what is signed: an answer to one question, and no other text of that key.

    INVARIANT: what was asked is part of it. Who writes the state can change a question before it is
    answered, and the answer to a narrower one leaves records out.
    """
    return json.dumps(["skillhouse log answer 1", request, question, body]).encode()


def public_key_of(keys: LogKeys) -> str:
    """Return the key by which answers of a log are verified, in hex."""
    return _private(keys).public_key().public_bytes_raw().hex()


def sign(keys: LogKeys, request: str, question: str, body: str) -> str:
    """Return the signature of an answer; `request` is the id of the question, as it was asked."""
    return _private(keys).sign(_signed(request, question, body)).hex()


def is_signed(public_key: str, request: str, question: str, body: str, signature: str) -> bool:
    """Whether who has a log's key answered so to this question."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), _signed(request, question, body))
    except (InvalidSignature, ValueError):
        return False
    return True


def _private(keys: LogKeys) -> Ed25519PrivateKey:
    seed = bytes.fromhex(seal(keys.answers, b"ed25519 of answers"))
    return Ed25519PrivateKey.from_private_bytes(seed)
