"""Tests of signer/rlp.py."""

from __future__ import annotations

from typing import Any

import pytest
import rlp  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.signer import SignerError
from skillhouse.signer.rlp import DEPTH_MAX, decode_rlp, encode_rlp, integer, minimal

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
