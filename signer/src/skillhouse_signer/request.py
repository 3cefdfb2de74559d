"""Requests to a signer, its answers, and the frames that carry them to and from its process.

A frame is a length, then JSON of one fixed shape: not MessagePack, as amounts have up to 256 bits.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from skillhouse.floor import DecodeError, Digest, canonical_json, digest, shaped
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.registry.passwords import SignerError
from skillhouse_signer.keys import KeyInfo, KeyKind, Terms

MESSAGE_MAX = 65_536
"""Bytes of a message: a person is to read it."""
LIFE_MS = 600_000
"""How long a request may wait for its answer (10 minutes)."""
TYPES = ("message", "transaction")

_ID = regex(r"[0-9a-f]{32}")


class SignRequest(Struct, frozen=True, kw_only=True):
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


class Signature(Struct, frozen=True, kw_only=True):
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
    """Refuse ("binding") a request that is malformed or differs from the approved content."""
    if request.type not in TYPES or not _ID.fullmatch(request.id):
        raise SignerError("binding", "expected a message or a transaction with its id")
    if request.binding != request.approved:
        raise SignerError(
            "binding",
            "the content to sign is not the approved content; nothing was signed, ask again",
        )


def message_text(payload: bytes) -> str:
    """Return a message that can be shown as it is: text of bounded length, nothing hidden.

    What a person cannot read could be a transaction of some other network ("unreadable-message").
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


DEPTH_MAX = 16
"""Lists and maps in each other; ours have five."""

_BRACKET = regex(rb"[\[\]{}]")


def load_shallow(data: bytes) -> Any:
    """Return the value of a JSON text; ValueError when it is none, or deeper than `DEPTH_MAX`.

    The parser counts its depth against Python's recursion limit, which a library under eth-account
    (py_ecc) lifts so far that the stack ends first. Brackets in texts are counted too, which only
    makes the bound stricter.
    """
    depth = 0
    for bracket in _BRACKET.finditer(data):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX}")
    return json.loads(data)


FRAME_MAX = 1_048_576
"""Bytes of a frame: the greatest transaction, a keystore's open part, and room."""
LENGTH = struct.Struct(">I")

T = TypeVar("T")


class Ask(Struct, frozen=True, kw_only=True):
    """One request; the reply to the one before it has come."""

    number: int
    verb: str
    body: bytes


class SignerReply(Struct, frozen=True, kw_only=True):
    """The answer to the request of the same number."""

    number: int
    code: str = ""
    """Empty when it was done; else that of the error."""
    message: str = ""
    body: bytes = b""


class Opening(Struct, frozen=True, kw_only=True):
    """Which keystore, and where its password comes from."""

    keystore: str
    state: str
    source: str
    """terminal, descriptor or keyring."""
    cost: int


class NewKey(Struct, frozen=True, kw_only=True):
    """A key to make, or to import from a descriptor or the terminal."""

    name: str
    kind: KeyKind
    terms: Terms
    session_seconds: int = 0
    is_import: bool = False


class Named(Struct, frozen=True, kw_only=True):
    """A key by name, with terms where they are to change."""

    name: str
    terms: Terms | None = None


class KeyList(Struct, frozen=True, kw_only=True):
    keys: tuple[KeyInfo, ...] = ()


BODIES = {
    "open": Opening,
    "new": NewKey,
    "remove": Named,
    "terms": Named,
    "rotate": Named,
    "accept": Named,
    "sign": SignRequest,
}
"""The shape of each verb's body."""


def framed(value: Ask | SignerReply) -> bytes:
    """Return the bytes of a frame; DecodeError beyond `FRAME_MAX`."""
    data = packed(value)
    return LENGTH.pack(checked_length(len(data))) + data


def checked_length(length: int) -> int:
    """Return a length that a frame may have; DecodeError when it is none."""
    if not 0 < length <= FRAME_MAX:
        raise DecodeError(f"expected a frame of 1 to {FRAME_MAX} bytes, got {length}")
    return length


def packed(value: object) -> bytes:
    """Return a value as JSON; bytes become base64."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def unpacked(data: bytes, shape: type[T]) -> T:
    """Return the value that `packed` made; DecodeError when it has another shape."""
    try:
        return shaped(load_shallow(data), shape)
    except ValueError as error:
        raise DecodeError("a frame that is no JSON") from error
