"""Tests of near_names.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.registry.near_names import is_near

NAMES = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True)


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        ("pfd", "pdf", True),
        ("dpf", "pdf", True),
        ("pdf-tools", "pdf", True),
        ("pdf", "pdf-tools", True),
        ("pdf-helper", "pdf", True),
        ("pdfhelper", "pdf", True),
        ("pdf-he1per", "pdf", True),
        ("pdf-t00l5", "pdf", True),
        ("p-d-f-tools", "pdf", True),
        ("the-pdf", "pdf", True),
        ("pdf-tools", "pdf-helper", True),
        ("pfd-tools", "pdf", True),
        ("official-c1aude", "claude", True),
        ("clade", "claude", True),
        ("pdf", "pdf", False),
        ("csv", "tsv", False),
        ("pdf-viewer", "pdf", False),
        ("mail", "m", False),
        ("word-tools", "pdf-tools", False),
        ("ab", "ba", False),
    ],
)
def test_which_names_are_near(name: str, other: str, expected: bool):
    assert is_near(name, other) is expected


@given(name=NAMES, at=st.integers(min_value=0, max_value=20), letter=st.sampled_from("abz09"))
def test_a_letter_more_is_near_in_both_directions(name: str, at: int, letter: str):
    longer = name[:at] + letter + name[at:]
    if len(name.replace("-", "")) >= 6 and "--" not in longer:
        # Two letters can become one that they look like, which is a second step.
        twins = ("rn", "vv", "c1", "cl", "ci")
        assert is_near(longer, name) or any(pair in longer for pair in twins)
