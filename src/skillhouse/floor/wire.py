"""The one place where bytes of our own formats become values, and values bytes."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from skillhouse.floor.errors import DecodeError

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return `value` as MessagePack; dataclasses become maps."""
    return msgspec.msgpack.encode(value)


def decode(data: bytes, shape: type[T]) -> T:
    """Return the MessagePack `data` as `shape`.

    Raises:
        DecodeError: the bytes are cut, or are not of that shape.
    """
    try:
        return msgspec.msgpack.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"unreadable record: {error}") from error


def shaped(value: object, shape: type[T]) -> T:
    """Return plain `value` (from TOML or JSON) as `shape`; keys that it has not are passed over.

    Raises:
        DecodeError: a value has another type; the message says where.
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
