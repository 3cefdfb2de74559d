"""Tests of house/management.py."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from skillhouse.audit import AuditError
from skillhouse.floor import PathError, SkillError, UnknownSkillError, structs
from skillhouse.house import Skillhouse, configured
from skillhouse.house.management import SkillFile
from tests.house.desktop import make_desktop
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.under("claude-desktop")


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    places = make_places(tmp_path)
    write_skill(places.home / ".claude/skills/notes", body="Write notes.\n")
    return Skillhouse(configured(places))


def root(house: Skillhouse) -> Path:
    return house.config.places.home / ".agents/skills"


def own(house: Skillhouse) -> Path:
    """Return where the design has the user's skills."""
    return house.config.places.home / ".claude/skills"


@pytest.mark.req("S004-74", "S004-76")
@pytest.mark.parametrize("description", ["Plain.", "With: a colon", "Two\nlines", "说“你好”：1"])
def test_a_created_skill_loads_back_equal(house: Skillhouse, description: str) -> None:
    made = house.management.create("my-skill", description, "# Steps\n\n1. Go.")
    assert made.path == str(own(house) / "my-skill/SKILL.md")
    assert (made.id, made.description, made.instructions) == (
        "user:my-skill",
        description,
        "# Steps\n\n1. Go.",
    )
    again = Skillhouse(house.config).management.get("my-skill")
    assert again == made
    assert house.load("my-skill").body == "# Steps\n\n1. Go."


@pytest.mark.req("S004-75")
def test_a_skill_of_the_project_is_made_in_the_project(house: Skillhouse) -> None:
    house.project_trust.trust()
    made = house.management.create("deploy", "Deploys.", "Go.", scope="project")
    assert made.path == str(house.services.project / ".claude/skills/deploy/SKILL.md")
    assert made.id == "project:deploy"


def test_in_a_project_that_is_not_trusted_a_skill_is_made_and_not_read(house: Skillhouse) -> None:
    made = house.management.create("deploy", "Deploys.", "Go.", scope="project")
    assert Path(made.path).read_text().startswith("---\nname: deploy\n")
    assert "deploy" not in [found.name for found in house.management.get_all()]
    house.project_trust.trust()
    assert made == house.management.get("deploy")


@pytest.mark.req("S004-77")
def test_nothing_is_ever_overwritten(house: Skillhouse) -> None:
    house.management.create("mine", "First.", "One.")
    with pytest.raises(SkillError) as caught:
        house.management.create("mine", "Second.", "Two.")
    assert caught.value.code == "skill-exists"
    assert "First." in (own(house) / "mine/SKILL.md").read_text()


@pytest.mark.req("S004-78")
@pytest.mark.parametrize("name", ["../up", "a/b", "/tmp/x", "Bad", "a b", "", "..", "a\0b"])
def test_a_bad_name_makes_nothing(house: Skillhouse, name: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SkillError):
        house.management.create(name, "Fine.", "Body.")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_scope_without_a_place_of_its_own_is_an_error(house: Skillhouse) -> None:
    with pytest.raises(SkillError) as caught:
        house.management.create("x", "Fine.", "Body.", scope="builtin-extra")
    assert caught.value.code == "no-place"


@pytest.mark.under("default")
@pytest.mark.req("S004-79")
def test_deleting_removes_the_directory_and_updates_the_list(house: Skillhouse) -> None:
    directory = house.config.places.home / ".claude/skills/notes"
    (directory / "deep").mkdir()
    (directory / "deep/file.txt").write_text("x")
    assert house.management.delete("notes") == directory
    assert not directory.exists()
    assert "notes" not in [found.name for found in house.management.get_all()]
    with pytest.raises(UnknownSkillError):
        house.management.delete("notes")
    with pytest.raises(SkillError, match="only skills of scope user"):
        house.management.delete("builtin:weather")
    assert house.load("weather").body


@pytest.mark.req("S004-80")
@pytest.mark.parametrize(
    "reference", ["user:../../victim", "user:..", "../victim", "user:notes/.."]
)
def test_trap_13_an_id_is_looked_up_and_never_made_into_a_path(
    house: Skillhouse, reference: str, tmp_path: Path
) -> None:
    victim = write_skill(house.config.places.home / "victim")
    with pytest.raises(UnknownSkillError):
        house.management.delete(reference)
    assert (victim / "SKILL.md").is_file()


@pytest.mark.under("default")
def test_a_skill_behind_a_link_is_not_deleted_with_what_the_link_leads_to(
    house: Skillhouse,
) -> None:
    skills = house.config.places.home / ".claude/skills"
    real = write_skill(skills / "group/linked-to")
    (skills / "a-link").symlink_to(real)
    house.refresh()
    (house.management.get("linked-to"))
    entry = next(
        found for found in house.management.get_all() if found.directory_path.endswith("linked-to")
    )
    house.management.delete(entry.id)
    assert not real.exists()
    assert (skills / "a-link").is_symlink()


def test_a_skill_that_holds_others_is_not_deleted_with_them(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    write_skill(places.home / ".claude/skills/outer")
    write_skill(places.home / ".claude/skills/outer/inner")
    (tmp_path / "home/.config/skillhouse/profiles").mkdir(parents=True)
    (tmp_path / "home/.config/skillhouse/profiles/deep.toml").write_text("nested_skills = true\n")
    house = Skillhouse(configured(places), profile="deep")
    with pytest.raises(SkillError, match="user:inner"):
        house.management.delete("outer")
    assert (places.home / ".claude/skills/outer/inner/SKILL.md").is_file()


@pytest.mark.req("S004-26", "S004-72")
def test_a_toggle_takes_effect_and_outlives_the_process(house: Skillhouse) -> None:
    assert house.management.get("notes").enabled
    assert not house.management.set_enabled("notes", enabled=False).enabled
    assert "notes" not in house.catalog().text
    assert not any(hit.name == "notes" for hit in house.search("notes"))
    later = Skillhouse(house.config)
    assert "notes" not in later.catalog().text
    later.management.set_enabled("notes", enabled=True)
    assert "notes" in later.catalog().text
    with pytest.raises(UnknownSkillError):
        later.management.set_enabled("nothing", enabled=False)


def test_a_disabled_skill_cannot_be_loaded_by_an_agent(house: Skillhouse) -> None:
    house.management.set_enabled("notes", enabled=False)
    result = house.call_sync("skill", {"name": "notes"})
    house.close()
    assert result.is_error
    assert "Write notes." not in result.content


@pytest.mark.req("S004-84")
def test_with_skills_switched_off_none_is_listed_found_or_loaded(house: Skillhouse) -> None:
    house.management.set_all_enabled(enabled=False)
    assert house.catalog().text == ""
    assert house.search("notes") == []
    assert house.management.get_enabled() == ()
    assert not any(found.enabled for found in house.management.get_all())
    house.management.set_all_enabled(enabled=True)
    assert "notes" in house.catalog().text


@pytest.mark.req("S004-71", "S004-73")
def test_a_refresh_notices_what_is_new_removed_and_changed(house: Skillhouse) -> None:
    assert house.index.skills
    skills = house.config.places.home / ".claude/skills"
    write_skill(skills / "second")
    assert "second" not in [found.name for found in house.management.get_all()]
    assert {"second", "notes"} <= {found.name for found in house.management.refresh()}
    write_skill(skills / "second", description="Changed.")
    (skills / "notes/SKILL.md").unlink()
    names = {found.name: found.description for found in house.management.refresh()}
    assert names["second"] == "Changed."
    assert "notes" not in names
    house.management.set_enabled("second", enabled=False)
    assert "second" not in [found.name for found in house.management.get_enabled()]


@pytest.mark.req("S004-11", "S004-12", "S004-29", "S004-82", "S004-85")
def test_a_definition_has_the_published_fields_and_typed_files(house: Skillhouse) -> None:
    directory = write_skill(own(house) / "my-skill", description="Helps.")
    (directory / "helper.py").write_text("print()\n")
    (directory / "templates").mkdir()
    (directory / "templates/template.txt").write_text("x")
    (directory / "logo.png").write_bytes(b"\x89PNG")
    text = (directory / "SKILL.md").read_text()
    (directory / "SKILL.md").write_text(
        text.replace("---\nBody", "allowed-tools: [Read, Write, Bash]\n---\nBody")
    )
    house.refresh()
    found = house.management.get("my-skill")
    # The ten that the design prints, and no eleventh; of a file three.
    assert [*structs.field_names(found)] == [
        "id", "name", "description", "source", "path", "directory_path", "enabled",
        "instructions", "allowed_tools", "files",
    ]  # fmt: skip
    assert structs.field_names(SkillFile) == ("name", "path", "type")
    assert (found.source, found.path) == ("user", str(directory / "SKILL.md"))
    assert found.directory_path == str(directory)
    assert found.instructions == "Body."
    assert found.allowed_tools == ("Read", "Write", "Bash")
    assert [(file.name, file.path, file.type) for file in found.files] == [
        ("helper.py", str(directory / "helper.py"), "script"),
        ("logo.png", str(directory / "logo.png"), "other"),
        ("templates/template.txt", str(directory / "templates/template.txt"), "template"),
    ]


@pytest.mark.req("S004-61", "S004-62", "S004-63", "S004-66")
def test_files_are_read_beneath_the_skill_and_nowhere_else(house: Skillhouse) -> None:
    directory = house.config.places.home / ".claude/skills/notes"
    (directory / "sub").mkdir()
    (directory / "sub/a.txt").write_text("inside")
    assert house.management.read_file("notes", "sub/a.txt") == "inside"
    with pytest.raises(UnknownSkillError):
        house.management.read_file("nothing", "sub/a.txt")
    for relative in ("../notes/SKILL.md", "/etc/passwd", "sub/../../x", "C:\\x", "a\0"):
        with pytest.raises(PathError):
            house.management.read_file("notes", relative)
    (directory / "blob").write_bytes(b"\xff\xfe")
    with pytest.raises(SkillError, match="UTF-8"):
        house.management.read_file("notes", "blob")


@pytest.mark.req("S004-64", "S004-65")
def test_trap_11_and_12_siblings_that_start_alike_and_links_out_are_refused(
    house: Skillhouse,
) -> None:
    skills = house.config.places.home / ".claude/skills"
    sibling = write_skill(skills / "notes-evil", body="secret\n")
    with pytest.raises(PathError):
        house.management.read_file("notes", "../notes-evil/SKILL.md")
    (skills / "notes/link").symlink_to(sibling / "SKILL.md")
    with pytest.raises(PathError):
        house.management.read_file("notes", "link")


@pytest.mark.req("S004-68")
def test_preparing_makes_the_users_directories(house: Skillhouse) -> None:
    shutil.rmtree(own(house))
    made = house.management.prepare()
    assert own(house) in made
    assert all(path.is_dir() for path in made)
    assert house.management.prepare() == ()


@pytest.mark.req("S004-70")
def test_another_working_directory_gives_its_own_enabled_skills(house: Skillhouse) -> None:
    below = house.services.project / "src"
    below.mkdir()
    write_skill(below / ".claude/skills/near")
    house.project_trust.trust()
    house.management.set_enabled("notes", enabled=False)
    names = [found.name for found in Skillhouse(house.config.at(below)).management.get_enabled()]
    assert "near" in names
    assert "notes" not in names
    assert "near" not in [found.name for found in house.management.get_all()]


def test_opening_runs_the_file_manager_with_the_directory(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SkillError, match="open it yourself"):
        house.management.open_directory("notes")
    opened = make_desktop(tmp_path, monkeypatch)
    notes = house.config.places.home / ".claude/skills/notes"
    assert house.management.open_directory("notes") == notes
    assert opened.read_text() == f"{notes}\n"
    assert house.management.open_directory() == own(house)
    assert opened.read_text() == f"{own(house)}\n"
    # Nothing of a program that ended stays in the table of processes.
    for thread in threading.enumerate():
        if thread.name == "desktop":
            thread.join(10)
            assert not thread.is_alive()


def test_changes_are_in_the_audit_log_and_none_happens_without_it(house: Skillhouse) -> None:
    house.management.create("one", "First.", "Body.")
    house.management.set_enabled("one", enabled=False)
    house.management.delete("one")
    text = (house.config.state_directory / "audit.jsonl").read_text()
    for tool in ("manage:create", "manage:disable", "manage:delete"):
        assert text.count(tool) == 2
    house.audit_log.close()
    (house.config.state_directory / "audit.jsonl").unlink()
    (house.config.state_directory / "audit.jsonl").mkdir()
    with pytest.raises(AuditError):
        house.management.create("two", "Second.", "Body.")
    assert not (root(house) / "two").exists()
