"""Tests of skill/skill_file.py: what is nearly frontmatter is never taken for text."""

from __future__ import annotations

import pytest

from skillhouse.skill import parse
from skillhouse.skill.model import LOADING_POLICY

FIELDS = "name: pdf\ndescription: Reads PDF files.\n"


def read(text: str) -> tuple[str, str, str] | None:
    """Return name, description and body of a file as the default profile loads it."""
    result = parse(text.encode(), directory="pdf", policy=LOADING_POLICY)
    skill = result.skill
    return None if skill is None else (skill.name, skill.description, result.body)


def said(text: str, directory: str = "pdf") -> list[tuple[str, str, int | None, str]]:
    found = parse(text.encode(), directory=directory, policy=LOADING_POLICY).diagnostics
    return [(one.severity, one.code, one.line, one.message) for one in found]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (f"\n\n---\n{FIELDS}---\nB\n", 3, "blank lines before the first `---`"),
        (f" \n---  \n{FIELDS}---\nB\n", 2, "blank lines before the first `---`"),
        (
            f"<!-- licence: MIT -->\n---\n{FIELDS}---\nB\n",
            2,
            "text before the first `---`, which is left out",
        ),
        (
            f"# Copyright\n\nAll rights.\n\n---\nlicense: MIT\n{FIELDS}---\nB\n",
            5,
            "text before the first `---`, which is left out",
        ),
        (f"{FIELDS}---\nB\n", 1, "no `---` before the first field"),
        ("Name: pdf\nDESCRIPTION: Reads PDF files.\n\nB\n", 1, "no `---` before the first field"),
        (
            f"```yaml\n{FIELDS}```\nB\n",
            1,
            "expected `---` as the first line, got a block of code, ````yaml`",
        ),
        (
            f"~~~\n{FIELDS}~~~\nB\n",
            1,
            "expected `---` as the first line, got a block of code, `~~~`",
        ),
        (f"----\n{FIELDS}----\nB\n", 1, "expected `---` as the first line, got `----`"),
        (f"----\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `----`"),
        (f"--\n{FIELDS}--\nB\n", 1, "expected `---` as the first line, got `--`"),
        (f"***\n{FIELDS}***\nB\n", 1, "expected `---` as the first line, got `***`"),
        (f"---yaml\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `---yaml`"),
        (f"—-\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `—-`"),
        (f"- - -\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `- - -`"),
    ],
)
def test_a_block_that_was_meant_is_read_and_said(text: str, line: int, message: str) -> None:
    got = read(text)
    assert got is not None
    assert (got[0], got[1], got[2].strip()) == ("pdf", "Reads PDF files.", "B")
    assert said(text)[0] == ("warning", "frontmatter-missing", line, message)


@pytest.mark.parametrize(
    "text",
    [
        '+++\nname = "pdf"\ndescription = "Reads PDF files."\n+++\nB\n',
        '{"name": "pdf", "description": "Reads PDF files."}\nB\n',
        '{\n  "name": "pdf",\n  "description": "Reads PDF files."\n}\n\nB\n',
        "```yaml\nname: pdf\n```\nB\n",
        f"```yaml\n---\n{FIELDS}---\n```\nB\n",
        '----\nname: "x\ndescription: x\n----\n',
        "----\nname: pdf\ndescription: x",
        "----\nname: pdf\ndescription: x\n" + "a: b\n" * 2_000 + "----\n",
    ],
)
def test_a_block_that_cannot_be_read_is_no_skill(text: str) -> None:
    assert read(text) is None
    assert ("error", "frontmatter-missing") in [one[:2] for one in said(text)]


@pytest.mark.parametrize(
    "text",
    [
        "# PDF\n\nReads files.\n",
        "# PDF\n\nReads files.\n\n---\n\nDescription: of the second part.\n",
        "# PDF\n\n---\ndescription: a rule, and no fence\n",
        "**Name:** pdf\n\nReads files.\n",
        "{{ name }}: a template\n\nReads files.\n",
        "```python\nprint(1)\n```\n",
        "",
        "\n\n",
    ],
)
def test_a_file_without_any_is_read_as_before(text: str) -> None:
    messages = [message for _, code, _, message in said(text) if code == "frontmatter-missing"]
    assert messages == ["expected `---` as the first line"]


def test_fields_in_another_case_are_read_and_said() -> None:
    text = "---\nName: pdf\nDescription: Reads PDF files.\n---\nB\n"
    assert read(text) == ("pdf", "Reads PDF files.", "B\n")
    assert said(text) == [
        ("warning", "key-case", 2, "`Name`: expected `name`, in small letters"),
        ("warning", "key-case", 3, "`Description`: expected `description`, in small letters"),
    ]
    both = "---\nname: pdf\ndescription: Right.\nDescription: Wrong.\n---\nB\n"
    assert read(both) == ("pdf", "Right.", "B\n")
    strict = parse(text.encode(), directory="pdf")
    assert strict.skill is None
