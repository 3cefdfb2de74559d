"""Decodes raw, unsigned EVM transactions, so that nothing is taken from a skill's claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skillhouse.signer.rlp import Item, decode_rlp, encode_rlp, integer, minimal, unreadable
from skillhouse.signer.signer_errors import SignerError

TRANSACTION_MAX = 131_072
"""Bytes of a transaction (go-ethereum, core/txpool/legacypool: txMaxSize, 128 KiB)."""
NONCE_BITS = 64
"""EIP-2681 keeps nonces below 2^64 - 1."""
CHAIN_BITS = 64
"""go-ethereum and wallets take no greater chain ids in practice; EIP-2294 proposes less."""

ADDRESS_BYTES = 20
LEGACY, ACCESS_LIST, DYNAMIC_FEE = 0, 1, 2
"""Types: EIP-155 legacy, EIP-2930, EIP-1559."""

_REFUSED = {
    3: "a blob transaction (EIP-4844), whose blobs cannot be shown to a person",
    4: "a delegation (EIP-7702), which would give the whole account away",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
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

    Raises:
        SignerError: "unreadable-transaction": not canonical, signed already, valid on any chain,
            or of a type that is refused.
    """
    if len(raw) > TRANSACTION_MAX:
        raise unreadable(f"expected at most {TRANSACTION_MAX} bytes, got {len(raw)}")
    if not raw:
        raise unreadable("it is empty")
    if raw[0] >= 0xC0:
        transaction = _legacy(_fields(raw))
    elif raw[0] == ACCESS_LIST:
        transaction = _access_list(_fields(raw[1:]))
    elif raw[0] == DYNAMIC_FEE:
        transaction = _dynamic_fee(_fields(raw[1:]))
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


def _legacy(fields: tuple[Item, ...]) -> Transaction:
    if len(fields) == 6:
        raise unreadable("it names no chain and would be valid on any (EIP-155)")
    _expect(fields, 9)
    nonce, price, gas, to, value, data, chain, *rest = fields
    if rest != [b"", b""]:
        raise unreadable("it is signed already; give the unsigned transaction")
    return Transaction(
        type=LEGACY,
        chain_id=_chain(chain),
        nonce=integer(nonce, "nonce", bits=NONCE_BITS),
        to=_address(to),
        value=integer(value, "value"),
        data=_bytes(data, "data"),
        gas_limit=integer(gas, "gas limit", bits=64),
        gas_price=integer(price, "gas price"),
    )


def _access_list(fields: tuple[Item, ...]) -> Transaction:
    _expect(fields, 8)
    chain, nonce, price, gas, to, value, data, entries = fields
    return Transaction(
        type=ACCESS_LIST,
        chain_id=_chain(chain),
        nonce=integer(nonce, "nonce", bits=NONCE_BITS),
        to=_address(to),
        value=integer(value, "value"),
        data=_bytes(data, "data"),
        gas_limit=integer(gas, "gas limit", bits=64),
        gas_price=integer(price, "gas price"),
        access_list=_checked_entries(entries),
    )


def _dynamic_fee(fields: tuple[Item, ...]) -> Transaction:
    _expect(fields, 9)
    chain, nonce, tip, price, gas, to, value, data, entries = fields
    transaction = Transaction(
        type=DYNAMIC_FEE,
        chain_id=_chain(chain),
        nonce=integer(nonce, "nonce", bits=NONCE_BITS),
        to=_address(to),
        value=integer(value, "value"),
        data=_bytes(data, "data"),
        gas_limit=integer(gas, "gas limit", bits=64),
        gas_price=integer(price, "fee per gas"),
        priority_fee=integer(tip, "priority fee"),
        access_list=_checked_entries(entries),
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


_NUMBER = re.compile(r"0|[1-9][0-9]{0,77}|0x[0-9a-fA-F]{1,64}")
_HEX = re.compile(r"(0x)?([0-9a-fA-F]{2})*")


def build_transaction(fields: Mapping[str, Any]) -> bytes:
    """Return the raw unsigned transaction of these fields.

    Args:
        fields: chain_id, nonce, to, value, data, gas_limit, and gas_price or max_fee_per_gas with
            max_priority_fee_per_gas; numbers as integers or texts, in the smallest unit.

    Raises:
        SignerError: "unreadable-transaction": a field is missing or no such value.
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
    """Return the bytes of hex digits, with or without 0x.

    Raises:
        SignerError: "unreadable-transaction": there is something else in it.

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
