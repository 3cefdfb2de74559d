"""Tests of signer/transaction.py, compared with eth-account."""

from __future__ import annotations

from typing import Any

import pytest
import rlp  # type: ignore[import-untyped]
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor.structs import replace
from skillhouse_signer import SignerError, Transaction, build_transaction, decode_transaction
from skillhouse_signer.crypto import sign_transaction
from skillhouse_signer.transaction import (
    DEPTH_MAX,
    TRANSACTION_MAX,
    decode_rlp,
    encode_rlp,
    integer,
    minimal,
)
from tests.signer.places import ALICE, GWEI, payment

# What it is compared with takes half a second of CPU to read.
pytestmark = pytest.mark.slow

SECRET = bytes.fromhex("11" * 32)
ENTRIES = ((bytes.fromhex("cc" * 20), (bytes(32), bytes.fromhex("05" * 32))),)
ADDRESSES = st.none() | st.binary(min_size=20, max_size=20)

TRANSACTIONS = st.builds(
    Transaction,
    type=st.just(2),
    chain_id=st.integers(1, 2**64 - 1),
    nonce=st.integers(0, 2**64 - 2),
    to=ADDRESSES,
    value=st.integers(0, 2**256 - 1),
    data=st.binary(max_size=100),
    gas_limit=st.integers(0, 2**64 - 1),
    gas_price=st.integers(2**64, 2**256 - 1),
    priority_fee=st.integers(0, 2**64),
    access_list=st.sampled_from([(), ENTRIES]),
)


def as_type(transaction: Transaction, kind: int) -> Transaction:
    if kind == 2:
        return transaction
    entries = transaction.access_list if kind else ()
    return replace(transaction, type=kind, priority_fee=None, access_list=entries)


@given(transaction=TRANSACTIONS, kind=st.sampled_from([0, 1, 2]))
def test_a_transaction_comes_back_from_its_bytes(transaction: Transaction, kind: int) -> None:
    wanted = as_type(transaction, kind)
    assert decode_transaction(wanted.unsigned()) == wanted


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("entries", [(), ENTRIES])
def test_the_signed_bytes_are_those_of_eth_account(kind: int, entries: Any) -> None:
    mine = as_type(payment(7, data=b"\x01\x02", nonce=9, access_list=entries), kind)
    fields: dict[str, Any] = {
        "chainId": 1,
        "nonce": 9,
        "to": bytes.fromhex(ALICE[2:]),
        "value": 7,
        "data": b"\x01\x02",
        "gas": 21_000,
    }
    if kind == 2:
        fields |= {"type": 2, "maxFeePerGas": GWEI, "maxPriorityFeePerGas": 1}
    else:
        fields |= {"gasPrice": GWEI}
    if kind == 1:
        fields |= {"type": 1}
    if kind:
        fields["accessList"] = [
            {"address": "0x" + address.hex(), "storageKeys": ["0x" + key.hex() for key in keys]}
            for address, keys in entries
        ]
    theirs = Account.sign_transaction(fields, SECRET)
    signature, raw, hashed = sign_transaction(SECRET, decode_transaction(mine.unsigned()))
    assert raw == theirs.raw_transaction
    assert hashed == theirs.hash
    assert len(signature) == 65
    assert Account.recover_transaction(raw) == Account.from_key(SECRET).address


LEGACY = [b"\1", b"\2", b"\3", b"\xaa" * 20, b"\5", b"", b"\1", b"", b""]
DYNAMIC = [b"\1", b"", b"", b"\2", b"\3", b"\xaa" * 20, b"\5", b"", []]


def changed(fields: list[Any], place: int, value: Any) -> list[Any]:
    return [*fields[:place], value, *fields[place + 1 :]]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "it is empty"),
        (rlp.encode(LEGACY[:6]), "names no chain"),
        (rlp.encode(changed(LEGACY, 6, b"")), "chain id is 0"),
        (rlp.encode(changed(LEGACY, 8, b"\1")), "signed already"),
        (rlp.encode(LEGACY[:8]), "expected 9 fields, got 8"),
        (rlp.encode(changed(LEGACY, 0, b"\0")), "nonce has a leading zero"),
        (rlp.encode(changed(LEGACY, 4, b"\0\5")), "value has a leading zero"),
        (rlp.encode(changed(LEGACY, 4, b"\1" * 33)), "value has more than 256 bits"),
        (rlp.encode(changed(LEGACY, 3, b"\xaa" * 19)), "20 bytes as its recipient"),
        (rlp.encode(changed(LEGACY, 5, [])), "expected bytes as its data"),
        (rlp.encode(LEGACY) + b"\0", "1 bytes follow"),
        (b"\x02" + rlp.encode(DYNAMIC) + b"\0", "1 bytes follow"),
        (b"\x02" + rlp.encode([*DYNAMIC, b"\1", b"\1", b"\1"]), "signed already"),
        (b"\x02" + rlp.encode(changed(DYNAMIC, 2, b"\3")), "priority fee"),
        (b"\x02" + rlp.encode(changed(DYNAMIC, 8, b"")), "a list as its access list"),
        (b"\x02" + rlp.encode(changed(DYNAMIC, 8, [[b"\xaa" * 20]])), "no pair"),
        (b"\x02" + rlp.encode(changed(DYNAMIC, 8, [[b"", []]])), "no address"),
        (b"\x02" + rlp.encode(changed(DYNAMIC, 8, [[b"\xaa" * 20, [b"\1"]]])), "32 bytes"),
        (b"\x03" + rlp.encode(DYNAMIC), "EIP-4844"),
        (b"\x04" + rlp.encode(DYNAMIC), "EIP-7702"),
        (b"\x7f" + rlp.encode(DYNAMIC), "of type 127"),
        (b"\x02" + b"\x80", "a list of fields"),
        (bytes(TRANSACTION_MAX + 1), "at most 131072 bytes"),
    ],
)
def test_what_is_not_one_plain_unsigned_transaction_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(SignerError, match=reason) as caught:
        decode_transaction(raw)
    assert caught.value.code == "unreadable-transaction"


FIELDS = {"chain_id": 1, "nonce": 0, "to": ALICE, "value": "7", "gas_limit": 21_000}


def test_fields_make_the_transaction_that_they_name() -> None:
    dynamic = build_transaction(FIELDS | {"max_fee_per_gas": GWEI, "max_priority_fee_per_gas": 1})
    assert decode_transaction(dynamic) == payment(7)
    legacy = build_transaction(FIELDS | {"gas_price": hex(GWEI), "data": "0x01"})
    assert decode_transaction(legacy) == as_type(payment(7, data=b"\1"), 0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "either `gas_price` or `max_fee_per_gas`"),
        ({"gas_price": 1, "max_fee_per_gas": 1}, "either"),
        ({"gas_price": 1, "to": "0xab"}, "40 hex digits"),
        ({"gas_price": 1, "to": "mika.eth"}, "hex digits as `to`"),
        ({"gas_price": 1, "value": "1e18"}, "number of 256 bits as `value`"),
        ({"gas_price": 1, "value": True}, "number of 256 bits as `value`"),
        ({"gas_price": 1, "value": -1}, "number of 256 bits as `value`"),
        ({"gas_price": 1, "chain_id": 0}, "chain id is 0"),
        ({"gas_price": 1, "nonce": 2**64}, "more than 64 bits"),
    ],
)
def test_wrong_fields_make_none(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(SignerError, match=reason):
        build_transaction(FIELDS | fields)


ITEMS = st.recursive(
    st.binary(max_size=80), lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8
)


def depth(item: Any) -> int:
    return 0 if isinstance(item, bytes) else 1 + max(map(depth, item), default=0)


@given(item=ITEMS.filter(lambda item: depth(item) <= DEPTH_MAX))
def test_what_was_encoded_is_decoded_and_pyrlp_agrees(item: Any) -> None:
    data = encode_rlp(item)
    assert decode_rlp(data) == item
    assert rlp.encode(item) == data


@given(data=st.binary(max_size=64))
def test_any_bytes_are_refused_or_have_one_meaning_and_one_form(data: bytes) -> None:
    try:
        item = decode_rlp(data)
    except SignerError:
        return
    assert encode_rlp(item) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "cut"),
        ("82ff", "cut"),
        ("b8", "cut"),
        ("c2c0", "cut"),
        ("0101", "1 bytes follow"),
        ("8101", "a single byte is written with a length"),
        ("b80101", "a short length is written as a long one"),
        ("b90001" + "00", "a length has a leading zero"),
        ("c3820102" + "03", "1 bytes follow"),
        ("bfffffffffffffffff", "cut"),
        ("c5c4c3c2c1c0", "nested deeper than 4"),
        ("f8" * 60, "cut"),
    ],
)
def test_another_form_is_refused(data: str, reason: str) -> None:
    with pytest.raises(SignerError, match=reason):
        decode_rlp(bytes.fromhex(data))


def test_an_inner_item_does_not_reach_beyond_its_list() -> None:
    with pytest.raises(SignerError, match="cut"):
        decode_rlp(bytes.fromhex("c4c28201" + "02"))


@pytest.mark.parametrize(
    ("item", "reason"),
    [(b"\0", "leading zero"), (b"\0\1", "leading zero"), ((), "list"), (b"\1" * 9, "64 bits")],
)
def test_a_number_has_one_form(item: Any, reason: str) -> None:
    with pytest.raises(SignerError, match=reason):
        integer(item, "nonce", bits=64)


@given(number=st.integers(0, 2**256 - 1))
def test_a_number_comes_back(number: int) -> None:
    assert integer(minimal(number), "value") == number
