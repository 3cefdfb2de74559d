"""Attacks on the moves and deletes of `doctor --fix`, between the question and the change."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.clients import Fix, apply_fix, compare, proposed_fixes
from skillhouse.clients.config_file import ConfigFileError
from skillhouse.house.trash import Trash
from skillhouse.skill import load_profile
from tests.house.places import write_skill


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path


def proposals(base: Path, *names: str) -> list[Fix]:
    profiles = [load_profile(name) for name in names]
    lens = compare(start=base / "project", home=base / "home", environment={}, profiles=profiles)
    return [fix for fix in proposed_fixes(lens) if fix.moved or fix.discarded]


def refused(base: Path, fix: Fix) -> None:
    trash = Trash(base / "trash")
    with pytest.raises(ConfigFileError):
        apply_fix(fix, discard=lambda path, skill: trash.put(path, skill, enabled=True))
    assert trash.deleted() == ()


def two_copies(base: Path) -> Fix:
    write_skill(base / "project/.agents/skills/notes", "Takes notes.")
    write_skill(base / "project/.claude/skills/notes", "Takes notes.")
    (fix,) = proposals(base, "codex", "claude-code", "gemini-cli")
    return fix


def test_a_copy_that_was_changed_after_the_question_is_not_deleted(base: Path) -> None:
    fix = two_copies(base)
    (Path(fix.path) / "mine.md").write_text("What I wrote meanwhile.\n")
    refused(base, fix)
    assert (Path(fix.path) / "mine.md").exists()


def test_nothing_is_deleted_once_the_kept_copy_has_changed(base: Path) -> None:
    fix = two_copies(base)
    (Path(fix.kept) / "SKILL.md").write_text("---\nname: notes\ndescription: Evil.\n---\n")
    refused(base, fix)
    assert "Takes notes." in (Path(fix.path) / "SKILL.md").read_text()


def test_a_link_in_the_place_of_the_copy_deletes_nothing_elsewhere(base: Path) -> None:
    fix = two_copies(base)
    precious = write_skill(base / "home/precious", "Takes notes.")
    Path(fix.path).rename(base / "project/aside")
    Path(fix.path).symlink_to(precious)
    refused(base, fix)
    assert (precious / "SKILL.md").exists()


def test_a_folder_that_became_a_link_is_not_moved_into(base: Path) -> None:
    """The project's folder of skills is swapped for a link out of it."""
    write_skill(base / "project/.claude/skills/group/notes", "Takes notes.")
    (fix,) = proposals(base, "claude-code")
    outside = base / "outside"
    (base / "project/.claude/skills").rename(outside)
    (base / "project/.claude/skills").symlink_to(outside)
    refused(base, fix)
    assert (outside / "group/notes/SKILL.md").exists()
    assert not (outside / "notes").exists()


def test_a_name_of_a_skill_leads_nowhere_else(base: Path) -> None:
    for number, name in enumerate(("../../evil", "/etc/evil", "..", "a/b", "x\\ny", "-rf")):
        place = base / f"home/.roo/skills/s{number}_"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(f'---\nname: "{name}"\ndescription: Does.\n---\n')
    assert proposals(base, "roo", "cline", "goose") == []


def test_what_a_link_leads_to_outside_is_not_proposed(base: Path) -> None:
    outside = write_skill(base / "outside/notes_", "Takes notes.")
    (base / "home/.roo/skills").mkdir(parents=True)
    (base / "home/.roo/skills/notes_").symlink_to(outside)
    assert proposals(base, "roo") == []
