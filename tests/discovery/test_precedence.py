"""Tests of discovery/precedence.py: what two duplicates are, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skillhouse.discovery import Root, discover
from skillhouse.floor import AmbiguousSkillError
from skillhouse.skill import DEFAULT_PROFILE, Duplicates, Identity, SkillIndex
from tests.discovery.trees import names, write_skill

SKILLS = (
    # scope, directory, name
    ("project", "one/pdf", "pdf"),
    ("project", "two/pdf", "reader"),
    ("user", "pdf", "pdf"),
    ("user", "reader", "pdf"),
)


def found(base: Path, identity: Identity, duplicates: Duplicates) -> SkillIndex:
    for scope, directory, name in SKILLS:
        write_skill(base / scope / directory, name=name, description=f"{scope}/{directory}")
    profile = replace(DEFAULT_PROFILE, identity=identity, duplicates=duplicates)
    return discover([Root(base / scope, scope) for scope in ("user", "project")], profile=profile)


def said(index: SkillIndex) -> tuple[list[str], list[str]]:
    return (
        [skill.description for skill in index.skills],
        [skill.description for skill in index.shadowed],
    )


@pytest.mark.parametrize(
    ("identity", "in_force", "shadowed"),
    [
        ("name", ["project/one/pdf", "project/two/pdf"], ["user/pdf", "user/reader"]),
        ("directory", ["project/one/pdf", "user/reader"], ["project/two/pdf", "user/pdf"]),
        ("source_name", ["project/one/pdf", "project/two/pdf", "user/pdf"], ["user/reader"]),
        ("path", ["project/one/pdf", "project/two/pdf", "user/pdf", "user/reader"], []),
    ],
)
def test_what_two_skills_share_to_be_duplicates_is_a_setting(
    tmp_path: Path, identity: Identity, in_force: list[str], shadowed: list[str]
) -> None:
    assert said(found(tmp_path, identity, "first")) == (in_force, shadowed)


@pytest.mark.parametrize(
    ("duplicates", "in_force", "shadowed"),
    [
        ("first", ["project/one/pdf", "project/two/pdf"], ["user/pdf", "user/reader"]),
        # In the earlier one's place.
        ("last", ["user/reader", "project/two/pdf"], ["project/one/pdf", "user/pdf"]),
        ("keep_all", ["project/one/pdf", "project/two/pdf", "user/pdf", "user/reader"], []),
        ("error", ["project/two/pdf"], ["project/one/pdf", "user/pdf", "user/reader"]),
    ],
)
def test_what_becomes_of_duplicates_is_a_setting(
    tmp_path: Path, duplicates: Duplicates, in_force: list[str], shadowed: list[str]
) -> None:
    index = found(tmp_path, "name", duplicates)
    assert said(index) == (in_force, shadowed)
    code = "shadowed" if duplicates in {"first", "last"} else "duplicate"
    clashes = [diagnostic for diagnostic in index.diagnostics if diagnostic.code == code]
    files = {skill.file for skill in (*index.skills, *index.shadowed)}
    for clash in clashes:
        # Each names both places.
        assert str(clash.path) in files
        assert any(f"`{file}`" in clash.message for file in files - {str(clash.path)})
    assert {clash.severity.value for clash in clashes} == (
        {"error"} if duplicates == "error" else {"warning"}
    )
    assert len(clashes) == (3 if duplicates == "error" else 2)


@pytest.mark.parametrize("duplicates", ["first", "last", "keep_all", "error"])
def test_no_duplicate_is_lost(tmp_path: Path, duplicates: Duplicates) -> None:
    index = found(tmp_path, "name", duplicates)
    for scope, directory, _ in SKILLS:
        file = str(tmp_path / scope / directory / "SKILL.md")
        assert index.get(file).description == f"{scope}/{directory}"
    assert index.get("project:reader").description == "project/two/pdf"


def test_an_id_that_two_kept_skills_share_is_ambiguous_and_names_their_files(
    tmp_path: Path,
) -> None:
    index = found(tmp_path, "name", "keep_all")
    with pytest.raises(AmbiguousSkillError) as caught:
        index.get("user:pdf")
    assert caught.value.candidates == tuple(
        str(tmp_path / "user" / directory / "SKILL.md") for directory in ("pdf", "reader")
    )


@pytest.mark.parametrize(("duplicates", "scope"), [("first", "project"), ("last", "user")])
def test_a_file_below_two_roots_is_the_stronger_roots(
    tmp_path: Path, duplicates: Duplicates, scope: str
) -> None:
    write_skill(tmp_path / "a" / "pdf")
    profile = replace(DEFAULT_PROFILE, duplicates=duplicates)
    roots = [Root(tmp_path / "a", "project"), Root(tmp_path, "user")]
    index = discover(roots, profile=profile)
    assert [skill.id for skill in index.skills] == [f"{scope}:pdf"]
    assert (index.shadowed, index.diagnostics) == ((), ())


def test_a_plugins_skills_bear_its_name(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "pdf")
    index = discover([Root(tmp_path, "plugin", namespace="office")])
    assert names(index) == ["office:pdf"]
    for reference in ("office:pdf", "plugin:office:pdf", "pdf"):
        assert index.get(reference).location == file
