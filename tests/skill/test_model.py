"""Tests of skill/model.py: what a frontmatter offers, and what a skill is called."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from skillhouse.skill import Frontmatter, Skill, parse, split_tools, tokens_of


def made(text: str) -> Skill:
    result = parse(text.encode(), directory="pdf", path=Path("/skills/pdf/SKILL.md"))
    assert result.skill is not None
    return result.skill


FULL = """---
x-first: 1.0
name: pdf
description: Fills forms.
license: Apache-2.0
compatibility: Needs qpdf
metadata:
  author: example-org
  version: "2.0"
  nested: {b: [1, yes], a: é}
allowed-tools: Bash(qpdf:*) Read
hooks:
  z: [~, {y: 2026-01-01}]
  a: "no"
"quoted key": |
  two
  lines
---
"""


@pytest.mark.req("S000-8", "S003-12")
def test_every_field_is_kept_as_written_and_in_its_order() -> None:
    skill = made(FULL)
    assert list(skill.frontmatter.fields.items()) == [
        ("x-first", "1.0"),
        ("name", "pdf"),
        ("description", "Fills forms."),
        ("license", "Apache-2.0"),
        ("compatibility", "Needs qpdf"),
        (
            "metadata",
            {"author": "example-org", "version": "2.0", "nested": {"b": ["1", "yes"], "a": "é"}},
        ),
        ("allowed-tools", "Bash(qpdf:*) Read"),
        ("hooks", {"z": ["~", {"y": "2026-01-01"}], "a": "no"}),
        ("quoted key", "two\nlines\n"),
    ]
    assert list(skill.frontmatter.fields["hooks"]) == ["z", "a"]


def test_the_fields_of_the_specification_have_names() -> None:
    found = made(FULL).frontmatter
    assert (found.license, found.compatibility) == ("Apache-2.0", "Needs qpdf")
    assert found.metadata == {
        "author": "example-org",
        "version": "2.0",
        "nested": '{"b": ["1", "yes"], "a": "é"}',
    }
    assert found.allowed_tools == ("Bash(qpdf:*)", "Read")


def test_fields_that_are_absent_or_of_another_type_are_none_or_empty() -> None:
    def summary(fields: dict[str, Any]) -> tuple[object, ...]:
        found = Frontmatter(fields)
        return (
            found.license,
            found.compatibility,
            found.version,
            dict(found.metadata),
            found.allowed_tools,
        )

    nothing: tuple[object, ...] = (None, None, None, {}, ())
    assert summary({}) == nothing
    names = ("license", "compatibility", "version", "metadata", "allowed-tools")
    no_fields: dict[str, Any] = {}
    texts = ["a", ["b"], " c ", " "]
    assert summary(dict.fromkeys(names, "")) == nothing
    assert summary(dict.fromkeys(names, no_fields)) == nothing
    assert summary(dict.fromkeys(names, texts)) == (*nothing[:4], ("a", "c"))


@pytest.mark.req("S000-7")
@pytest.mark.parametrize(
    ("lines", "version"),
    [
        ("", None),
        ("version: 1.2.0", "1.2.0"),
        ("version: 1.0", "1.0"),
        ("metadata: {version: 1.10}", "1.10"),
        ("version: 1.2.0\nmetadata: {version: 9}", "1.2.0"),
        ("version:\nmetadata: {version: 9}", "9"),
    ],
)
def test_a_version_may_be_given_at_the_top_or_in_the_metadata(
    lines: str, version: str | None
) -> None:
    skill = made(f"---\nname: pdf\ndescription: a\n{lines}\n---\n")
    assert skill.frontmatter.version == version


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("", ()),
        (" , ,", ()),
        ("Read", ("Read",)),
        ("Read Write", ("Read", "Write")),
        ("Read,Write , Bash", ("Read", "Write", "Bash")),
        ("Bash(git:*), Bash(ls, pwd)\nRead", ("Bash(git:*)", "Bash(ls, pwd)", "Read")),
        ("Bash(f(a, b), c) Read", ("Bash(f(a, b), c)", "Read")),
        ("Bash(never closed, Read", ("Bash(never closed, Read",)),
        ("Read) Bash(a b)", ("Read)", "Bash(a b)")),
    ],
)
def test_tools_are_separated_by_blanks_or_commas_outside_brackets(
    text: str, tools: tuple[str, ...]
) -> None:
    assert split_tools(text) == tools
    assert Frontmatter({"allowed-tools": text}).allowed_tools == tools


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2), ("\ud800", 1)]
)
def test_tokens_are_a_quarter_of_the_bytes_rounded_up(text: str, tokens: int) -> None:
    assert tokens_of(text) == tokens


def test_a_skill_knows_its_places() -> None:
    skill = made(FULL)
    assert (skill.id, skill.scope, skill.name) == ("explicit:pdf", "explicit", "pdf")
    assert (skill.location, skill.directory) == (Path("/skills/pdf/SKILL.md"), Path("/skills/pdf"))
    assert skill.uri == "file:///skills/pdf/SKILL.md"
    assert skill.root == "/skills/pdf"


def test_places_with_other_characters_have_an_address_as_well() -> None:
    result = parse(b"---\nname: x\ndescription: a\n---\n", directory="a b", path=Path("/a b/é/X#1"))
    assert result.skill is not None
    assert result.skill.uri == "file:///a%20b/%C3%A9/X%231"


def test_a_skill_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        made(FULL).name = "other"  # type: ignore[misc]  # that is the point
