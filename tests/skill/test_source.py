"""Tests of skill/source.py: the vectors and laws of names."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill import validate_name
from tests.vectorfile import vectors


def codes(name: str, directory: str) -> list[str]:
    return sorted(found.code for found in validate_name(name, directory=directory))


@pytest.mark.req("S003-5")
@pytest.mark.parametrize(("length", "valid"), [(0, False), (1, True), (64, True), (65, False)])
def test_a_name_has_1_to_64_characters(length: int, valid: bool) -> None:
    assert (validate_name("a" * length, directory="a" * length) == ()) is valid


@pytest.mark.req("S003-6", "S003-7", "S003-8")
@pytest.mark.parametrize(
    "name",
    ["A", "pdf_tools", "pdf.tools", "pdf tools", "é", "日本", "-a", "a-", "-", "a--b", "a\n"],
)
def test_a_name_has_small_letters_digits_and_single_hyphens_inside(name: str) -> None:
    assert codes(name, name) == ["name-invalid"]


@pytest.mark.req("S003-9")
def test_a_name_equals_that_of_the_directory() -> None:
    assert [found.message for found in validate_name("pdf", directory="PDF")] == [
        "`name`: expected the directory's name 'PDF', got 'pdf'"
    ]
    assert codes("PDF", "pdf") == ["name-invalid", "name-mismatch"]


@given(name=st.text(alphabet="ab9-A_é\n ", max_size=8) | st.text(max_size=70))
def test_the_rule_is_that_of_the_specification(name: str) -> None:
    valid = bool(
        re.fullmatch(r"[a-z0-9-]{1,64}", name)
        and not name.startswith("-")
        and not name.endswith("-")
        and "--" not in name
    )
    assert (codes(name, name) == []) is valid


@pytest.mark.req("S003-5", "S003-6", "S003-7", "S003-8", "S003-9")
@pytest.mark.parametrize(("given", "expect"), vectors("names"))
def test_a_name_is_judged_as_its_vector_says(given: dict[str, Any], expect: dict[str, Any]) -> None:
    found = validate_name(given["name"], directory=given["directory"])
    assert sorted(diagnostic.code for diagnostic in found) == expect["codes"]
    assert (not found) is expect["valid"]
