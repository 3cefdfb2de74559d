"""Attacks on what is kept from an agent: denied skills, other files, places beside a skill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse import floor
from skillhouse.approval import Answer
from skillhouse.discovery import discover
from skillhouse.manage import SkillsManager
from skillhouse.skill import Skill, load_profile
from skillhouse.tools import AssetError, read_asset
from tests.house.places import write_skill
from tests.profiles.houses import rule
from tests.tools.houses import Person, house_at

SECRET = "THE BODY OF THE DENIED SKILL"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a skill that a rule will deny, and one that it will not."""
    project = tmp_path / "project"
    directory = write_skill(project / ".agents/skills/secret", body=f"{SECRET}\n")
    (directory / "references").mkdir()
    (directory / "references/more.md").write_text(f"{SECRET}\n")
    write_skill(project / ".agents/skills/open", body="Fine.\n")
    return project


SECRET_FILE = ".agents/skills/secret/SKILL.md"
WAYS = {
    "absolute": f"{{project}}/{SECRET_FILE}",
    "relative": SECRET_FILE,
    "winding": "./.agents//skills/./secret/SKILL.md",
    "doubled_slash": f"/{{project}}/{SECRET_FILE}",
    "another_file": ".agents/skills/secret/references/more.md",
    "link_to_the_file": "notes.md",
    "link_to_the_directory": "notes/references/more.md",
    "link_from_an_open_skill": ".agents/skills/open/more.md",
}
LINKS = {
    "link_to_the_file": ("notes.md", SECRET_FILE),
    "link_to_the_directory": ("notes", ".agents/skills/secret"),
    "link_from_an_open_skill": (".agents/skills/open/more.md", "../secret/SKILL.md"),
}
"""What some of them make first: a link, and where it leads."""


@pytest.mark.req("S001-43", "S001-72")
@pytest.mark.parametrize("way", WAYS)
def test_a_denied_skill_of_the_project_is_not_read_as_a_file_of_the_workspace(
    tmp_path: Path, project: Path, way: str
) -> None:
    path = WAYS[way].format(project=project)
    if way in LINKS:
        (project / LINKS[way][0]).symlink_to(LINKS[way][1])
    # What a check that the path lies in the workspace gives away:
    naive = project / path
    assert naive.resolve().is_relative_to(project)
    assert SECRET in naive.read_text()
    person = Person([Answer.ALWAYS] * 9)
    with house_at(tmp_path, rule("deny", "secret"), person=person) as house:
        house.project_trust.trust()
        result = house.call_sync("read", {"path": path})
        assert (result.status, SECRET in result.content) == ("denied", False)
        edit = house.call_sync("edit", {"path": path, "old": SECRET, "new": "x"})
        assert edit.status == "denied"
        assert person.asked == []
        house.call_sync("skill", {"name": "open"})
        assert house.call_sync("read", {"path": path}).status == "denied"
        assert house.call_sync("read", {"path": ".agents/skills/open/SKILL.md"}).status == "ok"


def test_another_name_of_a_denied_skills_file_is_asked_about(tmp_path: Path, project: Path) -> None:
    os.link(project / SECRET_FILE, project / "hard.md")
    with house_at(tmp_path, rule("deny", "secret")) as house:
        house.project_trust.trust()
        result = house.call_sync("read", {"path": "hard.md"})
        assert (result.status, SECRET in result.content) == ("denied", False)


def test_a_denied_skills_directory_is_neither_listed_nor_shown(
    tmp_path: Path, project: Path
) -> None:
    (project / "link").symlink_to(".agents/skills/secret")
    with house_at(tmp_path, rule("deny", "secret")) as house:
        house.project_trust.trust()
        for path in (".agents/skills/secret", ".agents/skills/secret/references", "link"):
            assert house.call_sync("list", {"path": path}).status == "denied"
        assert house.call_sync("list", {"path": ".agents/skills"}).content == "open/"


def test_a_shadowed_skill_of_a_denied_name_is_kept_too(tmp_path: Path, project: Path) -> None:
    write_skill(project / ".claude/skills/secret", body=f"{SECRET}\n")
    with house_at(tmp_path, rule("deny", "secret")) as house:
        house.project_trust.trust()
        assert [skill.name for skill in house.index.shadowed] == ["secret"]
        path = ".claude/skills/secret/SKILL.md"
        assert house.call_sync("read", {"path": path}).status == "denied"


def test_a_skill_that_is_switched_off_is_kept_too(tmp_path: Path, project: Path) -> None:
    with house_at(tmp_path) as house:
        house.project_trust.trust()
        house.management.set_enabled("project:secret", enabled=False)
        assert house.call_sync("read", {"path": SECRET_FILE}).status == "denied"
        house.management.set_enabled("project:secret", enabled=True)
        assert house.call_sync("read", {"path": SECRET_FILE}).status == "ok"


def test_a_skill_inside_a_denied_one_can_be_seen(tmp_path: Path, project: Path) -> None:
    inner = write_skill(project / ".agents/skills/secret/inner", body="Fine.\n")
    with house_at(tmp_path, rule("deny", "secret"), roots=[inner.parent]) as house:
        house.project_trust.trust()
        assert "inner" in [skill.name for skill in house.view().visible.skills]
        assert house.call_sync("read", {"path": str(inner / "SKILL.md")}).status == "ok"
        path = ".agents/skills/secret/SKILL.md"
        assert house.call_sync("read", {"path": path}).status == "denied"


def test_where_nothing_is_denied_nothing_is_kept(tmp_path: Path, project: Path) -> None:
    with house_at(tmp_path) as house:
        house.project_trust.trust()
        assert house.call_sync("read", {"path": SECRET_FILE}).status == "ok"


@pytest.fixture
def neighbours(tmp_path: Path) -> Skill:
    """A skill, and beside it one whose directory begins alike."""
    root = tmp_path / "skills"
    write_skill(root / "foo")
    evil = write_skill(root / "foo-bar", body=f"{SECRET}\n")
    for skill in ("foo", "foo-bar"):
        for directory in ("scripts", "scripts-evil", "references"):
            (root / skill / directory).mkdir()
            (root / skill / directory / "x.py").write_text(f"# {SECRET}\n")
    (root / "foo/references/up").symlink_to(evil)
    return discover([root], profile="openseed").get("foo")


@pytest.mark.req("S003-54", "S003-61", "S004-64")
@pytest.mark.parametrize(
    "path", ["../foo-bar/references/x.py", "references/up/references/x.py", "scripts-evil/x.py"]
)
def test_trap_11_a_directory_that_begins_alike_is_another_one(neighbours: Skill, path: str) -> None:
    """A test of the beginning of the text takes `foo-bar` for a part of `foo` (004, 003)."""
    target = os.path.realpath(neighbours.directory / path)
    is_alike = target.startswith(str(neighbours.directory)) or path.startswith("scripts")
    assert is_alike
    assert SECRET in Path(target).read_text()
    from_profile = SkillsManager.at(Path(neighbours.root))
    answer = from_profile.get_skill_asset("foo", path)
    assert SECRET not in answer
    assert answer.startswith("Invalid path: ")


@pytest.mark.req("S003-66", "S004-65")
def test_trap_12_a_link_in_scripts_does_not_lead_out(tmp_path: Path, neighbours: Skill) -> None:
    """`root / "scripts" / name` without a look at where it leads is somebody else's file (003)."""
    outside = tmp_path / "outside.sh"
    outside.write_text(SECRET)
    link = neighbours.directory / "scripts/run.sh"
    link.symlink_to(outside)
    assert link.is_file()
    assert SECRET in link.read_text()
    manager = SkillsManager.at(Path(neighbours.root))
    for answer in (
        manager.get_skill_script_path("foo", "run.sh"),
        manager.get_skill_asset("foo", "scripts/run.sh"),
    ):
        assert answer == "Invalid path: path escapes skill directory."
    assert "scripts/run.sh" not in manager.list_skill_assets("foo")
    (neighbours.directory / "scripts/x.py").unlink()
    (neighbours.directory / "scripts").rename(tmp_path / "moved")
    (neighbours.directory / "scripts").symlink_to(tmp_path / "moved")
    assert manager.get_skill_script_path("foo", "run.sh").startswith("Invalid path: ")


def test_a_file_swapped_for_a_link_between_check_and_open_is_not_read(
    neighbours: Skill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The check and the opening are two steps; between them a directory becomes a link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.py").write_text(SECRET)
    references = neighbours.directory / "references"
    honest = floor.read_beneath

    def swapping(base: Path, relative: str, *, max_bytes: int) -> bytes:
        references.rename(tmp_path / "gone")
        references.symlink_to(outside)
        return honest(base, relative, max_bytes=max_bytes)

    monkeypatch.setattr("skillhouse.tools.assets.read_beneath", swapping)
    with pytest.raises(AssetError, match="escapes"):
        read_asset(neighbours, "references/x.py", load_profile("openseed"))
