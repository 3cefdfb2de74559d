"""Tests of floor/names.py: laws and vectors of wire names, and the nearest known name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import WireNameError, WireNames, nearest, wire_name
from tests.vectorfile import vectors

texts = st.one_of(
    st.text(max_size=70),
    st.text(alphabet="ab_-:é", max_size=40),
    st.sampled_from(["a", "a_", "_a", "a__b", "a" * 31, "a" * 32, "a" * 20, ""]),
)


@given(skill=texts, tool=texts)
def test_a_wire_name_is_one_that_every_provider_accepts(skill: str, tool: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire_name(skill, tool))


@pytest.mark.slow
@given(pairs=st.lists(st.tuples(texts, texts), max_size=8))
def test_the_table_leads_back_to_the_pair_that_got_the_name(pairs: list[tuple[str, str]]) -> None:
    names = WireNames()
    given_out = {}
    refused = []
    for pair in pairs:
        try:
            given_out[names.add(*pair)] = pair
        except WireNameError as error:
            refused.append((error.pair, error.taken_by, pair, given_out[error.wire]))
    assert [row[:2] for row in refused] == [row[2:] for row in refused]
    assert {wire: names.pair(wire) for wire in given_out} == given_out


def test_a_name_that_another_pair_has_is_refused() -> None:
    names = WireNames()
    assert names.add("a_", "b") == "a___b"
    assert names.add("a_", "b") == "a___b"
    with pytest.raises(WireNameError) as caught:
        names.add("a", "_b")
    assert caught.value.wire == "a___b"
    assert str(caught.value) == "wire name `a___b` of `a:_b` is taken by `a_:b`"
    assert names.pair("a___b") == ("a_", "b")
    assert names.pair("b__c") is None


def test_a_plain_name_made_to_look_shortened_is_refused() -> None:
    long = ("skill" * 20, "tool" * 20)
    names = WireNames()
    skill, _, tool = names.add(*long).partition("__")
    with pytest.raises(WireNameError) as caught:
        names.add(skill, tool)
    assert caught.value.taken_by == long


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("serach", ["list", "search", "show"], ("search",)),
        ("PDF", ["pdf", "xlsx"], ("pdf",)),
        ("weather", ["Weather", "feather", "leather"], ("Weather", "leather", "feather")),
        ("zzz", ["pdf", "xlsx"], ()),
        ("pdf", [], ()),
        ("", ["pdf"], ()),
    ],
)
def test_the_nearest_names_come_best_first(
    word: str, known: list[str], found: tuple[str, ...]
) -> None:
    assert nearest(word, known) == found
    assert nearest(word, reversed(known)) == found


def test_no_more_near_names_than_asked_for() -> None:
    assert nearest("skill", [f"skill{number}" for number in range(9)], limit=2) == (
        "skill8",
        "skill7",
    )


@pytest.mark.parametrize(("given", "expect"), vectors("wire_names"))
def test_a_pair_gets_the_name_its_vector_says(
    given: dict[str, str], expect: dict[str, Any]
) -> None:
    assert wire_name(given["skill"], given["tool"]) == expect["wire"]
    names = WireNames()
    assert names.add(given["skill"], given["tool"]) == expect["wire"]
    assert names.pair(expect["wire"]) == (given["skill"], given["tool"])


def test_a_name_that_is_taken_is_refused_and_stays_with_the_first() -> None:
    names = WireNames()
    names.add("a_", "b")
    assert names.add("a_", "b") == "a___b"
    with pytest.raises(WireNameError, match="is taken by `a_:b`"):
        names.add("a", "_b")
    assert names.pair("a___b") == ("a_", "b")
    assert names.pair("never") is None
