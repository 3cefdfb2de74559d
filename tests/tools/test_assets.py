"""Tests of tools/assets.py: a skill's other files, and every way of asking for what is not one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.discovery import discover
from skillhouse.floor.structs import replace
from skillhouse.skill import DEFAULT_PROFILE, Skill, SkillIndex, load_profile
from skillhouse.tools import (
    ASSET_MAX,
    ASSETS_LISTED_MAX,
    AssetError,
    find_skill,
    list_assets,
    read_asset,
    script_path,
)
from tests.house.places import write_skill

OPENSEED = load_profile("openseed")
ONLY = "Invalid path: only references/, assets/, scripts/ under skill are allowed."
ESCAPES = "Invalid path: path escapes skill directory."
SCRIPT_NAME = "Invalid script name: use filename only, e.g. compare.py"


@pytest.fixture
def skill(tmp_path: Path) -> Skill:
    """A skill with files of each kind, beside a neighbour and a secret."""
    directory = write_skill(tmp_path / "skills/file-diff")
    for name in ("references/SPEC.md", "assets/a b.md", "scripts/compare.py", "notes/x.md"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(f"text of {name}\n")
    (directory / "references/deep/er").mkdir(parents=True)
    (directory / "references/deep/er/模板.md").write_text("模板\n", encoding="utf-8")
    (directory / "assets/logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    (directory / "references-evil").mkdir()
    (directory / "references-evil/x.md").write_text("evil\n")
    (tmp_path / "secret.txt").write_text("SECRET\n")
    (directory / "scripts/out.py").symlink_to(tmp_path / "secret.txt")
    (directory / "references/out").symlink_to(tmp_path)
    (directory / "references/in.md").symlink_to("SPEC.md")
    write_skill(tmp_path / "skills/file-diff-evil")
    return discover([tmp_path / "skills"], profile="openseed").get("file-diff")


def refused(skill: Skill, relative: str) -> str:
    with pytest.raises(AssetError) as caught:
        read_asset(skill, relative, OPENSEED)
    return str(caught.value)


@pytest.mark.req("S003-3", "S003-49", "S003-50", "S003-58")
@pytest.mark.parametrize(
    ("relative", "text"),
    [
        ("references/SPEC.md", "text of references/SPEC.md\n"),
        ("assets/a b.md", "text of assets/a b.md\n"),
        ("scripts/compare.py", "text of scripts/compare.py\n"),
        ("references/deep/er/模板.md", "模板\n"),
        ("./references//SPEC.md", "text of references/SPEC.md\n"),
        ("references\\deep\\er\\模板.md", "模板\n"),
        ("references/in.md", "text of references/SPEC.md\n"),
    ],
)
def test_files_of_the_three_directories_are_read(skill: Skill, relative: str, text: str) -> None:
    assert read_asset(skill, relative, OPENSEED) == text


@pytest.mark.req("S003-51", "S003-52", "S003-53", "S003-58", "S003-60", "S003-61")
@pytest.mark.parametrize(
    "relative",
    [
        "SKILL.md",
        "notes/x.md",
        "references-evil/x.md",
        "references/../SKILL.md",
        "references/../../file-diff-evil/SKILL.md",
        "../file-diff-evil/SKILL.md",
        "..\\..\\secret.txt",
        "references\\..\\..\\..\\secret.txt",
        "..",
        "/etc/passwd",
        "C:/Windows/x",
        "C:\\Windows\\x",
        "\\\\server\\share\\x",
        "//server/share/x",
        "",
        ".",
        "references/\0",
        "Références/x",
    ],
)
def test_every_other_path_is_refused_in_the_published_words(skill: Skill, relative: str) -> None:
    assert refused(skill, relative) == ONLY


@pytest.mark.req("S003-54")
def test_a_link_out_of_the_skill_is_refused(skill: Skill) -> None:
    # What a check of the text alone would have given away:
    assert (skill.directory / "references/out/secret.txt").read_text() == "SECRET\n"
    assert refused(skill, "references/out/secret.txt") == ESCAPES
    assert refused(skill, "scripts/out.py") == ESCAPES


def test_a_skill_that_became_a_link_out_of_its_root_gives_nothing(
    skill: Skill, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "references").mkdir(parents=True)
    (other / "references/x.md").write_text("SECRET\n")
    skill.directory.rename(tmp_path / "gone")
    skill.directory.symlink_to(other)
    assert refused(skill, "references/x.md") == ESCAPES
    (other / "scripts").mkdir()
    (other / "scripts/x.py").write_text("")
    with pytest.raises(AssetError, match=ESCAPES):
        script_path(skill, "x.py", OPENSEED)


@pytest.mark.req("S003-55", "S003-57", "S003-60")
def test_what_is_missing_or_a_directory_is_said(skill: Skill) -> None:
    assert refused(skill, "references/no.md") == "未找到文件: references/no.md"
    for directory in ("references/deep", "references/", "references"):
        assert refused(skill, directory) == (
            f"`{directory}` of skill `file-diff` is not a regular file"
        )
    os.mkfifo(skill.directory / "assets/pipe")
    assert (
        refused(skill, "assets/pipe") == "`assets/pipe` of skill `file-diff` is not a regular file"
    )


@pytest.mark.req("S003-59")
def test_what_is_not_text_is_said(skill: Skill) -> None:
    assert refused(skill, "assets/logo.png") == "Cannot read as text: byte 0 is not UTF-8"
    (skill.directory / "assets/nul").write_bytes(b"a\0b")
    assert refused(skill, "assets/nul") == "Cannot read as text: it contains a NUL"


def test_a_file_that_is_too_large_is_refused(skill: Skill) -> None:
    with (skill.directory / "assets/large").open("wb") as file:
        file.truncate(ASSET_MAX + 1)
    assert refused(skill, "assets/large") == f"`assets/large` is larger than {ASSET_MAX} bytes"


def test_our_own_profile_reads_any_file_of_a_skill_and_words_it_itself(skill: Skill) -> None:
    assert read_asset(skill, "notes/x.md", DEFAULT_PROFILE) == "text of notes/x.md\n"
    with pytest.raises(AssetError, match=r"`\.\./x`: files of a skill lie in its directory"):
        read_asset(skill, "../x", DEFAULT_PROFILE)
    profile = replace(DEFAULT_PROFILE, asset_directories=("notes",))
    assert read_asset(skill, "notes/x.md", profile) == "text of notes/x.md\n"
    for relative in ("references/SPEC.md", "SKILL.md"):
        with pytest.raises(AssetError, match="files of a skill lie in notes/"):
            read_asset(skill, relative, profile)


@pytest.mark.req("S003-63", "S003-69")
@pytest.mark.parametrize("name", ["compare.py", "two words.py", "比对.py", " compare.py "])
def test_a_script_has_its_absolute_path(skill: Skill, name: str) -> None:
    (skill.directory / "scripts" / name.strip()).write_text("print(1)\n", encoding="utf-8")
    path = script_path(skill, name, OPENSEED)
    assert path == skill.directory / "scripts" / name.strip()
    assert path.is_absolute()


@pytest.mark.req("S003-64", "S003-65", "S003-66")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no.py", "未找到脚本: no.py"),
        ("../SKILL.md", SCRIPT_NAME),
        ("..", SCRIPT_NAME),
        ("", SCRIPT_NAME),
        ("deep/x.py", SCRIPT_NAME),
        ("deep\\x.py", SCRIPT_NAME),
        ("/bin/sh", SCRIPT_NAME),
        ("C:x.py", SCRIPT_NAME),
        ("a\0b", SCRIPT_NAME),
        ("out.py", ESCAPES),
    ],
)
def test_what_is_no_script_of_the_skill_is_refused(skill: Skill, name: str, words: str) -> None:
    with pytest.raises(AssetError) as caught:
        script_path(skill, name, OPENSEED)
    assert str(caught.value) == words


@pytest.mark.req("S003-70", "S003-71", "S003-72", "S003-74")
def test_the_listing_has_the_readable_files_and_each_can_be_read(skill: Skill) -> None:
    (skill.directory / "assets/br\neak.md").write_text("x")
    listed = list_assets(skill, OPENSEED)
    assert listed == (
        "assets/a b.md",
        "references/SPEC.md",
        "references/deep/er/模板.md",
        "scripts/compare.py",
    )
    for relative in listed:
        assert read_asset(skill, relative, OPENSEED)


@pytest.mark.slow
def test_the_listing_has_a_bound(skill: Skill) -> None:
    for number in range(ASSETS_LISTED_MAX + 5):
        (skill.directory / f"assets/{number:04}.md").write_text("")
    assert len(list_assets(skill, OPENSEED)) == ASSETS_LISTED_MAX


def test_a_directory_that_is_a_link_is_not_listed(skill: Skill, tmp_path: Path) -> None:
    (skill.directory / "assets").rename(tmp_path / "moved")
    (skill.directory / "assets").symlink_to(tmp_path / "moved")
    assert not any(name.startswith("assets/") for name in list_assets(skill, OPENSEED))


@pytest.mark.req("S003-27", "S003-29", "S003-32", "S003-33", "S003-56", "S003-62")
def test_a_skill_is_found_by_its_whole_name_in_any_case(tmp_path: Path) -> None:
    write_skill(tmp_path / "data-analysis")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/SKILL.md").write_text("no frontmatter\n")
    index = discover([tmp_path], profile="openseed")
    for name in ("data-analysis", "Data-Analysis", " data-analysis "):
        assert find_skill(index, name, OPENSEED.messages).name == "data-analysis"
    for name in ("data", "data-analysi", "../data-analysis", "", "/", "data-analysis/"):
        with pytest.raises(AssetError) as caught:
            find_skill(index, name, OPENSEED.messages)
        assert (caught.value.code, str(caught.value)) == ("skill-unknown", f"未找到技能: {name}")
    with pytest.raises(AssetError) as invalid:
        find_skill(index, "Broken", OPENSEED.messages)
    assert invalid.value.code == "skill-invalid"
    assert str(invalid.value).startswith("the file of skill `Broken` cannot be used: ")


@pytest.mark.req("S003-34")
def test_of_two_names_that_differ_in_case_the_exact_one_is_meant(tmp_path: Path) -> None:
    for name in ("Data", "data"):
        write_skill(tmp_path / name)
    index = discover([tmp_path])
    for name in ("Data", "data"):
        assert find_skill(index, name, {}).name == name
    with pytest.raises(AssetError) as caught:
        find_skill(index, "DATA", {})
    assert caught.value.code == "skill-ambiguous"


def test_r7_of_many_skills_the_nearest_are_named_to_somebody_who_asked_for_another(
    skill: Skill,
) -> None:
    names = [f"skill-{number:03}" for number in range(500)]
    index = SkillIndex(replace(skill, name=name) for name in (*names, "pdf-form", "pdf-merge"))
    said = {}
    for wanted in ("pdf-fomr", "NONE"):
        with pytest.raises(AssetError) as caught:
            find_skill(index, wanted, {})
        said[wanted] = str(caught.value)
    few = "skill-000, skill-001, skill-002"
    near = f"pdf-form, pdf-merge, {few}"
    assert said["pdf-fomr"] == f"no skill `pdf-fomr`; there are: {near}, and 497 more"
    first = f"{few}, skill-003, skill-004"
    assert said["NONE"] == f"no skill `NONE`; there are: {first}, and 497 more"
    with pytest.raises(AssetError, match=r"there are: skill-000, .*, skill-019$"):
        find_skill(SkillIndex(replace(skill, name=name) for name in names[:20]), "NONE", {})
