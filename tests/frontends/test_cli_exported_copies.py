"""A copy that `export` made is no clash of names: `list`, `show` and `doctor` say what it is."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from skillhouse.clients import Exporter
from skillhouse.clients import exporter as exporters
from skillhouse.house import Skillhouse, configured, export_source
from skillhouse.presentation import operations
from tests.frontends.conftest import Run
from tests.house.places import make_places, write_skill
from tests.registry.sources import make_skill, skill_text

AGREED = ("--yes", "--allow-unsigned")


@pytest.fixture
def source(place: Path, run: Run) -> Path:
    source = write_skill(place / "home/.config/skillhouse/skills/notes", "Takes notes.")
    assert run("export", "notes", "--to", "codex,claude-code")[0] == 0
    return source


@pytest.mark.slow
def test_list_has_them_under_their_own_heading_without_a_mend(run: Run, source: Path) -> None:
    code, out, _ = run("list")
    said = " ".join(out.split())
    assert code == 0
    assert "exported copies, which clients read: 2" in said
    assert said.count("exported copy of `user:notes` at") == 2
    assert "2 exported" in out.splitlines()[-1]
    assert "rename" not in out
    assert "shadowed" not in out
    value = json.loads(run("list", "--json")[1])
    found = [one for one in value["diagnostics"] if one["path"].endswith("/notes/SKILL.md")]
    assert [(one["code"], one["severity"], one["mend"]) for one in found] == [
        ("exported-copy", "info", None)
    ] * 2
    assert found[0]["message"] == f"exported copy of `user:notes` at `{source}/SKILL.md`"
    assert [(one["state"], one["mend"]) for one in value["absent"]] == [("exported", "")] * 2


@pytest.mark.slow
def test_it_is_no_problem(run: Run, source: Path) -> None:
    code, out, err = run("list", "--problem", "any")
    assert (code, out, err) == (0, "", "0 problems\n")
    assert run("list", "--problem", "exported")[0] == 1
    code, out, _ = run(
        "doctor", "--client", "codex", "--client", "claude-code", "--client", "default"
    )
    assert (code, "no problems" in out) == (0, True)


@pytest.mark.slow
def test_show_names_the_skill_that_it_is_a_copy_of(run: Run, source: Path) -> None:
    _, out, err = run("show", "user:notes@.agents/skills/notes")
    assert "exported copy of `user:notes`" in " ".join((out + err).split())


def test_a_copy_made_by_hand_is_a_clash_as_before(run: Run, place: Path) -> None:
    write_skill(place / "home/.config/skillhouse/skills/notes", "Takes notes.")
    write_skill(place / "home/.agents/skills/notes", "Takes notes.")
    found = json.loads(run("list", "--json")[1])["absent"]
    assert [(one["state"], "rename" in one["mend"]) for one in found] == [("shadowed", True)]


@pytest.mark.slow
def test_a_copy_that_reads_otherwise_is_a_problem_of_doctor(run: Run, place: Path) -> None:
    write_skill(place / "home/.config/skillhouse/skills/notes", "Takes notes.")
    assert run("export", "notes", "--to", "codex")[0] == 0
    write_skill(place / "home/.agents/skills/notes", "Changed there.")
    code, out, _ = run("doctor", "--client", "codex", "--client", "default")
    assert (code, "`notes` exists 2 times" in out) == (1, True)


@pytest.mark.slow
def test_copies_follow_an_installed_skill_to_its_update_its_rollback_and_its_end(
    run: Run, place: Path
) -> None:
    origin = make_skill(place / "origin/notes")
    assert run("install", str(origin), *AGREED, "--client", "claude-code,codex")[0] == 0
    copy = place / "home/.claude/skills/notes/SKILL.md"
    first = copy.read_text()
    make_skill(origin, "New.")
    code, _, err = run("update", *AGREED)
    assert (code, copy.read_text()) == (0, skill_text("notes", "New."))
    assert f"claude-code: its copy is updated, too: {copy.parent}" in err
    assert run("export", "--status")[0] == 0
    assert run("rollback", "notes", *AGREED)[0] == 0
    assert copy.read_text() == first
    code, _, err = run("uninstall", "notes")
    assert (code, copy.exists()) == (0, False)
    assert f"claude-code: its copy is removed, too: {copy.parent}" in err
    assert "notes" not in run("list")[1]


@pytest.mark.slow
def test_a_copy_that_was_changed_there_stays_and_is_named(run: Run, place: Path) -> None:
    origin = make_skill(place / "origin/notes")
    assert run("install", str(origin), *AGREED, "--client", "claude-code")[0] == 0
    copy = place / "home/.claude/skills/notes/SKILL.md"
    copy.write_text("Mine.")
    make_skill(origin, "New.")
    code, _, err = run("update", *AGREED)
    assert (code, copy.read_text()) == (0, "Mine.")
    assert f"claude-code: {copy.parent}: the copy was changed" in err
    code, _, err = run("uninstall", "notes")
    assert (code, copy.read_text()) == (1, "Mine.")
    command = f"skillhouse export {copy.parent} --remove --force"
    assert f"the copy was changed there, and stays: `{command}` removes it" in err
    assert run(*command.split()[1:])[0] == 0
    assert not copy.exists()


@pytest.mark.slow
def test_a_deleted_skill_takes_its_copies_along_and_no_others(
    run: Run, place: Path, source: Path
) -> None:
    other = write_skill(place / "home/.config/skillhouse/skills/other", "Other.")
    assert run("export", "other", "--to", "codex")[0] == 0
    assert run("delete", "notes", "--yes")[0] == 0
    assert not source.exists()
    assert [one.name for one in (place / "home/.agents/skills").iterdir()] == ["other"]
    assert not (place / "home/.claude/skills/notes").exists()
    assert other.exists()


@pytest.mark.slow
def test_a_dry_run_of_what_is_installed_writes_no_copy(run: Run, place: Path) -> None:
    origin = make_skill(place / "origin/notes")
    assert run("install", str(origin), *AGREED)[0] == 0
    assert run("install", str(origin), "--dry-run", "--client", "claude-code")[0] == 0
    assert not (place / "home/.claude").exists()


def _busy(*_: object) -> AbstractContextManager[None]:
    raise TimeoutError


@pytest.mark.slow
def test_what_was_done_is_said_though_its_copies_cannot_follow(
    run: Run, place: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("install", str(make_skill(place / "origin/memo")), *AGREED)[0] == 0
    assert run("export", "memo", "--to", "claude-code")[0] == 0
    copy = place / "home/.claude/skills/memo"
    with monkeypatch.context() as patch:
        patch.setattr(exporters, "locked_file", _busy)
        code, out, err = run("uninstall", "memo", "--json")
        assert (code, json.loads(out)["name"]) == (1, "memo")
        assert f"claude-code: {copy}: another process is exporting; try again" in err
        assert "skillhouse delete --undo user:memo" in err
        code, out, err = run("delete", "notes", "--yes", "--json")
        assert (code, json.loads(out)["id"], source.exists()) == (1, "user:notes", False)
        assert "another process is exporting" in err
    assert run("export", "--remove", "memo", "notes")[0] == 0
    assert not copy.exists()


@pytest.mark.slow
def test_one_skill_that_is_gone_takes_no_copies_of_another_along(
    run: Run, place: Path, source: Path
) -> None:
    other = write_skill(place / "home/.config/skillhouse/skills/other", "Other.")
    assert run("export", "other", "--to", "codex")[0] == 0
    shutil.rmtree(source)
    with Skillhouse(configured(make_places(place))) as house:
        items = Exporter(export_source(house)).follow(source, other)
    assert sorted((one.skill, str(one.action)) for one in items) == [
        ("user:notes", "remove"),
        ("user:notes", "remove"),
        ("user:other", ""),
    ]
    assert (place / "home/.agents/skills/other/SKILL.md").is_file()


@pytest.mark.slow
def test_copies_follow_an_operation_that_deletes_and_files_that_are_put_back(
    run: Run, place: Path, source: Path
) -> None:
    with Skillhouse(configured(make_places(place))) as house:
        done = operations.answer(house, "SKILLS_DELETE", {"skillId": "user:notes"})
    assert done.success
    assert not (place / "home/.claude/skills/notes").exists()
    assert run("install", str(make_skill(place / "origin/memo")), *AGREED)[0] == 0
    installed = place / "home/.agents/skills/memo/SKILL.md"
    first = installed.read_text()
    installed.write_text(first.replace("Body.", "Edited."))
    assert run("export", "memo", "--to", "claude-code")[0] == 0
    assert "Edited." in (place / "home/.claude/skills/memo/SKILL.md").read_text()
    assert run("verify", "memo", "--restore")[0] == 0
    assert (place / "home/.claude/skills/memo/SKILL.md").read_text() == first
