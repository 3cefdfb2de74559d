"""Tests of skill/index.py: how a skill is looked up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skillhouse.floor import AmbiguousSkillError, Diagnostic, Severity, UnknownSkillError
from skillhouse.skill import IndexContent, Skill, SkillIndex, parse


def skill(name: str, *, scope: str = "user", directory: str = "") -> Skill:
    directory = directory or name
    text = f"---\nname: {name}\ndescription: Does {name}.\n---\n"
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
