"""Tests of skill/model.py: a frontmatter's fields, what a skill is called, how it is looked up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import AmbiguousSkillError, Diagnostic, Severity, UnknownSkillError
from skillhouse.floor.structs import replace
from skillhouse.skill import (
    Frontmatter,
    IndexContent,
    Skill,
    SkillIndex,
    parse,
    split_tools,
    tokens_of,
)


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
    with pytest.raises(AttributeError):
        made(FULL).name = "other"  # type: ignore[misc]  # that is the point


def skill(name: str, *, scope: str = "user", directory: str = "") -> Skill:
    directory = directory or name
    text = f"---\nname: {json.dumps(name)}\ndescription: Does {directory}.\n---\n"
    path = Path(f"/{scope}/{directory}/SKILL.md")
    found = parse(text.encode(), directory=directory, path=path).skill
    assert found is not None
    return replace(found, scope=scope, root=f"/{scope}")


PDF = skill("pdf", scope="project")
PDF_USER = skill("pdf")
SHEETS = skill("sheets", directory="xlsx-dir")
WEATHER = skill("weather")
INDEX = SkillIndex([PDF, SHEETS, WEATHER], shadowed=[PDF_USER])


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("pdf", PDF),
        ("project:pdf", PDF),
        ("user:pdf", PDF_USER),
        ("sheets", SHEETS),
        ("user:sheets", SHEETS),
        ("xlsx-dir", SHEETS),
        ("/user/xlsx-dir/SKILL.md", SHEETS),
        ("/user/pdf/SKILL.md", PDF_USER),
    ],
)
def test_a_skill_is_found_by_id_name_directory_or_file(reference: str, found: Skill) -> None:
    assert INDEX.get(reference) is found


@pytest.mark.parametrize(
    ("reference", "suggestions"),
    [
        ("wether", ("weather",)),
        ("PDFS", ("pdf",)),
        ("user:pdfs", ("user:pdf",)),
        ("zzz", ()),
        ("", ()),
        ("usr:sheets", ("user:sheets",)),
    ],
)
def test_an_unknown_skill_is_an_error_with_the_nearest_names(
    reference: str, suggestions: tuple[str, ...]
) -> None:
    with pytest.raises(UnknownSkillError) as caught:
        INDEX.get(reference)
    assert caught.value.reference == reference
    assert caught.value.suggestions[:1] == suggestions


def candidates(index: SkillIndex, reference: str) -> tuple[str, ...]:
    with pytest.raises(AmbiguousSkillError) as caught:
        index.get(reference)
    return caught.value.candidates


def test_a_name_in_force_twice_is_ambiguous() -> None:
    index = SkillIndex([PDF, PDF_USER, WEATHER])
    assert candidates(index, "pdf") == ("project:pdf", "user:pdf")
    assert index.get("user:pdf") is PDF_USER
    assert index.get("weather") is WEATHER


def test_candidates_of_one_id_are_told_apart_by_their_files() -> None:
    twins = [skill("pdf", directory=directory) for directory in ("a", "b")]
    index = SkillIndex(twins)
    assert candidates(index, "pdf") == ("/user/a/SKILL.md", "/user/b/SKILL.md")
    assert candidates(index, "user:pdf") == ("/user/a/SKILL.md", "/user/b/SKILL.md")
    assert index.get("b") is twins[1]


def test_a_directory_of_several_skills_is_ambiguous() -> None:
    index = SkillIndex([skill("a", directory="x"), skill("b", directory="x", scope="project")])
    assert candidates(index, "x") == ("user:a", "project:b")


def test_shadowed_skills_of_one_id_are_ambiguous() -> None:
    shadowed = [skill("pdf", directory=directory) for directory in ("a", "b")]
    index = SkillIndex([PDF], shadowed=shadowed)
    assert index.get("pdf") is PDF
    assert candidates(index, "user:pdf") == ("/user/a/SKILL.md", "/user/b/SKILL.md")


def test_no_name_takes_the_place_of_an_id() -> None:
    posing = skill("project:pdf", directory="posing")
    index = SkillIndex([posing, PDF])
    assert index.get("project:pdf") is PDF
    assert index.get("user:project:pdf") is posing


def test_a_name_is_preferred_to_a_directory_and_force_to_shadow() -> None:
    named, placed = skill("pdf", directory="a"), skill("other", directory="pdf")
    assert SkillIndex([placed, named]).get("pdf") is named
    hidden = skill("third", directory="xlsx-dir", scope="builtin")
    assert SkillIndex([SHEETS], shadowed=[hidden]).get("xlsx-dir") is SHEETS
    assert SkillIndex([], shadowed=[hidden]).get("xlsx-dir") is hidden


@pytest.mark.req("S003-34")
def test_case_is_passed_over_where_one_skill_fits_and_an_exact_name_goes_first() -> None:
    lower, upper = skill("data"), skill("Data", scope="project")
    index = SkillIndex([PDF, SHEETS, lower, upper], shadowed=[PDF_USER])
    assert index.get("PDF") is PDF
    assert index.get("User:Pdf") is PDF_USER
    assert index.get("XLSX-dir") is SHEETS
    assert [index.get(name) for name in ("data", "Data")] == [lower, upper]
    assert candidates(index, "DATA") == ("user:data", "project:Data")
    with pytest.raises(UnknownSkillError):
        index.get("/USER/xlsx-dir/SKILL.md")


@pytest.mark.parametrize("name", ["block\n", " padded ", "two  words", "a\tb", "a\u3000b", "a\nb"])
@pytest.mark.parametrize("name_match", ["casefold", "exact"])
def test_a_name_is_found_as_lists_show_it_on_one_line(name: str, name_match: Any) -> None:
    odd = skill(name, directory="odd-directory")
    index = SkillIndex([PDF, odd, WEATHER], name_match=name_match)
    shown = " ".join(name.split())
    for reference in (name, shown, name.strip(), f"user:{shown}", f" {shown}\n"):
        assert index.get(reference) is odd


def test_names_that_one_line_does_not_tell_apart_are_ambiguous() -> None:
    twins = [skill("a  b", directory="x"), skill("a\nb", directory="y")]
    index = SkillIndex(twins)
    assert [index.get(one.name) for one in twins] == twins
    assert candidates(index, "a b") == ("user:a  b", "user:a\nb")


def test_an_exact_index_does_not_pass_over_case() -> None:
    with pytest.raises(UnknownSkillError) as caught:
        SkillIndex([PDF], name_match="exact").get("PDF")
    assert caught.value.suggestions == ("pdf",)


def test_a_part_of_an_index_is_looked_up_as_the_whole() -> None:
    index = SkillIndex([PDF, SHEETS], shadowed=[PDF_USER], name_match="exact")
    part = index.where(lambda found: found.name == "pdf")
    assert (part.skills, part.shadowed, part.name_match) == ((PDF,), (), "exact")


def test_an_index_keeps_the_order_it_is_given() -> None:
    found = Diagnostic(code="name-missing", severity=Severity.WARNING, message="no name")
    index = SkillIndex(iter([WEATHER, PDF]), shadowed=[PDF_USER], diagnostics=[found])
    assert (index.skills, index.shadowed, index.diagnostics, len(index)) == (
        (WEATHER, PDF),
        (PDF_USER,),
        (found,),
        2,
    )
    assert len(SkillIndex()) == 0


def test_a_source_is_asked_once_and_not_before_it_is_needed() -> None:
    asked = []

    def source() -> IndexContent:
        asked.append("asked")
        return IndexContent(skills=(PDF,))

    index = SkillIndex(source=source)
    assert asked == []
    assert (index.get("pdf"), index.skills, index.shadowed) == (PDF, (PDF,), ())
    assert asked == ["asked"]
