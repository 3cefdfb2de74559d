"""Digests of bytes, and our own formats."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NewType, TypeVar

import msgspec

from skillhouse.floor.errors import DecodeError

if TYPE_CHECKING:
    from _hashlib import HASH

Digest = NewType("Digest", str)


def sha256(data: bytes = b"") -> HASH:
    """Return a hasher of FIPS 180-4 that has taken `data`.

    OpenSSL is loaded with the first: a list of skills needs none.
    """
    import hashlib  # noqa: PLC0415 - see above.

    return hashlib.sha256(data)


def digest(data: bytes) -> Digest:
    """Return the SHA-256 of `data` as `sha256:` and 64 lowercase hex digits (SEP-2640).

    >>> digest(b"")[:15]
    'sha256:e3b0c442'
    """
    return Digest("sha256:" + sha256(data).hexdigest())


def file_digest(path: str | os.PathLike[str]) -> Digest:
    """Return the digest of a file's bytes, which are read in pieces; OSError as of `open`."""
    import hashlib  # noqa: PLC0415 - as above.

    with open(path, "rb") as file:
        return Digest("sha256:" + hashlib.file_digest(file, "sha256").hexdigest())


T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return `value` as MessagePack; dataclasses become maps."""
    return msgspec.msgpack.encode(value)


def decode(data: bytes, shape: type[T]) -> T:
    """Return the MessagePack `data` as `shape`; `DecodeError` if it is cut or of another shape."""
    try:
        return msgspec.msgpack.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"unreadable record: {error}") from error


def shaped(value: object, shape: type[T]) -> T:
    """Return plain `value` (from TOML or JSON) as `shape`; keys that it has not are passed over.

    A `DecodeError` says where a value has another type.
    """
    try:
        return msgspec.convert(value, type=shape)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)[:1].lower() + str(error)[1:]) from error


def canonical_json(value: Any) -> bytes:
    """Return `value` (texts, integers, lists, maps with text keys) as RFC 8785 JSON.

    Numbers that are not integers are refused, so that no rounding rule is needed.

    >>> canonical_json({"b": 1, "a": "é"}).decode()
    '{"a":"é","b":1}'
    """
    _refuse_floats(value)
    # RFC 8785 section 3.2.3 sorts keys by UTF-16 code units; ours are ASCII by construction.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode("utf-8")


def _refuse_floats(value: Any) -> None:
    if type(value) in (str, int):  # Most of all; first for speed.
        return
    if isinstance(value, float):
        raise TypeError("canonical JSON takes no floating point numbers")
    if isinstance(value, dict):
        for key, item in value.items():
            if not key.isascii():
                raise TypeError(f"canonical JSON takes ASCII keys only, got {key!r}")
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)
