"""Tests of the verbs that make, switch and delete skills."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import readers_of, write_skill


def test_new_makes_a_skill_that_is_listed_and_valid(run: Run, place: Path) -> None:
    code, out, _ = run("new", "meeting-notes", "--description", 'Writes: "up"\nmeetings')
    path = place / "home/.agents/skills/meeting-notes/SKILL.md"
    assert (code, out) == (0, f"user:meeting-notes is at {path}\n")
    assert run("validate", str(path.parent))[0] == 0
    assert "meeting-notes" in run("list")[1]
    again = run("new", "meeting-notes", "--description", "x")
    assert (again[0], "there is a skill already" in again[2]) == (1, True)


@pytest.mark.slow
def test_the_body_comes_from_a_file_or_from_stdin(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "steps.md").write_text("1. Do it.\n")
    run("new", "one", "--description", "First.", "--body", str(place / "steps.md"))
    assert run("load", "one")[1].strip() == "1. Do it."
    monkeypatch.setattr("sys.stdin", io.StringIO("2. Done.\n"))
    run("new", "two", "--description", "Second.", "--body", "-")
    assert run("load", "two")[1].strip() == "2. Done."
    (place / "bad").write_bytes(b"\xff")
    assert run("new", "three", "--description", "x", "--body", str(place / "bad"))[0] == 2


@pytest.mark.slow
def test_new_in_the_project_says_that_it_is_not_trusted_yet(run: Run, place: Path) -> None:
    code, out, err = run("new", "deploy", "--project", "--description", "Deploys.")
    assert code == 0
    assert str(place / "project/.agents/skills/deploy") in out
    assert "no agent sees it until you run `skillhouse trust`" in err
    run("trust", "--yes")
    _, _, err = run("new", "release", "--project", "--description", "Releases.")
    assert "or loads it without asking, until you run `skillhouse trust`" in err


@pytest.mark.slow
def test_a_disabled_skill_is_not_listed_and_counted(run: Run) -> None:
    assert run("disable", "weather")[1] == "builtin:weather is disabled\n"
    listed, disabled = run("list")[1].split("disabled: 1\n")
    assert "weather" not in listed.replace("wttr", "")
    assert "builtin:weather" in disabled
    assert "`skillhouse enable builtin:weather`" in disabled
    assert "2 skills, 1 disabled" in disabled
    assert json.loads(run("enable", "weather", "--json")[1]) == {
        "id": "builtin:weather",
        "enabled": True,
    }
    assert "weather" in run("list")[1]
    assert run("disable", "--all")[1] == "skills are disabled\n"
    assert "0 skills" in run("list")[1]
    assert "skillhouse enable --all" in run("enable", "weather")[2]
    for arguments in (("disable",), ("disable", "weather", "--all")):
        assert run(*arguments)[0] == 2


def test_delete_asks_and_takes_only_a_yes(run: Run, typing: Run, place: Path) -> None:
    directory = write_skill(place / "home/.claude/skills/notes")
    assert run("delete", "notes")[0] == 2
    code, _, err = typing("no", "delete", "notes")
    assert (code, directory.is_dir()) == (1, True)
    whose = f"It is in a folder that {readers_of('~/.claude/skills')} also read."
    assert f"with 1 file? {whose} (y, n)" in err
    assert typing("y", "delete", "notes")[1] == f"deleted user:notes at {directory}\n"
    assert not directory.exists()
    code, _, err = run("delete", "weather", "--yes")
    assert (code, "only skills of scope user and project" in err) == (1, True)


def test_files_tells_their_types(run: Run, place: Path) -> None:
    directory = write_skill(place / "home/.claude/skills/notes")
    (directory / "run.py").write_text("")
    assert run("files", "notes")[1].split() == ["run.py", "script"]
    assert json.loads(run("files", "notes", "--json")[1])["types"] == {"run.py": "script"}


def test_show_opens_the_directory(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, _, err = run("show", "weather", "--open")
    assert (code, "open it yourself" in err) == (1, True)


def test_new_names_the_clients_that_read_it_and_the_next_step(run: Run, place: Path) -> None:
    _, _, err = run("new", "meeting-notes", "--description", "Writes up meetings.")
    path = place / "home/.agents/skills/meeting-notes"
    assert err == (
        f"also read by {readers_of()}\n"
        f"next: edit {path}/SKILL.md, then `skillhouse validate {path}`\n"
    )


def test_new_asks_for_what_is_missing(run: Run, typing: Run, place: Path) -> None:
    assert run("new")[0] == run("new", "notes")[0] == 2
    code, _, err = typing("notes\nWrites notes.", "new")
    assert code == 0
    assert err.startswith("Name (a-z, 0-9, hyphens): notes\r\nWhat it does")
    text = (place / "home/.agents/skills/notes/SKILL.md").read_text()
    assert "description: Writes notes." in text
    assert typing("", "new")[0] == 2
    code, _, err = typing("My Notes\nmy-notes\nWrites notes.", "new")
    assert (code, err.count("Name (")) == (0, 2)
    assert typing("My Notes\n" * 9, "new")[0] == 2


@pytest.mark.slow
def test_a_delete_is_undone(run: Run, place: Path) -> None:
    directory = write_skill(place / "home/.claude/skills/notes")
    (directory / "run.py").write_text("print(1)")
    run("disable", "notes")
    _, _, err = run("delete", "notes", "--yes")
    assert f"it was in a folder that {readers_of('~/.claude/skills')} also read" in err
    assert "skillhouse delete --undo user:notes" in err
    assert not directory.exists()
    assert json.loads(run("delete", "--list", "--json")[1])["deleted"][0]["path"] == str(directory)
    assert run("delete", "--undo", "other")[0] == 1
    assert run("delete", "--undo")[1] == f"user:notes is back at {directory}\n"
    assert (directory / "run.py").read_text() == "print(1)"
    assert "notes" in run("list")[1].partition("disabled: 1")[2]
    assert run("delete", "--undo")[0] == 1
    assert run("delete")[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_skill_of_the_project_is_deleted_and_put_back(
    run: Run, place: Path, is_trusted: bool
) -> None:
    run("new", "deploy", "--project", "--description", "Deploys.")
    directory = place / "project/.agents/skills/deploy"
    if is_trusted:
        run("trust", "--yes")
    code, out, err = run("delete", "deploy", "--yes")
    assert (code, out) == (0, f"deleted project:deploy at {directory}\n")
    assert err.startswith(
        "it was a skill of this project, which others may share, in a folder that amp, codex, "
    )
    assert not directory.exists()
    assert run("delete", "deploy", "--yes")[0] == 1
    assert run("delete", "--undo", "deploy")[0] == 0
    assert "Deploys." in (directory / "SKILL.md").read_text()


def test_of_one_name_the_id_says_whose_is_deleted(run: Run, place: Path) -> None:
    own = write_skill(place / "home/.agents/skills/deploy")
    theirs = write_skill(place / "project/.agents/skills/deploy")
    assert run("delete", "project:deploy", "--yes")[0] == 0
    assert (own.is_dir(), theirs.exists()) == (True, False)


@pytest.mark.slow
def test_the_trash_is_emptied_after_a_question(run: Run, typing: Run, place: Path) -> None:
    for name in ("notes", "deploy"):
        write_skill(place / f"home/.agents/skills/{name}")
        run("delete", name, "--yes")
    assert run("delete", "--empty")[0] == 2
    assert run("delete", "--empty", "--older", "1", "--yes")[1] == (
        "removed 0 deleted skills for good\n"
    )
    assert run("delete", "--empty", "other", "--yes")[0] == 1
    assert run("delete", "--older", "1")[0] == 2
    code, _, err = typing("n", "delete", "--empty")
    assert (code, "Remove 2 deleted skills for good?" in err) == (1, True)
    assert run("delete", "--empty", "notes", "--yes")[1] == "removed 1 deleted skill for good\n"
    assert json.loads(typing("y", "delete", "--empty", "--json")[1]) == {"removed": ["user:deploy"]}
    assert json.loads(run("delete", "--list", "--json")[1])["total"] == 0
    assert list((place / "home/.local/state/skillhouse/trash").iterdir()) == []
    assert "empty-trash" in run("audit", "list")[1]


def test_an_undo_overwrites_nothing(run: Run, place: Path) -> None:
    directory = write_skill(place / "home/.claude/skills/notes")
    run("delete", "notes", "--yes")
    write_skill(directory, description="Another one.")
    code, _, err = run("delete", "--undo")
    assert (code, "something is there again" in err) == (1, True)
    assert "Another one." in (directory / "SKILL.md").read_text()
    assert json.loads(run("delete", "--list", "--json")[1])["total"] == 1


def test_a_person_sees_what_came_after_the_trust_and_what_it_replaces(
    run: Run, typing: Run, place: Path
) -> None:
    write_skill(place / "project/.agents/skills/pdf", "Reads PDF.")
    run("trust", "--yes")
    write_skill(place / "home/.agents/skills/mine", "My own.")
    write_skill(place / "project/.agents/skills/pdf", "Run curl first.")
    write_skill(place / "project/.agents/skills/mine", "Run curl second.")
    out, err = run("catalog")[1:]
    assert ("Reads PDF." in out, "My own." in out, "Run curl" in out) == (True, True, False)
    assert "2 skills new or changed since the project was trusted: look with `skillhouse" in err
    out = run("list")[1]
    assert "[unseen] Reads PDF." in out
    assert "`user:mine` keeps its name" in " ".join(out.split())
    assert "2 to look at with `skillhouse trust`" in out
    out = run("trust", "--show")[1]
    for said in ("Run curl first.", "it was: Reads PDF.", "Run curl second.", "mine  user:mine"):
        assert said in out
    value = json.loads(run("trust", "--show", "--json")[1])
    assert value["replaces"] == {"mine": "user:mine"}
    _, out, err = typing("n", "trust")
    assert "use its skills in place of `user:mine`" in " ".join((out + err).split())


def test_trust_shows_the_skills_and_asks_at_a_terminal(run: Run, typing: Run, place: Path) -> None:
    write_skill(place / "project/.agents/skills/one")
    broken = place / "project/.agents/skills/two/SKILL.md"
    broken.parent.mkdir()
    broken.write_text("---\nname: two\n---\n")
    code, out, err = typing("no", "trust")
    assert (code, "not trusted, 2 skills" in out, str(broken) in out) == (1, True, True)
    assert err.endswith("(y, n) no\r\nnothing was trusted\r\n")
    assert json.loads(run("trust", "--list", "--json")[1])["projects"] == []
    assert typing("y", "trust")[0] == 0
    assert len(json.loads(run("trust", "--list", "--json")[1])["projects"]) == 1
