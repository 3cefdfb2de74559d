"""Tests of skill/repair.py: which lines are mended, and that all others stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill.repair import repaired
from skillhouse.skill.source import RefusedError
from skillhouse.skill.yaml_text import read_mapping


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        ("a: b: c", "a: 'b: c'"),
        ("a: b:", "a: 'b:'"),
        ("a: b:\tc", "a: 'b:\tc'"),
        ("a:   b: c   ", "a: 'b: c'"),
        ("a : b: c", "a: 'b: c'"),
        ("a-b c: d: e", "a-b c: 'd: e'"),
        ("-a: b: c", "-a: 'b: c'"),
        ("a: it's: b", "a: 'it''s: b'"),
        ('a: say "b": \\n', "a: 'say \"b\": \\n'"),
        ("a: > b", "a: 'b'"),
        ("a: | b: c", "a: 'b: c'"),
        ("a: >- b", "a: 'b'"),
        ("a: |+2 b's", "a: 'b''s'"),
        ("a: b: c # d", "a: 'b: c # d'"),
    ],
)
def test_a_faulty_value_becomes_quoted_text(line: str, mended: str) -> None:
    assert repaired(line) == mended
    assert repaired(f"x: y\n{line}\nz: w\n") == f"x: y\n{mended}\nz: w\n"


@pytest.mark.req("S001-27")
@pytest.mark.parametrize(
    "line",
    [
        "a: 'b: c'",
        'a: "b: c" d',
        "a: [b: c]",
        "a: {b: c}",
        "a:",
        "a: ",
        "a: |",
        "a: >-",
        "a: > # b: c",
        "  a: b: c",
        "\ta: b: c",
        "# a: b: c",
        "- a: b: c",
        "a: b:c",
        "a: http://b:80/c",
        "a: &b c: d",
        "a: *b c: d",
        "a: !b c: d",
        "a: @b: c",
        "a: `b: c",
        "a: # b: c",
        "'a': b: c",
        "? a: b: c",
        "a:b: c",
        "",
        "text",
    ],
)
def test_other_lines_are_left_alone(line: str) -> None:
    assert repaired(line) is None
    assert repaired(f"x: y\n{line}\n") is None


def test_only_the_faulty_lines_change() -> None:
    block = "name: x\ndescription: a: b\nmetadata:\n  c: d: e\nother: > f\n"
    assert repaired(block) == ("name: x\ndescription: 'a: b'\nmetadata:\n  c: d: e\nother: 'f'\n")


@given(
    block=st.lists(
        st.sampled_from(
            ["a", "b", ": ", ":", "\n", " ", "'", '"', "> ", "|", "#", "- ", "\\", "\t"]
        ),
        max_size=14,
    ).map("".join)
)
def test_a_repair_keeps_the_lines_and_happens_once(block: str) -> None:
    mended = repaired(block)
    if mended is None:
        return
    assert mended.count("\n") == block.count("\n")
    assert repaired(mended) is None


@given(
    key=st.text(alphabet="abc-_ .", min_size=1, max_size=6).map(lambda text: f"k{text}k"),
    value=st.text(alphabet="ab: '\"\\#&*!%é", min_size=1, max_size=12).map(
        lambda text: f"v{text}: w"
    ),
)
def test_a_mended_value_is_the_text_that_was_written(key: str, value: str) -> None:
    mended = repaired(f"{key}: {value}\n")
    assert mended is not None
    assert read_mapping(mended) == {key: value}
    with pytest.raises(RefusedError):
        read_mapping(f"{key}: v: w\n")
