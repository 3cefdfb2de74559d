"""What `doctor --fix` renames, moves and deletes, and where it keeps off."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from skillhouse.clients import ClientReport, Fix, LensState, apply_fix, compare, proposed_fixes
from skillhouse.clients.config_file import ConfigFileError
from skillhouse.house.trash import Trash
from skillhouse.skill import load_profile
from tests.house.places import write_skill


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path


def see(base: Path, *names: str) -> ClientReport:
    profiles = [load_profile(name) for name in names]
    return compare(start=base / "project", home=base / "home", environment={}, profiles=profiles)


def put(base: Path, place: str, name: str, description: str = "Does.") -> Path:
    directory = base / place
    directory.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: {description}\n---\nBody.\n"
    (directory / "SKILL.md").write_text(text)
    return directory


def places(base: Path, *names: str) -> list[Fix]:
    """Return the proposals that are no links."""
    return [fix for fix in proposed_fixes(see(base, *names)) if not fix.target or fix.discarded]


def make(base: Path, fixes: Iterable[Fix]) -> Trash:
    trash = Trash(base / "trash")
    for fix in fixes:
        apply_fix(fix, discard=lambda path, skill: trash.put(path, skill, enabled=True))
    return trash


def files(base: Path) -> list[str]:
    return sorted(str(file.relative_to(base)) for file in base.glob("[hp]*/**/SKILL.md"))


def test_a_directory_gets_the_name_of_its_skill(base: Path) -> None:
    put(base, "home/.roo/skills/notes_old", "notes")
    (fix,) = places(base, "roo")
    assert fix.difference == ("move ~/.roo/skills/notes_old", "  to ~/.roo/skills/notes")
    make(base, [fix])
    assert files(base) == ["home/.roo/skills/notes/SKILL.md"]
    (row,) = see(base, "roo").skills
    assert row.verdicts[0].state is LensState.SEEN


def test_a_name_that_is_none_becomes_that_of_the_directory(base: Path) -> None:
    place = put(base, "home/.cline/skills/notes", "My Notes")
    (fix,) = places(base, "cline")
    assert (fix.codes, fix.moved) == (("name-mismatch",), "")
    assert "-name: My Notes" in fix.difference
    make(base, [fix])
    assert (place / "SKILL.md").read_text().startswith("---\nname: notes\ndescription: Does.\n")
    assert places(base, "cline") == []


@pytest.mark.parametrize(
    ("place", "name", "goes", "code"),
    [
        (".claude/skills/group/notes", "notes", "notes", "too-deep"),
        (".claude/skills", "notes", "notes", "root-file"),
        (".claude/skills/a/b/c d", "notes", "notes", "too-deep"),
    ],
)
def test_a_skill_that_is_not_found_goes_where_it_is(
    base: Path, place: str, name: str, goes: str, code: str
) -> None:
    directory = put(base, f"project/{place}", name)
    (directory / "run.sh").write_text("echo\n")
    (fix,) = places(base, "claude-code")
    assert fix.codes == (code,)
    make(base, [fix])
    assert files(base) == [f"project/.claude/skills/{goes}/SKILL.md"]
    (row,) = see(base, "claude-code").skills
    assert row.verdicts[0].state is LensState.SEEN
    # What is beside a SKILL.md in the root may be of other skills.
    assert (directory / "run.sh").exists() == (code == "root-file")


def test_a_directory_with_a_dot_is_renamed(base: Path) -> None:
    put(base, "project/.agents/skills/.notes", "notes")
    (fix,) = places(base, "gemini-cli")
    make(base, [fix])
    assert files(base) == ["project/.agents/skills/notes/SKILL.md"]


@pytest.mark.slow
def test_of_equal_copies_one_stays_and_the_others_are_links(base: Path) -> None:
    for place in ("home/.agents/skills/notes", "home/.claude/skills/notes"):
        write_skill(base / place, "Takes notes.")
    (fix,) = places(base, "codex", "gemini-cli", "claude-code")
    assert fix.difference == (
        "delete ~/.claude/skills/notes",
        "  equal to ~/.agents/skills/notes",
        "  with a link to ../../.agents/skills/notes in its place",
    )
    trash = make(base, [fix])
    link = base / "home/.claude/skills/notes"
    assert (link.is_symlink(), link.resolve()) == (True, base / "home/.agents/skills/notes")
    (gone,) = trash.deleted()
    assert (gone.id, gone.path) == ("user:notes", str(link))
    states = [v.state for row in see(base, "codex", "claude-code").skills for v in row.verdicts]
    assert states == ["seen", "seen"]
    link.unlink()
    trash.restore(gone)
    assert (link / "SKILL.md").read_text().count("Takes notes.") == 1


def test_a_copy_that_no_client_uses_goes_to_the_trash(base: Path) -> None:
    put(base, "project/.agents/skills/notes", "notes", "One.")
    put(base, "home/.agents/skills/notes", "notes", "Two.")
    (fix,) = places(base, "gemini-cli")
    assert fix.difference == ("delete ~/.agents/skills/notes", "  no client uses it")
    trash = make(base, [fix])
    assert files(base) == ["project/.agents/skills/notes/SKILL.md"]
    assert [gone.id for gone in trash.deleted()] == ["user:notes"]


def test_a_copy_that_a_client_uses_is_renamed(base: Path) -> None:
    put(base, "home/.agents/skills/notes", "notes", "One.")
    put(base, "home/.claude/skills/notes", "notes", "Two.")
    (fix,) = places(base, "codex", "gemini-cli", "claude-code")
    assert "+name: notes-2" in fix.difference
    make(base, [fix])
    assert files(base) == [
        "home/.agents/skills/notes/SKILL.md",
        "home/.claude/skills/notes-2/SKILL.md",
    ]
    assert places(base, "codex", "gemini-cli", "claude-code") == []


def test_what_differs_below_the_skill_file_is_no_equal_copy(base: Path) -> None:
    for place, script in (("home/.agents/skills/notes", "a"), ("home/.claude/skills/notes", "b")):
        write_skill(base / place, "Takes notes.")
        (base / place / "run.sh").write_text(script)
    (fix,) = places(base, "codex", "claude-code")
    assert (fix.discarded, fix.after != "") == ("", True)


def test_a_skill_that_holds_others_is_neither_moved_nor_deleted(base: Path) -> None:
    put(base, "home/.roo/skills/notes_old", "notes")
    put(base, "home/.roo/skills/notes_old/inner", "inner")
    (fix,) = places(base, "roo")
    assert fix.difference == (
        "move ~/.roo/skills/notes_old/inner",
        "  to ~/.roo/skills/inner",
    )


def test_no_link_is_proposed_to_where_a_skill_is_moved_from(base: Path) -> None:
    put(base, "project/.claude/skills/web/styles", "styles")
    fixes = proposed_fixes(see(base, "claude-code", "codex"))
    assert [fix.codes for fix in fixes] == [("too-deep",)]
    make(base, fixes)
    (link,) = proposed_fixes(see(base, "claude-code", "codex"))
    make(base, [link])
    assert (base / "project/.agents/skills/styles/SKILL.md").is_file()


def test_nothing_takes_the_place_of_something(base: Path) -> None:
    put(base, "home/.roo/skills/Old_Notes", "notes")
    (base / "home/.roo/skills/notes").mkdir()
    assert places(base, "roo") == []
    (base / "home/.roo/skills/notes").rmdir()
    (fix,) = places(base, "roo")
    (base / "home/.roo/skills/notes").mkdir()
    with pytest.raises(ConfigFileError):
        make(base, [fix])
    assert files(base) == ["home/.roo/skills/Old_Notes/SKILL.md"]
