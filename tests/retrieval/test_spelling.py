"""Tests of retrieval/spelling.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.retrieval.spelling import Spellings, distance, is_correctable, write_spellings

WORDS = st.text("abcd", min_size=1, max_size=8)


def slow_distance(one: str, other: str) -> int:
    """Return the optimal string alignment distance by its definition."""
    if not one or not other:
        return len(one) + len(other)
    ways = [
        slow_distance(one[:-1], other) + 1,
        slow_distance(one, other[:-1]) + 1,
        slow_distance(one[:-1], other[:-1]) + (one[-1] != other[-1]),
    ]
    if len(one) > 1 and len(other) > 1 and (one[-1], one[-2]) == (other[-2], other[-1]):
        ways.append(slow_distance(one[:-2], other[:-2]) + 1)
    return min(ways)


@given(st.text("abc", max_size=5), st.text("abc", max_size=5), st.integers(0, 3))
def test_a_distance_is_exact_up_to_the_most_that_is_asked_for(one, other, most):
    exact = slow_distance(one, other)
    assert min(distance(one, other, most), most + 1) == min(exact, most + 1)


@given(st.lists(WORDS, unique=True, max_size=20), WORDS)
def test_all_words_of_one_edit_are_alike_and_no_others_beside_them(words, wanted):
    table = Spellings(write_spellings({word: at for at, word in enumerate(words)}))
    near = {word for word in words if distance(wanted, word, 1) <= 1}
    alike = table.alike(wanted)
    assert all(words[number] == word for word, number in alike)
    if near:
        assert {word for word, _ in alike} == near
    assert len(set(alike)) == len(alike)


def test_words_of_two_edits_are_alike_and_much_longer_ones_are_not():
    words = {"forecast": 0, "forecastingtool": 1, "podcast": 2}
    assert ("forecast", 0) in Spellings(write_spellings(words)).alike("frecats")
    assert ("forecastingtool", 1) not in Spellings(write_spellings(words)).alike("frecats")


@given(st.dictionaries(WORDS, st.integers(0, 2**32 - 1), max_size=20))
def test_a_table_gives_its_words_back(words):
    assert dict(Spellings(write_spellings(words)).words()) == words


def test_an_empty_table_has_nothing_alike():
    assert Spellings(write_spellings({})).alike("word") == []
    assert Spellings(b"").alike("word") == []


@pytest.mark.parametrize("word", ["pdf", "s3bucket", "数据", "café", "x" * 25, ""])
def test_these_are_not_corrected(word):
    assert not is_correctable(word)
