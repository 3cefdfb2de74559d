"""Tests of skill/text_repair.py: what is mended, and that a skill says the same afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill import parse, repaired_file


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ("description: Use when: x\n", "description: 'Use when: x'\n", ("yaml-repaired",)),
        ("description: [Beta] x\n", "description: '[Beta] x'\n", ("yaml-repaired",)),
        ("description: it's: x\n", "description: 'it''s: x'\n", ("yaml-repaired",)),
        (
            "description: x\nallowed-tools: Read, Bash(git:*)\n",
            "description: x\nallowed-tools: Read Bash(git:*)\n",
            ("allowed-tools-form",),
        ),
        (
            "description: x\nallowed-tools: [Read, Write]\n",
            "description: x\nallowed-tools: Read Write\n",
            ("allowed-tools-form",),
        ),
    ],
)
def test_what_is_safe_is_mended(before: str, after: str, codes: tuple[str, ...]) -> None:
    found = repaired_file(f"---\nname: x\n{before}---\nBody.\n".encode(), directory="x")
    assert found is not None
    assert (found.after, found.codes) == (f"---\nname: x\n{after}---\nBody.\n", codes)


def test_marks_ends_of_lines_and_a_missing_name_are_mended() -> None:
    found = repaired_file(b"\xef\xbb\xbf---\r\ndescription: d\r\n---\r\nB\r\n", directory="x")
    assert found is not None
    assert found.after == "---\r\nname: x\r\ndescription: d\r\n---\r\nB\r\n"
    assert found.codes == ("bom", "name-missing")
    found = repaired_file(b"---\rname: x\rdescription: d\r---\rB\r", directory="x")
    assert found is not None
    assert (found.after, found.codes) == (
        "---\nname: x\ndescription: d\n---\nB\n",
        ("line-endings",),
    )


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (
            "\n\n---\nname: x\ndescription: d\n---\n",
            "---\nname: x\ndescription: d\n---\n",
            "missing",
        ),
        ("---\nname: x\ndescription: d\n", "---\nname: x\ndescription: d\n---\n", "unclosed"),
    ],
)
def test_a_file_whose_fences_are_wrong_is_read_afterwards(
    before: str, after: str, code: str
) -> None:
    found = repaired_file(before.encode(), directory="x")
    assert found is not None
    assert (found.after, found.codes) == (after, (f"frontmatter-{code}",))


def test_what_only_clients_misread_is_mended_for_them_alone() -> None:
    data = b"--- \nname: x\ndescription: 12\n---\n"
    assert repaired_file(data, directory="x") is None
    found = repaired_file(data, directory="x", for_clients=True)
    assert found is not None
    assert (found.after, found.codes) == ("---\nname: x\ndescription: '12'\n---\n", ())


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: x\ndescription: d\n---\n",
        "---\nname: other\ndescription: d\n---\n",
        "---\nname: x\n---\n",
        "no frontmatter",
        "---\nname: x\ndescription: d\nmetadata:\n  a: b: c\n---\n",
        "---\nname: x\ndescription: d\nallowed-tools:\n  - Read\n---\n",
        "---\nname: x\ndescription: d\nallowed-tools: [Read,\n  Write]\n---\n",
    ],
)
def test_what_a_person_has_to_choose_is_left(text: str) -> None:
    assert repaired_file(text.encode(), directory="x") is None


def test_no_name_is_written_that_is_not_valid() -> None:
    assert repaired_file(b"---\ndescription: d\n---\n", directory="Not A Name") is None


VALUES = st.text(alphabet="ab :'\"[]{}*&>|-#,\\\té@`!%\n", max_size=24)


@given(description=VALUES, tools=VALUES, newline=st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_mended_file_says_the_same(description: str, tools: str, newline: str) -> None:
    text = f"---\ndescription: {description}\nallowed-tools: {tools}\nx: 1\n---\nBody.\n"
    data = text.replace("\n", newline).encode()
    found = repaired_file(data, directory="x")
    if found is None:
        return
    before, after = (parse(one, directory="x") for one in (data, found.after.encode()))
    assert before.skill is not None
    assert after.skill is not None
    assert (before.skill.name, before.skill.description) == (
        after.skill.name,
        after.skill.description,
    )
    assert before.skill.frontmatter.allowed_tools == after.skill.frontmatter.allowed_tools
    assert before.body == after.body
    assert len(after.diagnostics) < len(before.diagnostics)
    assert repaired_file(found.after.encode(), directory="x") is None
