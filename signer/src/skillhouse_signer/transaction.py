"""Decodes raw, unsigned EVM transactions, so that nothing is taken from a skill's claims.

Recursive Length Prefix is read as strictly as Ethereum's nodes do (Yellow Paper, appendix B).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.registry.passwords import SignerError

DEPTH_MAX = 4
"""Lists in lists: a transaction with its access list has three."""

Item: TypeAlias = "bytes | tuple[Item, ...]"

_SHORT = 55
"""Longest content whose length is in its first byte."""


def decode_rlp(data: bytes) -> Item:
    """Return the one item that `data` is: bytes, or a tuple of items.

    Refused: cut, followed by more bytes, deeper than `DEPTH_MAX`, or written in a longer way than
    needed, so that two texts would mean the same.
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
    """Return a canonical big-endian integer: no leading zero byte, zero is empty."""
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


TRANSACTION_MAX = 131_072
"""Bytes of a transaction (go-ethereum, core/txpool/legacypool: txMaxSize, 128 KiB)."""
NONCE_BITS = 64
"""EIP-2681 keeps nonces below 2^64 - 1."""
CHAIN_BITS = 64
"""go-ethereum and wallets take no greater chain ids in practice; EIP-2294 proposes less."""

ADDRESS_BYTES = 20
LEGACY, ACCESS_LIST, DYNAMIC_FEE = 0, 1, 2
"""Types: EIP-155 legacy, EIP-2930, EIP-1559."""
_FIELDS = {
    LEGACY: "nonce price gas to value data chain r s".split(),
    ACCESS_LIST: "chain nonce price gas to value data entries".split(),
    DYNAMIC_FEE: "chain nonce tip price gas to value data entries".split(),
}
"""The fields of each type, in their order."""

_REFUSED = {
    3: "a blob transaction (EIP-4844), whose blobs cannot be shown to a person",
    4: "a delegation (EIP-7702), which would give the whole account away",
}


class Transaction(Struct, frozen=True, kw_only=True):
    """One unsigned transaction; amounts are in the chain's smallest unit."""

    type: int
    chain_id: int
    nonce: int
    to: bytes | None
    """20 bytes; None makes a contract."""
    value: int
    data: bytes
    gas_limit: int
    gas_price: int
    """Most that one unit of gas may cost: gasPrice, or maxFeePerGas of EIP-1559."""
    priority_fee: int | None = None
    """maxPriorityFeePerGas of EIP-1559."""
    access_list: Item = ()

    @property
    def fee_bound(self) -> int:
        """The most that the fee can be; rollups may add a charge that no transaction bounds."""
        return self.gas_limit * self.gas_price

    @property
    def access_entries(self) -> tuple[tuple[bytes, int], ...]:
        """The addresses of the access list, each with its number of storage keys (EIP-2930)."""
        return tuple(
            (address, len(keys))
            for entry in self.access_list
            if isinstance(entry, list | tuple)
            for address, keys in [entry]
            if isinstance(address, bytes)
        )

    def unsigned(self) -> bytes:
        """Return the bytes whose Keccak-256 is signed."""
        if self.type == LEGACY:
            return encode_rlp([*self._fields(), minimal(self.chain_id), b"", b""])
        return bytes([self.type]) + encode_rlp(self._fields())

    def signed(self, parity: int, r: int, s: int) -> bytes:
        """Return the raw transaction for the network, with the signature (EIP-155, EIP-2718)."""
        if self.type == LEGACY:
            v = self.chain_id * 2 + 35 + parity
            return encode_rlp([*self._fields(), minimal(v), minimal(r), minimal(s)])
        fields = [*self._fields(), minimal(parity), minimal(r), minimal(s)]
        return bytes([self.type]) + encode_rlp(fields)

    def _fields(self) -> list[Item]:
        fees = [self.gas_price]
        if self.priority_fee is not None:
            fees.insert(0, self.priority_fee)
        fields: list[Item] = [minimal(self.nonce), *map(minimal, fees), minimal(self.gas_limit)]
        fields += [self.to or b"", minimal(self.value), self.data]
        if self.type == LEGACY:
            return fields
        return [minimal(self.chain_id), *fields, self.access_list]


def decode_transaction(raw: bytes) -> Transaction:
    """Return what the bytes of an unsigned transaction say.

    "unreadable-transaction": not canonical, signed already, valid on any chain, or of a type that
    is refused.
    """
    if len(raw) > TRANSACTION_MAX:
        raise unreadable(f"expected at most {TRANSACTION_MAX} bytes, got {len(raw)}")
    if not raw:
        raise unreadable("it is empty")
    if raw[0] >= 0xC0:
        transaction = _transaction(LEGACY, _fields(raw))
    elif raw[0] in (ACCESS_LIST, DYNAMIC_FEE):
        transaction = _transaction(raw[0], _fields(raw[1:]))
    else:
        what = _REFUSED.get(raw[0], f"of type {raw[0]}")
        raise unreadable(f"it is {what}; types 0 (EIP-155), 1 and 2 are signed here")
    # INVARIANT: what was decoded means exactly the bytes that will be signed.
    if transaction.unsigned() != raw:
        raise unreadable("its encoding is not canonical")
    return transaction


def _fields(body: bytes) -> tuple[Item, ...]:
    fields = decode_rlp(body)
    if isinstance(fields, bytes):
        raise unreadable("expected a list of fields")
    return fields


def _transaction(type_: int, fields: tuple[Item, ...]) -> Transaction:
    is_legacy, is_dynamic = type_ == LEGACY, type_ == DYNAMIC_FEE
    if is_legacy and len(fields) == 6:
        raise unreadable("it names no chain and would be valid on any (EIP-155)")
    names = _FIELDS[type_]
    _expect(fields, len(names))
    of = dict(zip(names, fields, strict=True))
    if is_legacy and (of["r"], of["s"]) != (b"", b""):
        raise unreadable("it is signed already; give the unsigned transaction")
    transaction = Transaction(
        type=type_,
        chain_id=_chain(of["chain"]),
        nonce=integer(of["nonce"], "nonce", bits=NONCE_BITS),
        to=_address(of["to"]),
        value=integer(of["value"], "value"),
        data=_bytes(of["data"], "data"),
        gas_limit=integer(of["gas"], "gas limit", bits=64),
        gas_price=integer(of["price"], "fee per gas" if is_dynamic else "gas price"),
        priority_fee=integer(of["tip"], "priority fee") if is_dynamic else None,
        access_list=() if is_legacy else _checked_entries(of["entries"]),
    )
    if (transaction.priority_fee or 0) > transaction.gas_price:
        raise unreadable("its priority fee is greater than its whole fee (EIP-1559)")
    return transaction


def _expect(fields: tuple[Item, ...], count: int) -> None:
    if len(fields) == count + 3:
        raise unreadable("it is signed already; give the unsigned transaction")
    if len(fields) != count:
        raise unreadable(f"expected {count} fields, got {len(fields)}")


def _chain(item: Item) -> int:
    chain = integer(item, "chain id", bits=CHAIN_BITS)
    if chain == 0:
        raise unreadable("its chain id is 0, which would be valid on any chain")
    return chain


def _address(item: Item) -> bytes | None:
    if item == b"":
        return None
    if not isinstance(item, bytes) or len(item) != ADDRESS_BYTES:
        raise unreadable(f"expected {ADDRESS_BYTES} bytes as its recipient")
    return item


def _bytes(item: Item, name: str) -> bytes:
    if not isinstance(item, bytes):
        raise unreadable(f"expected bytes as its {name}, got a list")
    return item


def _checked_entries(item: Item) -> Item:
    """Return an access list: pairs of an address and storage keys of 32 bytes (EIP-2930)."""
    if isinstance(item, bytes):
        raise unreadable("expected a list as its access list")
    for entry in item:
        if isinstance(entry, bytes) or len(entry) != 2:
            raise unreadable("an entry of its access list is no pair")
        address, keys = entry
        if _address(address) is None or isinstance(keys, bytes):
            raise unreadable("an entry of its access list has no address or no keys")
        if any(not isinstance(key, bytes) or len(key) != 32 for key in keys):
            raise unreadable("a storage key of its access list is not 32 bytes long")
    return item


_NUMBER = regex(r"0|[1-9][0-9]{0,77}|0x[0-9a-fA-F]{1,64}")
_HEX = regex(r"(0x)?([0-9a-fA-F]{2})*")


def build_transaction(fields: Mapping[str, Any]) -> bytes:
    """Return the raw unsigned transaction of these fields, or refuse it ("unreadable-transaction").

    Args:
        fields: chain_id, nonce, to, value, data, gas_limit, and gas_price or max_fee_per_gas with
            max_priority_fee_per_gas; numbers as integers or texts, in the smallest unit.
    """
    legacy = "gas_price" in fields
    if legacy == ("max_fee_per_gas" in fields):
        raise _wrong("expected either `gas_price` or `max_fee_per_gas`")
    to = _hex_bytes(fields, "to")
    if to and len(to) != 20:
        raise _wrong("expected 0x and 40 hex digits as `to`")
    transaction = Transaction(
        type=LEGACY if legacy else DYNAMIC_FEE,
        chain_id=_number(fields, "chain_id"),
        nonce=_number(fields, "nonce"),
        to=to or None,
        value=_number(fields, "value", default=0),
        data=_hex_bytes(fields, "data"),
        gas_limit=_number(fields, "gas_limit"),
        gas_price=_number(fields, "gas_price" if legacy else "max_fee_per_gas"),
        priority_fee=None if legacy else _number(fields, "max_priority_fee_per_gas", default=0),
    )
    raw = transaction.unsigned()
    decode_transaction(raw)
    return raw


def raw_bytes(text: str) -> bytes:
    """Return the bytes of hex digits, with or without 0x; "unreadable-transaction" for other text.

    >>> raw_bytes("0x01ff")
    b'\\x01\\xff'
    """
    digits = text.strip()
    if not _HEX.fullmatch(digits):
        raise _wrong("expected the unsigned transaction as hex digits")
    return bytes.fromhex(digits.removeprefix("0x"))


def _number(fields: Mapping[str, Any], name: str, *, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value, 16 if value.startswith("0x") else 10)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 256:
        raise _wrong(f"expected a number of 256 bits as `{name}`")
    return value


def _hex_bytes(fields: Mapping[str, Any], name: str) -> bytes:
    value = fields.get(name, "")
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _wrong(f"expected hex digits as `{name}`")
    return bytes.fromhex(value.removeprefix("0x"))


def _wrong(reason: str) -> SignerError:
    return SignerError("unreadable-transaction", f"the transaction cannot be built: {reason}")
