"""Recursive Length Prefix, as strictly as Ethereum's nodes read it (Yellow Paper, appendix B)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from skillhouse.signer.signer_errors import SignerError

DEPTH_MAX = 4
"""Lists in lists: a transaction with its access list has three."""

Item: TypeAlias = "bytes | tuple[Item, ...]"

_SHORT = 55
"""Longest content whose length is in its first byte."""


def decode_rlp(data: bytes) -> Item:
    """Return the one item that `data` is: bytes, or a tuple of items.

    Raises:
        SignerError: cut, followed by more bytes, deeper than `DEPTH_MAX`, or written in a longer
            way than needed, so that two texts would mean the same.
    """
    item, end = _read(data, 0, len(data), 0)
    if end != len(data):
        raise unreadable(f"{len(data) - end} bytes follow its end")
    return item


def encode_rlp(item: bytes | Sequence[object]) -> bytes:
    """Return the encoding of bytes, or of a sequence of items.

    >>> encode_rlp([b"cat", b"", [b"\\x01"]]).hex()
    'c78363617480c101'
    """
    if isinstance(item, bytes):
        if len(item) == 1 and item[0] < 0x80:
            return item
        return _prefix(len(item), 0x80) + item
    content = b"".join(encode_rlp(part) for part in item)  # type: ignore[arg-type]
    return _prefix(len(content), 0xC0) + content


def integer(item: Item, name: str, *, bits: int = 256) -> int:
    """Return a canonical big-endian integer: no leading zero byte, zero is empty.

    Raises:
        SignerError: a list, a leading zero, or more than `bits`.
    """
    if not isinstance(item, bytes):
        raise unreadable(f"expected a number as its {name}, got a list")
    if item[:1] == b"\0":
        raise unreadable(f"its {name} has a leading zero")
    if len(item) * 8 > bits:
        raise unreadable(f"its {name} has more than {bits} bits")
    return int.from_bytes(item)


def minimal(number: int) -> bytes:
    """Return the canonical bytes of a number from 0.

    >>> minimal(0), minimal(256)
    (b'', b'\\x01\\x00')
    """
    return number.to_bytes((number.bit_length() + 7) // 8)


def _read(data: bytes, start: int, stop: int, depth: int) -> tuple[Item, int]:
    """Return the item at `start` and where it ends, which is not beyond `stop`."""
    if start >= stop:
        raise unreadable("it is cut")
    first = data[start]
    if first < 0x80:
        return data[start : start + 1], start + 1
    is_list = first >= 0xC0
    base = 0xC0 if is_list else 0x80
    begin, end = _bounds(data, start, stop, first - base)
    if is_list:
        if depth >= DEPTH_MAX:
            raise unreadable(f"lists are nested deeper than {DEPTH_MAX}")
        items = []
        while begin < end:
            item, begin = _read(data, begin, end, depth + 1)
            items.append(item)
        return tuple(items), end
    content = data[begin:end]
    if len(content) == 1 and content[0] < 0x80:
        raise unreadable("a single byte is written with a length")
    return content, end


def _bounds(data: bytes, start: int, stop: int, size: int) -> tuple[int, int]:
    """Return where the content of the item at `start` begins and ends."""
    begin = start + 1
    if size > _SHORT:
        width = size - _SHORT
        begin += width
        if begin > stop:
            raise unreadable("it is cut")
        if data[start + 1] == 0:
            raise unreadable("a length has a leading zero")
        size = int.from_bytes(data[start + 1 : begin])
        if size <= _SHORT:
            raise unreadable("a short length is written as a long one")
    if begin + size > stop:
        raise unreadable("it is cut")
    return begin, begin + size


def _prefix(size: int, base: int) -> bytes:
    if size <= _SHORT:
        return bytes([base + size])
    length = minimal(size)
    return bytes([base + _SHORT + len(length)]) + length


def unreadable(reason: str) -> SignerError:
    return SignerError("unreadable-transaction", f"the transaction cannot be read: {reason}")
