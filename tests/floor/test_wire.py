"""Tests of floor/wire.py: our own bytes and what may be hashed as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import DecodeError, canonical_json, decode, encode, shaped

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="abAB_"), inner),
    max_leaves=12,
)


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    names: tuple[str, ...] = ()


def test_a_value_comes_back_as_it_went() -> None:
    assert decode(encode(Point(3, ("a", "é"))), Point) == Point(3, ("a", "é"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        encode(Point(3))[:-1],
        encode({"x": "three"}),
        encode(["x", 3]),
        encode({"x": 1}) + b"\x00",
        b"\x82\xa1x\x01\xa5names\x91\xa1\xff",
        b"\x91" * 100_000,
    ],
    ids=["empty", "unused", "cut", "type", "shape", "trailing", "not UTF-8", "nested"],
)
def test_bytes_of_another_shape_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="unreadable record"):
        decode(data, Point)


def test_bytes_that_are_nested_too_deep_are_refused_for_any_shape() -> None:
    with pytest.raises(DecodeError):
        decode(b"\x91" * 100_000, Any)


def test_plain_values_take_a_shape_or_are_refused_with_the_place() -> None:
    assert shaped({"x": 3, "names": ["a"], "other": None}, Point) == Point(3, ("a",))
    with pytest.raises(DecodeError) as caught:
        shaped({"x": 3, "names": ["a", 1]}, Point)
    assert str(caught.value) == "expected `str`, got `int` - at `$.names[1]`"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1, True, None], "a": "x"}, '{"a":"x","b":[1,true,null]}'),
        ({"path": "é日😀"}, '{"path":"é日😀"}'),
        ("\x00\b\t\n\x0b\f\r\x1f\x7f", '"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\x7f"'),
        ('"\\/', '"\\"\\\\/"'),
        ("\u2028\u2029<>&", '"\u2028\u2029<>&"'),
        ({"B": 1, "a": 2, "_": 3, "1": 4}, '{"1":4,"B":1,"_":3,"a":2}'),
        ([-1, 0, 10], "[-1,0,10]"),
        ((), "[]"),
    ],
)
def test_canonical_json_is_that_of_rfc_8785(value: object, text: str) -> None:
    assert canonical_json(value) == text.encode()


@pytest.mark.parametrize("value", [1.0, [1.5], {"a": {"b": 0.0}}, {"é": 1}, [{"ü": 1}]])
def test_what_needs_a_rule_that_we_do_not_have_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="canonical JSON takes"):
        canonical_json(value)


@pytest.mark.slow
@given(value=values)
def test_canonical_json_is_json_of_the_same_value(value: object) -> None:
    assert json.loads(canonical_json(value)) == value


@given(value=st.dictionaries(st.text(alphabet="abcAB_"), st.integers(), max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)
