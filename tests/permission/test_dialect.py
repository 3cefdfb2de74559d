"""Tests of floor/rules.py: what designs mean by a pattern, where they differ."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.permission import (
    Dialect,
    Effect,
    Layer,
    Permission,
    Rule,
    decide,
    matches,
    matches_in,
)

PATTERNS = st.text("aA*?/ ", max_size=8)
TEXTS = st.text("aA/ b", max_size=8)


@pytest.mark.parametrize(
    ("dialect", "pattern", "text", "fits"),
    [
        (Dialect(), "Git *", "git status", False),
        (Dialect(case_sensitive=False), "Git *", "gIT status", True),
        (Dialect(case_sensitive=False), "STRASSE", "straße", True),
        (Dialect(slash_stops=True), "a/*", "a/b", True),
        (Dialect(slash_stops=True), "a/*", "a/b/c", False),
        (Dialect(slash_stops=True), "*", "a/b", False),
        (Dialect(slash_stops=True), "a?b", "a/b", False),
        (Dialect(slash_stops=True), "*/*", "/", True),
        (Dialect(), "git *", "git", False),
        (Dialect(optional_tail=True), "git *", "git", True),
        (Dialect(optional_tail=True), "git *", "gitk", False),
        (Dialect(optional_tail=True), "git*", "git", True),
        (Dialect(optional_tail=True), " *", "", True),
    ],
)
def test_each_flag_means_what_it_says(
    dialect: Dialect, pattern: str, text: str, fits: bool
) -> None:
    assert matches_in(dialect, pattern, text) is fits


@given(pattern=PATTERNS, text=TEXTS)
def test_without_flags_it_is_our_own_match(pattern: str, text: str) -> None:
    assert matches_in(Dialect(), pattern, text) == matches(pattern, text)


@given(pattern=PATTERNS, text=TEXTS)
def test_case_is_the_only_thing_that_case_changes(pattern: str, text: str) -> None:
    found = matches_in(Dialect(case_sensitive=False), pattern, text)
    assert found == fnmatch.fnmatchcase(text.lower(), pattern.lower())


@given(pattern=PATTERNS, text=TEXTS)
def test_a_star_that_stops_matches_no_more_than_one_that_does_not(pattern: str, text: str) -> None:
    if matches_in(Dialect(slash_stops=True), pattern, text):
        assert matches(pattern, text)


def test_ten_thousand_stars_are_matched_in_every_dialect() -> None:
    dialect = Dialect(case_sensitive=False, slash_stops=True, optional_tail=True)
    assert not matches_in(dialect, "*a" * 10_000 + "b", "a" * 20_000)
    assert not matches_in(dialect, "*/" * 10_000 + "b", "a/" * 10_000)


def test_a_layer_s_dialect_is_that_of_its_patterns_only() -> None:
    rule = Rule(effect=Effect.DENY, action="skill", pattern="PDF-*")
    wanted = Permission(action="skill", resource="pdf-forms")
    ours = Layer(name="user", rules=(rule,))
    theirs = Layer(name="user", rules=(rule,), dialect=Dialect(case_sensitive=False))
    assert decide([ours], wanted).effect is Effect.ASK
    assert decide([theirs], wanted).effect is Effect.DENY
    assert decide([theirs], Permission(action="SKILL", resource="pdf-forms")).effect is Effect.ASK
