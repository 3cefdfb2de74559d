"""The frames between a client and its signer: a length, then JSON of one fixed shape.

JSON and not MessagePack, as amounts have up to 256 bits.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from skillhouse.floor import DecodeError, shaped
from skillhouse.signer.bounded_json import load_shallow
from skillhouse.signer.keys import KeyInfo, KeyKind, Terms
from skillhouse.signer.request import SignRequest

FRAME_MAX = 1_048_576
"""Bytes of a frame: the greatest transaction, a keystore's open part, and room."""
LENGTH = struct.Struct(">I")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request; the reply to the one before it has come."""

    number: int
    verb: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerReply:
    """The answer to the request of the same number."""

    number: int
    code: str = ""
    """Empty when it was done; else that of the error."""
    message: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Which keystore, and where its password comes from."""

    keystore: str
    state: str
    source: str
    """terminal, descriptor or keyring."""
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key to make, or to import from a descriptor or the terminal."""

    name: str
    kind: KeyKind
    terms: Terms
    session_seconds: int = 0
    is_import: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A key by name, with terms where they are to change."""

    name: str
    terms: Terms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList:
    """The keys that an answer is about."""

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
    """Return the bytes of a frame.

    Raises:
        DecodeError: it would be longer than `FRAME_MAX`.
    """
    data = packed(value)
    return LENGTH.pack(checked_length(len(data))) + data


def checked_length(length: int) -> int:
    """Return a length that a frame may have.

    Raises:
        DecodeError: it is none.
    """
    if not 0 < length <= FRAME_MAX:
        raise DecodeError(f"expected a frame of 1 to {FRAME_MAX} bytes, got {length}")
    return length


def packed(value: object) -> bytes:
    """Return a value as JSON; bytes become base64."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def unpacked(data: bytes, shape: type[T]) -> T:
    """Return the value that `packed` made.

    Raises:
        DecodeError: it is none of that shape.
    """
    try:
        return shaped(load_shallow(data), shape)
    except ValueError as error:
        raise DecodeError("a frame that is no JSON") from error
