"""Tests of manage/skills_manager.py: the published functions over one directory of skills."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.manage import SkillsManager
from skillhouse.tools import AssetError
from tests.house.places import write_skill
from tests.profiles.houses import house_under, opened_files, rule

UNKNOWN = "未找到技能: {}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with two skills and with what is none."""
    root = tmp_path / "documents/skills"
    diff = write_skill(root / "file-diff", "Compares two files. 比对文件", "Body words: zebra.\n")
    (diff / "scripts").mkdir()
    (diff / "scripts/compare.py").write_text("print(1)\n")
    (diff / "references").mkdir()
    (diff / "references/SPEC.md").write_text("spec\n")
    write_skill(root / "slides", "Makes slides.")
    (root / "README.md").write_text("not a skill\n")
    (root / "empty").mkdir()
    (root / "directory/SKILL.md").mkdir(parents=True)
    (root / "broken").mkdir()
    (root / "broken/SKILL.md").write_text("---\nname: broken\n---\nNo description.\n")
    write_skill(root / "deep/er")
    return root


@pytest.mark.req("S003-20", "S003-21", "S003-22", "S003-23", "S003-24")
def test_the_names_of_usable_skills_are_listed(root: Path) -> None:
    assert SkillsManager.at(root).list_skills() == ["file-diff", "slides"]


@pytest.mark.req("S003-14", "S003-15")
def test_without_a_directory_the_skills_are_below_document_root(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCUMENT_ROOT", str(root.parent))
    assert SkillsManager().list_skills() == ["file-diff", "slides"]
    monkeypatch.setenv("DOCUMENT_ROOT", str(root.parent / "elsewhere"))
    assert SkillsManager().list_skills() == []
    monkeypatch.delenv("DOCUMENT_ROOT")
    with pytest.raises(ConfigError, match="set DOCUMENT_ROOT"):
        SkillsManager()


@pytest.mark.req("S003-18", "S003-19", "S003-30", "S003-43")
def test_without_a_root_there_is_nothing_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "missing", tmp_path / "file"):
        manager = SkillsManager.at(place)
        assert manager.list_skills() == []
        assert manager.search_skills("anything") == []
        assert manager.get_skill_content("pdf") == UNKNOWN.format("pdf")
        assert manager.list_skill_assets("pdf") == []


@pytest.mark.req("S003-25", "S003-26", "S003-27", "S003-28", "S003-29", "S003-31", "S003-33")
def test_the_whole_file_of_the_skill_of_that_name_is_returned(root: Path) -> None:
    manager = SkillsManager.at(root)
    text = (root / "file-diff/SKILL.md").read_text(encoding="utf-8")
    for name in ("file-diff", "File-Diff", "FILE-DIFF", " file-diff "):
        assert manager.get_skill_content(name) == text
    names = ("file", "file-dif", "file-diff2", "empty", "directory", "../skills/file-diff", "")
    for name in (*names, str(root / "file-diff"), "file-diff/../slides"):
        assert manager.get_skill_content(name) == UNKNOWN.format(name)


@pytest.mark.req("S003-32")
def test_a_skill_whose_frontmatter_is_invalid_says_why_when_it_is_loaded(root: Path) -> None:
    answer = SkillsManager.at(root).get_skill_content("Broken")
    assert answer.startswith("the file of skill `Broken` cannot be used: ")
    assert "description" in answer


def test_a_skill_that_goes_away_meanwhile_says_so(root: Path) -> None:
    index = SkillsManager.at(root)._index()  # noqa: SLF001 - the moment between look and load
    manager = SkillsManager(root, index=lambda: index)
    (root / "slides/SKILL.md").unlink()
    assert "it may have been removed since" in manager.get_skill_content("slides")


@pytest.mark.req("S003-35", "S003-36", "S003-37", "S003-38", "S003-39", "S003-40", "S003-41")
def test_a_search_gives_name_and_description_of_the_best(root: Path) -> None:
    manager = SkillsManager.at(root)
    diff = {"name": "file-diff", "description": "Compares two files. 比对文件"}
    slides = {"name": "slides", "description": "Makes slides."}
    assert manager.search_skills("compare FILES") == [diff]
    assert manager.search_skills("slides files", n=1) in ([diff], [slides])
    assert len(manager.search_skills("slides files", n=100)) == 2
    for n in (0, -3):
        assert manager.search_skills("files", n=n) == []
    for number in range(8):
        write_skill(root / f"forms-{number}", "Fills forms.")
    assert len(manager.search_skills("forms")) == 5


@pytest.mark.req("S003-42", "S003-44", "S003-45", "S003-48")
def test_a_search_has_defined_answers_at_its_edges(root: Path) -> None:
    manager = SkillsManager.at(root)
    assert [hit["name"] for hit in manager.search_skills("比对")] == ["file-diff"]
    assert [hit["name"] for hit in manager.search_skills("MAKES")] == ["slides"]
    for query in ("", " ", "?!", "broken"):
        assert manager.search_skills(query) == []


@pytest.mark.req("S003-46", "S003-47")
def test_a_search_neither_looks_at_bodies_nor_reads_them(root: Path) -> None:
    manager = SkillsManager.at(root)
    assert manager.search_skills("zebra") == []
    body = root / "file-diff/SKILL.md"
    with body.open("a") as file:
        file.write("zebra " * 20_000)
    index = manager._index()  # noqa: SLF001 - so that only the search itself is watched
    held = SkillsManager(root, index=lambda: index)
    with opened_files() as names:
        assert held.search_skills("compares")
    assert not [name for name in names if "SKILL.md" in name]


@pytest.mark.req("S003-49", "S003-55", "S003-56", "S003-62", "S003-63", "S003-64", "S003-67")
def test_files_and_scripts_are_given_or_refused_in_text(root: Path) -> None:
    manager = SkillsManager.at(root)
    assert manager.get_skill_asset("File-Diff", "references/SPEC.md") == "spec\n"
    assert manager.get_skill_asset("pdf", "references/SPEC.md") == UNKNOWN.format("pdf")
    assert manager.get_skill_asset("file-diff", "references/x") == "未找到文件: references/x"
    path = manager.get_skill_script_path("FILE-diff", "compare.py")
    assert path == str(root / "file-diff/scripts/compare.py")
    assert manager.get_skill_script_path("file-diff", "x.py") == "未找到脚本: x.py"
    assert manager.get_skill_script_path("pdf", "x.py") == UNKNOWN.format("pdf")


@pytest.mark.req("S003-70", "S003-73")
def test_the_files_of_an_unknown_skill_are_none_or_an_error_as_the_profile_says(
    root: Path,
) -> None:
    listed = ["references/SPEC.md", "scripts/compare.py"]
    assert SkillsManager.at(root).list_skill_assets("file-diff") == listed
    assert SkillsManager.at(root).list_skill_assets("pdf") == []
    with pytest.raises(AssetError, match="no skill `pdf`"):
        SkillsManager.at(root, profile="default").list_skill_assets("pdf")


@pytest.mark.req("S003-88")
def test_the_root_can_be_made_with_a_readme(tmp_path: Path) -> None:
    manager = SkillsManager.at(tmp_path / "documents/skills")
    assert manager.create_root()
    text = (manager.root / "README.md").read_text()
    for expected in ("SKILL.md", "references/", "scripts/", "assets/", "https://agentskills.io/"):
        assert expected in text
    assert manager.list_skills() == []
    (manager.root / "README.md").write_text("mine\n")
    assert not manager.create_root()
    assert (manager.root / "README.md").read_text() == "mine\n"


def test_a_manager_of_a_house_has_what_its_agent_sees(tmp_path: Path, root: Path) -> None:
    with house_under(tmp_path, "openseed", rule("deny", "slides"), roots=[root]) as house:
        manager = SkillsManager.of(house)
        assert "file-diff" in manager.list_skills()
        assert "slides" not in manager.list_skills()
        assert manager.get_skill_content("slides") == UNKNOWN.format("slides")
        assert manager.get_skill_content("broken") != UNKNOWN.format("broken")
    with house_under(tmp_path, "openseed", rule("deny", "broken"), roots=[root]) as house:
        assert SkillsManager.of(house).get_skill_content("broken") == UNKNOWN.format("broken")
