"""Requests to a signer and its answers."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, replace
from typing import Protocol

from skillhouse.floor import Digest, canonical_json, digest
from skillhouse.signer.keys import KeyInfo
from skillhouse.signer.signer_errors import SignerError

MESSAGE_MAX = 65_536
"""Bytes of a message: a person is to read it."""
LIFE_MS = 600_000
"""How long a request may wait for its answer (10 minutes)."""
TYPES = ("message", "transaction")

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignRequest:
    """One thing to sign, bound to the content that a person saw."""

    id: str
    """32 hex digits; each is signed once."""
    key: str
    """Name of the key."""
    key_id: str
    """Who the key was when a person was asked."""
    type: str
    """message or transaction."""
    payload: bytes
    """UTF-8 of a message, or an unsigned transaction."""
    expires_ms: int
    """Not signed from then on; milliseconds since 1970."""
    approved: Digest
    """`binding` of what was shown and decided; another content is refused."""
    approval: str = ""
    """Id of a person's approval of `approved`; empty when a policy let a session key sign."""

    @property
    def content(self) -> Digest:
        """Digest of what is signed and with which key: the same for every request for it."""
        return digest(b"skillhouse-sign-content-1\n" + canonical_json(self._content()))

    @property
    def binding(self) -> Digest:
        """Digest of all that is signed and by whom."""
        whole = {**self._content(), "expires_ms": self.expires_ms, "id": self.id}
        return digest(b"skillhouse-sign-1\n" + canonical_json(whole))

    def _content(self) -> dict[str, str]:
        return {
            "key": self.key,
            "key_id": self.key_id,
            "payload_sha256": hashlib.sha256(self.payload).hexdigest(),
            "type": self.type,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature, and the signed transaction if it is one."""

    key_id: str
    public_key: str
    """Hex."""
    scheme: str
    """ed25519, eip191 or eip155 and its followers ("transaction")."""
    signature: bytes
    transaction: bytes = b""
    """The signed raw transaction, ready for the network."""
    transaction_hash: bytes = b""


class Signer(Protocol):
    """Signs approved requests and reveals no key."""

    async def sign(self, request: SignRequest) -> Signature:
        """Return the signature of exactly the request's content.

        Raises:
            SignerError: it was not signed, and nothing was spent; `code` says why.
        """
        ...


def new_request(key: KeyInfo, kind: str, payload: bytes, now_ms: int) -> SignRequest:
    """Return a request for what is about to be shown; its `approved` is its own binding."""
    draft = SignRequest(
        id=secrets.token_hex(16),
        key=key.name,
        key_id=key.id,
        type=kind,
        payload=payload,
        expires_ms=now_ms + LIFE_MS,
        approved=Digest(""),
    )
    return with_approval(draft, draft.binding)


def with_approval(request: SignRequest, approved: Digest, approval: str = "") -> SignRequest:
    return replace(request, approved=approved, approval=approval)


def check_request(request: SignRequest) -> None:
    """Refuse a request that is malformed or differs from the approved content.

    Raises:
        SignerError: "binding".
    """
    if request.type not in TYPES or not _ID.fullmatch(request.id):
        raise SignerError("binding", "expected a message or a transaction with its id")
    if request.binding != request.approved:
        raise SignerError(
            "binding",
            "the content to sign is not the approved content; nothing was signed, ask again",
        )


def message_text(payload: bytes) -> str:
    """Return a message that can be shown as it is.

    Only text: what a person cannot read could be a transaction of some other network.

    Raises:
        SignerError: "unreadable-message": empty, too long, no UTF-8, or with hidden characters.
    """
    if not 0 < len(payload) <= MESSAGE_MAX:
        raise SignerError("unreadable-message", f"expected a message of 1 to {MESSAGE_MAX} bytes")
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        raise SignerError("unreadable-message", "expected a message in UTF-8") from None
    if not all(character.isprintable() or character == "\n" for character in text):
        raise SignerError(
            "unreadable-message",
            "the message has control or hidden characters, which cannot be shown to a person",
        )
    return text
