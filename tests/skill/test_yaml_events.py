"""Tests of a frontmatter as other programs read it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill import core_value, parse, typed_fields


def fields(text: str) -> Any:
    found = typed_fields(f"---\nname: a\ndescription: b\n{text}---\n".encode(), directory="a")
    return None if found is None else {k: v for k, v in found.items() if k[0] not in "nd"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x: 1\n", 1),
        ("x: -017\n", -17),
        ("x: 0x1F\n", 31),
        ("x: 1.50\n", 1.5),
        ("x: .5\n", 0.5),
        ("x: 1e3\n", 1000.0),
        ("x: .inf\n", ".inf"),
        ("x: .nan\n", ".nan"),
        ("x: 1e999\n", "1e999"),
        ("x: True\n", True),
        ("x: tRue\n", "tRue"),
        ("x: yes\n", "yes"),
        ("x: Null\n", None),
        ("x:\n", None),
        ("x: ''\n", ""),
        ("x: '1'\n", "1"),
        ('x: "true"\n', "true"),
        ("x: |\n  1\n", "1\n"),
        ("x: 2026-11-22\n", "2026-11-22"),
        ("x: 12:30:45\n", "12:30:45"),
        ("x: 1_000\n", "1_000"),
        ("x: [1, '1', a]\n", [1, "1", "a"]),
        ("x: {1: 2, true: false}\n", {"1": 2, "true": False}),
        ("x: " + "9" * 400 + "\n", "9" * 400),
        ("x: ١\n", "١"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says_and_quoted_ones_are_text(
    text: str, value: object
) -> None:
    found = fields(text)["x"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["x: a: b\n", "x: &a 1\n", "x: !!int 1\n", "x: 1\nx: 2\n"])
def test_what_only_we_would_read_is_not_read(text: str) -> None:
    assert fields(text) is None


@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20))
def test_what_is_text_stays_as_it_is_written(text: str) -> None:
    found = core_value(text)
    if isinstance(found, str):
        assert found == text
    quoted = text.replace("'", "''")
    data = f"---\nname: a\ndescription: b\nx: '{quoted}'\n---\n".encode()
    written = parse(data, directory="a").skill
    typed = typed_fields(data, directory="a")
    if written is not None and typed is not None:
        assert typed["x"] == written.frontmatter.fields["x"]
