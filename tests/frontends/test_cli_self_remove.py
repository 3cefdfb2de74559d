"""`self remove` takes back what skillhouse left in clients, in their folders and in its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import write_skill
from tests.registry.sources import make_skill


def files(home: Path) -> list[str]:
    return sorted(
        path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir()
    )


@pytest.fixture
def used(run: Run, place: Path) -> Path:
    """A home in which two clients start skillhouse, and one of them has an export."""
    home = place / "home"
    write_skill(home / ".agents/skills/notes", "Takes notes.")
    (home / ".claude.json").write_text('{"theme": "dark"}\n')
    assert run("mcp", "install", "claude-code", "--tools", "skills")[0] == 0
    assert run("mcp", "install", "codex", "--tools", "skills")[0] == 0
    assert run("export", "notes", "--to", "claude-code", "--link")[0] == 0
    return home


def test_a_dry_run_shows_everything_and_removes_nothing(run: Run, used: Path) -> None:
    before = files(used)
    code, out, err = run("self", "remove", "--dry-run")
    assert code == 0
    # What is read takes a lock of its own.
    assert set(before) <= set(files(used))
    for words in (
        f"entry  {used}/.claude.json  claude-code starts it as `skills`",
        f"entry  {used}/.codex/config.toml  codex starts it as `skills`",
        f"export  {used}/.claude/skills/notes  link of user:notes for claude-code",
        f"folder  {used}/.local/state/skillhouse  the audit log, answers and keys",
    ):
        assert words in out
    assert "`uv tool uninstall skillhouse`" in err


def test_nothing_is_left_but_what_was_there_before(run: Run, used: Path) -> None:
    code, out, err = run("self", "remove", "--yes")
    assert code == 0, err
    assert files(used) == [".agents/skills/notes/SKILL.md", ".claude.json"]
    assert json.loads((used / ".claude.json").read_text()) == {"theme": "dark"}
    assert not (used / ".local/state/skillhouse").exists()
    assert not (used / ".config/skillhouse").exists()
    _, out, _ = run("self", "remove", "--dry-run", "--json")
    assert [one["kind"] for one in json.loads(out)["removed"] if one["kind"] != "folder"] == []


def test_each_is_asked_about(typing, run: Run, used: Path) -> None:
    before = files(used)
    code, _, err = typing("\n".join("n" * 9), "self", "remove")
    assert code == 1
    for kind in ("entry", "export", "folder"):
        assert f"Remove this {kind}?" in err
    assert set(before) <= set(files(used))
    code, _, err = run("self", "remove")
    assert code == 2
    assert "use --yes, or --dry-run to look" in err


def test_the_end_of_the_input_ends_all_questions(typing, used: Path) -> None:
    before = files(used)
    # Ctrl-D on an empty line.
    code, out, err = typing("\x04", "self", "remove")
    assert (code, err.count("Remove this"), out.count("entry  ")) == (1, 1, 1)
    assert "the input ended: this stays, and so does what was not asked about" in err
    assert set(before) <= set(files(used))


def test_what_a_person_changed_and_their_skills_stay(run: Run, place: Path, used: Path) -> None:
    assert run("export", "notes", "--to", "codex", "--own")[0] == 0
    copies = [one for one in used.rglob("notes/SKILL.md") if "codex" in str(one)]
    for copy in copies:
        copy.write_text("Mine.")
    write_skill(used / ".config/skillhouse/skills/own", "Is mine.")
    assert run("install", str(make_skill(place / "two")), "--yes", "--allow-unsigned")[0] == 0
    _, _, err = run("self", "remove", "--yes")
    assert "1 skill of yours are in it; move them away first" in err
    assert "installed skills stay where they are: two" in err
    assert (used / ".config/skillhouse/skills/own/SKILL.md").is_file()
    assert (used / ".agents/skills/two/SKILL.md").is_file()
    assert all(copy.read_text() == "Mine." for copy in copies)


def test_an_entry_of_another_project_is_named(run: Run, place: Path, used: Path) -> None:
    other = place / "other"
    other.mkdir()
    assert (
        run("mcp", "install", "claude-code", "--project", "--tools", "skills", "-C", str(other))[0]
        == 0
    )
    code, out, err = run("self", "remove", "--dry-run", "--json")
    assert code == 0, err
    (found,) = [one for one in json.loads(out)["removed"] if one["status"] == "stays"]
    assert found["path"] == str(other / ".mcp.json")
    assert found["reason"] == "there: `skillhouse mcp uninstall claude-code --project`"


def test_a_folder_that_others_may_use_is_not_removed(run: Run, place: Path) -> None:
    state = place / "home/data"
    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'state_directory = "{state}"\n')
    state.mkdir(mode=0o700)
    (state / "mine").write_text("mine")
    _, _, err = run("self", "remove", "--yes")
    assert (state / "mine").read_text() == "mine"
    assert "its name is not `skillhouse`, so others may use it" in err


def test_a_coding_agent_removes_nothing(
    run: Run, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(used)
    monkeypatch.setenv("CLAUDECODE", "1")
    code, _, err = run("self", "remove", "--yes")
    assert code == 1
    assert "is for a person" in err
    assert set(before) <= set(files(used))
    monkeypatch.delenv("CLAUDECODE")
    shutil.rmtree(used / ".claude")
    assert run("self", "remove", "--yes")[0] == 0
