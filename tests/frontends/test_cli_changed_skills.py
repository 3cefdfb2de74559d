"""Installed skills whose files changed: marked in lists, refused at load, accepted or restored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillhouse.answers.json_form import plain
from skillhouse.answers.skills import absent_skill
from skillhouse.extensions.server.status import StatusReader
from skillhouse.house import Skillhouse, configured
from skillhouse.manage import SkillsManager
from tests.frontends.conftest import Run
from tests.house.places import make_places
from tests.registry.sources import make_skill

AGREED = ("--yes", "--allow-unsigned")


def skill_of(place: Path, name: str = "notes") -> Path:
    return place / "home/.agents/skills" / name


@pytest.fixture
def notes(run: Run, place: Path) -> Path:
    """An installed skill."""
    assert run("install", str(make_skill(place / "notes")), *AGREED)[0] == 0
    return skill_of(place)


def states(run: Run) -> dict[str, str]:
    """Return the states of installed skills that a list says are not well."""
    code, out, _ = run("list", "--json")
    assert code == 0
    known = ("edited", "missing", "refused", "broken")
    return {one["name"]: one["state"] for one in json.loads(out)["absent"] if one["state"] in known}


def test_an_edited_skill_is_marked_in_each_list_and_in_no_other_state(
    run: Run, notes: Path
) -> None:
    assert states(run) == {}
    (notes / "scripts/run.sh").write_text("owned\n")
    assert states(run) == {"notes": "edited"}
    out = run("list")[1]
    assert "notes  [edited] About notes." in out
    assert "`skillhouse verify user:notes --accept` keeps them" in " ".join(out.split())
    code, out, _ = run("list", "--problem", "edited")
    assert (code, "not loaded: edited since they were installed: 1" in out) == (1, True)
    value = json.loads(run("show", "notes", "--json")[1])
    assert value["state"] == "edited"
    assert "--restore` puts back" in value["state_reason"]
    assert "not loaded: edited" in run("show", "notes")[1]
    assert run("files", "notes")[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda skill: (skill / "more.md").write_text("x"),
        lambda skill: (skill / "scripts/run.sh").unlink(),
        lambda skill: (skill / "scripts/run.sh").chmod(0o644),
        lambda skill: (skill / "more.md").symlink_to("SKILL.md"),
    ],
)
def test_any_change_of_a_file_counts(
    run: Run, notes: Path, change: Callable[[Path], object]
) -> None:
    change(notes)
    assert states(run) == {"notes": "edited"}


def test_the_page_and_doctor_say_so_too(run: Run, place: Path, notes: Path) -> None:
    def found() -> list[dict[str, Any]]:
        with Skillhouse(configured(make_places(place))) as house:
            status = StatusReader(house, lambda: 0.0).status()
            changed: list[dict[str, Any]] = plain(list(map(absent_skill, status.changed)))
            return changed

    assert found() == []
    assert json.loads(run("doctor", "--json")[1])["installed"] == []
    (notes / "SKILL.md").write_text((notes / "SKILL.md").read_text() + "More.\n")
    assert [(one["id"], one["state"]) for one in found()] == [("user:notes", "edited")]
    code, out, _ = run("doctor", "--json")
    assert (code, json.loads(out)["installed"][0]["state"]) == (1, "edited")
    text = " ".join(run("doctor")[1].split())
    assert "the installed skill `user:notes` is edited" in text
    shutil.rmtree(notes)
    assert [(one["id"], one["state"]) for one in found()] == [("user:notes", "missing")]


def test_a_body_is_not_printed_but_by_an_explicit_flag(
    run: Run, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "SKILL.md").write_text((notes / "SKILL.md").read_text() + "Owned.\n")
    for more in ((), ("--raw",), ("--json",)):
        code, out, err = run("load", "notes", *more)
        assert (code, "Owned." in out) == (1, False)
        assert "its files are not those that were installed" in out + err
    for more in ((), ("--json",)):
        code, out, _ = run("rehearse", "About notes", *more)
        assert (code, "Owned." in out) == (0, False)
        assert "its files are not those that were installed" in " ".join(out.split())
    assert run("load", "notes", "--anyway")[:2] == (0, "Body.\nOwned.\n")
    monkeypatch.setenv("CLAUDECODE", "1")
    code, out, err = run("load", "notes", "--anyway")
    assert (code, out) == (1, "")
    assert "is for a person" in err


def test_accepted_edits_are_no_mark(run: Run, notes: Path) -> None:
    (notes / "SKILL.md").write_text((notes / "SKILL.md").read_text() + "Mine.\n")
    assert run("verify", "notes", "--accept")[0] == 0
    assert states(run) == {}
    assert "Mine." in run("load", "notes")[1]


def test_restore_puts_back_what_was_installed_and_keeps_the_edits(run: Run, notes: Path) -> None:
    before = (notes / "SKILL.md").read_text()
    (notes / "SKILL.md").write_text(before + "Mine.\n")
    code, _, err = run("verify", "notes", "--restore")
    assert (code, err) == (0, "the edits are kept: `skillhouse rollback user:notes`\n")
    assert (notes / "SKILL.md").read_text() == before
    assert states(run) == {}
    assert run("rollback", "notes", *AGREED)[0] == 0
    assert (notes / "SKILL.md").read_text() == before + "Mine.\n"


def test_edits_over_which_a_frozen_install_goes_are_kept_as_well(run: Run, notes: Path) -> None:
    before = (notes / "SKILL.md").read_text()
    (notes / "SKILL.md").write_text(before + "Mine.\n")
    assert run("install", "--frozen", "--force", "--allow-unsigned")[0] == 0
    assert (notes / "SKILL.md").read_text() == before
    assert run("rollback", "notes", *AGREED)[0] == 0
    assert (notes / "SKILL.md").read_text() == before + "Mine.\n"


def test_a_missing_skill_comes_back(run: Run, notes: Path) -> None:
    shutil.rmtree(notes)
    assert states(run) == {"notes": "missing"}
    assert "no directory `.agents/skills/notes`" in run("list")[1]
    assert run("verify", "notes", "--restore")[:2] == (0, "user:notes  as installed\n")
    assert run("verify", "notes", "--restore")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--restore",),
        ("notes", "--restore", "--accept"),
        ("a", "b", "--restore"),
        ("./x", "--restore"),
    ],
)
def test_a_restore_is_about_one_skill(run: Run, notes: Path, words: tuple[str, ...]) -> None:
    assert run("verify", *words)[0] == 2


def test_a_coding_agent_restores_nothing(
    run: Run, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "SKILL.md").write_text("x")
    monkeypatch.setenv("CLAUDECODE", "1")
    assert run("verify", "notes", "--restore")[0] == 1
    assert (notes / "SKILL.md").read_text() == "x"


def test_a_mark_in_the_cache_never_lets_a_skill_be_loaded(
    run: Run, place: Path, notes: Path
) -> None:
    """The cache is only for what is shown: whoever writes it hides an edit from lists, no more."""
    (notes / "SKILL.md").write_text((notes / "SKILL.md").read_text() + "Owned.\n")
    states(run)
    marks = place / "home/.cache/skillhouse/installed-marks"
    if marks.exists():
        marks.write_bytes(marks.read_bytes().replace(b"edited", b"ok"))
    assert run("load", "notes")[0] == 1
    with Skillhouse(configured(make_places(place))) as house:
        result = house.call_sync("skill", {"name": "notes"})
    assert (result.status, "not those that were installed" in result.content) == ("denied", True)


def test_a_lock_that_cannot_be_read_is_named_and_the_rest_is_listed(
    run: Run, place: Path, notes: Path
) -> None:
    (place / "home/.config/skillhouse/skills.lock").write_text("{")
    code, out, _ = run("list")
    assert code == 0
    assert "skills.lock" in out
    assert "weather" in out
    assert states(run) == {"skills.lock": "broken"}
    assert run("show", "weather")[0] == 0


def test_a_project_that_is_not_trusted_marks_nothing_and_leads_nowhere(
    run: Run, place: Path
) -> None:
    source = make_skill(place / "mine")
    assert run("install", str(source), "--project", *AGREED)[0] == 0
    lock = place / "project/skills.lock"
    shutil.rmtree(place / "project/.agents/skills/mine")
    value = json.loads(lock.read_text())
    value["skills"]["mine"]["install"]["path"] = "../../../../etc"
    lock.write_text(json.dumps(value))
    assert states(run) == {}
    with Skillhouse(configured(make_places(place))) as house:
        [mark] = house.services.installed_check.marks.of(("project",))
    assert (mark.state, mark.name) == ("missing", "etc")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "claud",
            "`skillhouse profiles list` has them; did you mean `claude-code`",
        ),
        ("\x1b[2Jzzzzzzzzz", "unknown client `\\x1b[2Jzzzzzzzzz`, `skillhouse profiles list`"),
    ],
)
def test_an_unknown_client_is_called_one(run: Run, name: str, said: str) -> None:
    code, _, err = run("list", "--client", name)
    assert code == 2
    assert said in err


def test_a_program_gets_nothing_of_an_edited_skill_from_a_manager(place: Path, notes: Path) -> None:
    with Skillhouse(configured(make_places(place))) as house:
        manager = SkillsManager.of(house)
        assert "About notes." in manager.get_skill_content("notes")
        assert manager.get_skill_script_path("notes", "run.sh") == str(notes / "scripts/run.sh")
        (notes / "scripts/run.sh").write_text("owned\n")
        for said in (
            manager.get_skill_content("notes"),
            manager.get_skill_asset("notes", "scripts/run.sh"),
            manager.get_skill_script_path("notes", "run.sh"),
        ):
            assert said.startswith("skill `notes` is not loaded: its files are not those")
