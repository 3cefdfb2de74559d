"""Tests of skill/manifest_fields.py: which releases a `requires-python` takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill import python_fits

TAKEN = {
    "": True,
    ">=3.11": True,
    ">= 3.11 , < 3.14": True,
    ">=3.11,": True,
    ">3.13": True,
    ">3.13.1": False,
    "<3.14": True,
    "<3.14.0rc1": True,
    "<3.13": False,
    "<=3.13": False,
    "<=3.13.1": True,
    ">=3.13.1rc2": True,
    ">3.13.1rc2": True,
    "<3.13.1rc2": False,
    "==3.13": False,
    "==3.13.1": True,
    "==3.13.1.0": True,
    "==3.13.1rc1": False,
    "==3.13.*": True,
    "==3.12.*": False,
    "==3.*": True,
    "!=3.13.*": False,
    "!=3.13.0": True,
    "~=3.11": True,
    "~=3.11.0": False,
    "~=3.13.0": True,
    "===3.13.1": True,
    ">=3.11,!=3.13.1": False,
    ">=4": False,
}


@pytest.mark.parametrize("specifier", TAKEN)
def test_a_release_is_taken_as_pep_440_says(specifier: str) -> None:
    assert python_fits(specifier, (3, 13, 1)) is TAKEN[specifier]


@pytest.mark.parametrize(
    "specifier",
    ["^3.11", "3.11", ">=3.11 <3.14", ">=3.*", "~=3", ">=3.11;x", f">=3.{'1' * 9}", "<3," * 21],
)
def test_what_is_no_specifier_is_refused_whatever_the_others_say(specifier: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        python_fits(f"<2,{specifier}", (3, 13, 1))


@given(
    release=st.tuples(*[st.integers(0, 99)] * 3),
    other=st.lists(st.integers(0, 99), min_size=1, max_size=4),
)
def test_each_release_is_below_at_or_above_each_other(
    release: tuple[int, int, int], other: list[int]
) -> None:
    text = ".".join(map(str, other))
    held = [python_fits(f"{operator}{text}", release) for operator in ("<", "==", ">")]
    assert held.count(True) == 1
    assert python_fits(f">={text}", release) is not held[0]
    assert python_fits(f"!={text}", release) is not held[1]
