"""Tests of floor/rules.py."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillhouse.permission import matches

# Few letters, so that patterns often match; signs of regular expressions, and lines.
PATTERNS = st.text("ab*?.[\\\n", max_size=12)
TEXTS = st.text("ab.[\\\n", max_size=12)


def reference(pattern: str, text: str) -> bool:
    """Return what the rule says, in the plainest way; exponential at worst."""
    written = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)
    return re.fullmatch(written, text, re.DOTALL) is not None


@pytest.mark.req("S001-61")
@given(pattern=PATTERNS, text=TEXTS)
@example(pattern="a*ab", text="aab")
@example(pattern="*ab?*b", text="abab\nb")
@example(pattern="a*a", text="a")
@example(pattern="*a?*?", text="aaa")
def test_a_pattern_matches_what_the_plain_rule_matches(pattern: str, text: str) -> None:
    assert matches(pattern, text) == reference(pattern, text)


@given(text=TEXTS, at=st.integers(0, 12), length=st.integers(0, 12))
def test_a_text_with_any_part_starred_out_still_matches(text: str, at: int, length: int) -> None:
    assert matches(text[:at] + "*" + text[at + length :], text)


@given(pattern=PATTERNS, text=TEXTS)
def test_doubling_a_star_changes_nothing(pattern: str, text: str) -> None:
    assert matches(pattern.replace("*", "**"), text) == matches(pattern, text)


HARD = {
    "ten thousand stars": ("*" * 10_000 + "b", "a" * 10_000),
    "ten thousand stars, each with a letter": ("*a" * 10_000 + "b", "a" * 20_000),
    "ten thousand stars, each with one character": ("*?" * 10_000 + "b", "a" * 20_000),
    "one long part that almost fits everywhere": ("*" + "a" * 10_000 + "b*", "a" * 20_000),
    "a long part with open places": ("*" + "a?" * 2_000 + "b*", "a" * 20_000),
    "a long part that begins with an open place": ("*?" + "a" * 2_000 + "b*", "a" * 20_000),
}


@pytest.mark.parametrize("case", HARD)
def test_no_pattern_takes_long(case: str) -> None:
    pattern, text = HARD[case]
    started = time.process_time()
    assert not matches(pattern, text)
    # The worst is some tens of milliseconds; trying every place again took from 8 to 60 seconds.
    assert time.process_time() - started < 2
