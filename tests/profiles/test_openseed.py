"""Design 003 under its profile: one root, direct subdirectories, the directory's name counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor import AmbiguousSkillError, structs
from tests.discovery.trees import names, write_skill
from tests.profiles.places import Place, codes, place, write


@pytest.fixture
def seed(tmp_path: Path) -> Place:
    return place(tmp_path, "openseed", environment={"DOCUMENT_ROOT": str(tmp_path / "documents")})


@pytest.mark.req("S003-14", "S003-15")
def test_the_root_is_skills_below_the_configured_directory(seed: Place) -> None:
    assert seed.relative_roots() == [("explicit", "documents/skills")]
    moved = structs.replace(seed, environment={"DOCUMENT_ROOT": str(seed.base / "moved")})
    assert moved.relative_roots() == [("explicit", "moved/skills")]
    assert structs.replace(seed, environment={}).relative_roots() == []
    given = structs.replace(seed, environment={}, explicit=[seed.base / "given"])
    assert given.relative_roots() == [("explicit", "given")]


@pytest.mark.req("S003-16", "S003-20", "S003-21", "S003-22", "S003-23")
def test_only_direct_subdirectories_with_a_skill_file_are_listed(seed: Place) -> None:
    root = seed.base / "documents" / "skills"
    write_skill(root / "pdf")
    write_skill(root / "group" / "nested")
    (root / "empty").mkdir()
    (root / "odd" / "SKILL.md").mkdir(parents=True)
    write(root / "SKILL.md", "---\nname: skills\ndescription: A file in the root.\n---\n")
    assert names(seed.index()) == ["pdf"]


@pytest.mark.req("S003-18")
def test_a_missing_root_gives_no_skills(seed: Place) -> None:
    assert (seed.index().skills, seed.index().diagnostics) == ((), ())


@pytest.mark.req("S003-19")
def test_a_root_that_is_a_file_gives_no_skills(seed: Place) -> None:
    write(seed.base / "documents" / "skills", "not a directory")
    index = seed.index()
    assert (index.skills, codes(index)) == ((), ["root-not-directory"])


@pytest.mark.req("S003-17")
def test_the_directory_has_authority_over_the_name_and_a_difference_is_said(seed: Place) -> None:
    write_skill(seed.base / "documents" / "skills" / "data-analysis", name="charts")
    index = seed.index()
    assert (names(index), codes(index)) == (["data-analysis"], ["name-mismatch"])
    assert index.get("data-analysis").frontmatter.fields["name"] == "charts"


@pytest.mark.req("S003-4", "S003-24")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("# No frontmatter\n", "frontmatter-missing"),
        ("---\nname: bad\ndescription: Not closed.\n", "frontmatter-unclosed"),
        ("---\nname: bad\n---\n", "description-missing"),
        ("---\ndescription: No name.\n---\n", "name-missing"),
        ("---\nname: Bad Name\ndescription: Blanks.\n---\n", "name-invalid"),
        (f"---\nname: {'x' * 65}\ndescription: Long name.\n---\n", "name-invalid"),
        (f"---\nname: bad\ndescription: {'x' * 1_025}\n---\n", "description-too-long"),
        ("---\n- name\n---\n", "frontmatter-not-mapping"),
    ],
)
def test_a_skill_with_invalid_frontmatter_is_left_out(seed: Place, text: str, code: str) -> None:
    root = seed.base / "documents" / "skills"
    write(root / "bad" / "SKILL.md", text)
    write_skill(root / "good")
    index = seed.index()
    assert names(index) == ["good"]
    assert code in codes(index)
    assert "error" in {found.severity for found in index.diagnostics}


@pytest.mark.req("S003-26", "S003-34", "S003-27")
def test_an_exact_name_goes_first_and_case_decides_nothing_else(seed: Place) -> None:
    root = seed.base / "documents" / "skills"
    # The profile refuses capitals, but the rule of look-up is the index's own.
    policy = structs.replace(seed.profile.parse_policy, bad_name="warn")
    lax = structs.replace(seed, profile=structs.replace(seed.profile, parse_policy=policy))
    for directory in ("data", "Data", "notes"):
        write_skill(root / directory)
    index = lax.index()
    assert [index.get(name).name for name in ("data", "Data", "NOTES")] == ["data", "Data", "notes"]
    with pytest.raises(AmbiguousSkillError):
        index.get("DATA")
