"""One skill, source or client at which something goes wrong, and all others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skillhouse.skill as skill_package
from skillhouse import registry
from skillhouse.discovery import default_roots
from skillhouse.house.installed_check import InstalledCheck
from skillhouse.install import install_report
from skillhouse.registry import Repository
from skillhouse.skill import load, validate
from tests.frontends.conftest import Run
from tests.frontends.test_cli_repositories import configure
from tests.registry.repositories import StaticRepository
from tests.registry.sources import commit, make_repository, make_skill

AGREED = ("--yes", "--allow-unsigned")
BAD = "BOOM"
FAULT = "an unexpected fault of skillhouse, ZeroDivisionError"


@pytest.fixture
def boom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the judge of hosts raise what nobody foresaw, for a text with a mark."""
    judge: Callable[[str], Any] = install_report.hosts_in

    def hosts_in(text: str) -> Any:
        return 1 // 0 if BAD in text else judge(text)

    monkeypatch.setattr(install_report, "hosts_in", hosts_in)


@pytest.fixture
def repository(place: Path) -> Path:
    """A git repository of three skills, of which the one in the middle has the mark."""
    source = place / "skills.git"
    for name, body in (("aaa", "A."), ("bbb", BAD), ("ccc", "C.")):
        make_skill(source / "skills" / name, body)
    return make_repository(source)


def names(place: Path) -> list[str]:
    return sorted(one.name for one in (place / "home/.agents/skills").glob("*"))


def test_react_dev_as_a_link_is_installed_with_its_host(run: Run, place: Path) -> None:
    """Reviews N1 and F1: this line ended install, update and outdated with a traceback."""
    source = make_skill(
        place / "notes", "See [https://react.dev](https://react.dev), https://[x]/."
    )
    code, out, err = run("install", str(source), *AGREED)
    assert (code, err) == (0, "")
    assert "https://react.dev in SKILL.md" in out
    assert "an address that cannot be read in SKILL.md" in out


@pytest.mark.usefixtures("boom")
def test_install_all_goes_on_past_a_fault_and_installs_nothing_of_it(
    run: Run, place: Path, repository: Path
) -> None:
    code, _, err = run("install", f"git+file://{repository}", "--all", *AGREED)
    assert code == 1
    assert f"skillhouse: skills/bbb: {FAULT}" in err
    assert "Traceback" not in err
    assert names(place) == ["aaa", "ccc"]
    assert len(list((place / "home/.local/state/skillhouse/faults").iterdir())) == 1


def test_two_skills_of_one_name_in_one_source_never_replace_each_other(
    run: Run, place: Path
) -> None:
    source = place / "skills.git"
    for path, body in (("one/notes", "First."), ("two/notes", "Second.")):
        make_skill(source / path, body)
    make_repository(source)
    code, _, err = run("install", f"git+file://{source}", "--all", *AGREED)
    assert code == 1
    assert "two/notes: place: `notes` is the name of `one/notes` too" in err
    assert "First." in (place / "home/.agents/skills/notes/SKILL.md").read_text()
    # By itself it is a choice, and the lock says where it is from.
    code, _, _ = run("install", f"git+file://{source}", "--skill", "two/notes", *AGREED)
    assert code == 0
    assert "Second." in (place / "home/.agents/skills/notes/SKILL.md").read_text()


@pytest.mark.usefixtures("boom")
def test_the_json_of_it_says_the_same(run: Run, repository: Path) -> None:
    code, out, _ = run("install", f"git+file://{repository}", "--all", "--json", *AGREED)
    found = json.loads(out)["skills"]
    assert code == 1
    assert [one.get("status") for one in found] == ["installed", None, "installed"]
    assert found[1]["source"] == "skills/bbb"
    assert found[1]["error"].startswith(FAULT)


@pytest.mark.usefixtures("boom")
def test_one_upstream_freezes_no_update_of_others(run: Run, place: Path) -> None:
    """Review F1: anyone whose skill is installed could freeze every update."""
    sources = {}
    for name in ("aaa", "bbb", "ccc"):
        sources[name] = make_repository(make_skill(place / f"{name}.git/{name}").parent)
        assert run("install", f"git+file://{sources[name]}", "--all", *AGREED)[0] == 0
    for name, body in (("aaa", "A."), ("bbb", BAD), ("ccc", "C.")):
        make_skill(sources[name] / name, body, version="2.0")
        commit(sources[name])
    code, out, err = run("outdated")
    assert code == 1
    assert out == "aaa  1.0 → 2.0, 1 file\nccc  1.0 → 2.0, 1 file\n"
    assert f"skillhouse: bbb: {FAULT}" in err
    code, _, err = run("update", *AGREED)
    assert code == 1
    assert f"skillhouse: bbb: {FAULT}" in err
    lock = json.loads((place / "home/.config/skillhouse/skills.lock").read_text())["skills"]
    assert {name: one["version"] for name, one in lock.items()} == {
        "aaa": "2.0",
        "bbb": "1.0",
        "ccc": "2.0",
    }


def test_frozen_and_verify_go_on_past_a_fault(
    run: Run, place: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("install", f"git+file://{repository}", "--all", *AGREED)[0] == 0
    members = registry.directory_members

    def directory_members(directory: Path) -> Any:
        return 1 // 0 if directory.name == "bbb" else members(directory)

    monkeypatch.setattr(registry, "directory_members", directory_members)
    code, out, _ = run("verify")
    assert code == 1
    assert [line.split("  ")[1].split(":")[0] for line in out.splitlines()] == [
        "as installed",
        "unreadable",
        "as installed",
    ]
    code, out, err = run("install", "--frozen", *AGREED)
    assert code == 1
    assert out == "aaa: as locked\nbbb: error\nccc: as locked\n"
    assert f"skillhouse: bbb: {FAULT}" in err


def test_a_skill_that_cannot_be_judged_is_not_loaded_and_the_others_are(
    run: Run, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("install", f"git+file://{repository}", "--all", *AGREED)[0] == 0
    judge = InstalledCheck.judge

    def broken(self: InstalledCheck, directory: Path, entry: Any) -> Any:
        return 1 // 0 if directory.name == "bbb" else judge(self, directory, entry)

    monkeypatch.setattr(InstalledCheck, "judge", broken)
    assert run("load", "aaa")[0] == 0
    code, out, err = run("load", "bbb")
    assert code == 1
    assert BAD not in out
    assert "it cannot be compared with what was installed" in err
    assert FAULT in err
    assert run("list")[0] == 0


def test_a_file_that_cannot_be_read_costs_no_other_skill(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("aaa", "bbb", "ccc"):
        make_skill(place / "home/.agents/skills" / name)
    read = skill_package.read_metadata

    def read_metadata(handle: int, size: int, name: str, *rest: Any) -> Any:
        return 1 // 0 if name == "bbb" else read(handle, size, name, *rest)

    monkeypatch.setattr(skill_package, "read_metadata", read_metadata)
    code, out, _ = run("list", "--json")
    found = json.loads(out)
    assert code == 0
    assert {"aaa", "ccc"} <= {one["name"] for one in found["skills"]}
    (broken,) = [one for one in found["absent"] if one["name"] == "bbb"]
    assert (broken["state"], broken["code"]) == ("broken", "internal-fault")
    assert broken["reason"].startswith(FAULT)


def test_a_client_that_cannot_be_looked_at_is_named_by_doctor(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(place / "home/.claude/skills/notes")

    def broken(**options: Any) -> Any:
        return 1 // 0 if options["profile"].name == "codex" else default_roots(**options)

    monkeypatch.setattr("skillhouse.clients.comparison.default_roots", broken)
    code, out, _ = run("doctor", "--client", "claude-code", "--client", "codex", "--json")
    found = json.loads(out)
    assert code == 1
    assert [one["name"] for one in found["clients"]] == ["claude-code"]
    assert found["problems"][0]["code"] == "internal-fault"
    assert found["problems"][0]["title"].startswith(f"`codex` could not be checked: {FAULT}")


def test_validate_goes_on_past_a_fault(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("aaa", "bbb", "ccc"):
        make_skill(place / "many" / name)

    def broken(directory: Path, **options: Any) -> Any:
        return 1 // 0 if directory.name == "bbb" else validate(directory, **options)

    monkeypatch.setattr("skillhouse.frontends.cli.check.validate", broken)
    code, out, err = run("validate", str(place / "many"))
    assert code == 1
    assert f"bbb: error: {FAULT}" in out
    assert "3 skills: 1 error" in err


def test_a_repository_that_cannot_be_asked_hides_no_other(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = StaticRepository(place / "official")
    entries = [{"name": "memo", "description": "About memo."}]
    listing = json.dumps({"skills": entries}).encode()
    made.write(".well-known/agent-skills/index.json", listing)
    other = StaticRepository(place / "community", "community.example")
    configure(place, ("community", other.address, True), ("official", made.address, True))
    listed = Repository.listed

    def broken(self: Repository, *arguments: Any, **options: Any) -> Any:
        return 1 // 0 if "community" in self.address else listed(self, *arguments, **options)

    monkeypatch.setattr(Repository, "listed", broken)
    code, out, err = run("install", "--list")
    assert code == 1
    assert "memo" in out
    assert f"skillhouse: repository `community`: {FAULT}" in err
    code, out, _ = run("install", "--list", "--json")
    found = json.loads(out)
    assert (code, found["total"], len(found["problems"])) == (1, 1, 1)


def test_an_export_to_one_client_that_fails_leaves_the_others(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("aaa", "bbb", "ccc"):
        make_skill(place / "home/.config/skillhouse/skills" / name)

    def broken(skill: Any) -> Any:
        return 1 // 0 if skill.name == "bbb" else load(skill)

    monkeypatch.setattr("skillhouse.clients.export_plan.load", broken)
    code, out, _ = run("export", "aaa", "bbb", "ccc", "--to", "claude-code", "--json")
    found = {one["skill"]: one for one in json.loads(out)["exports"]}
    assert code == 1
    assert [found[f"user:{name}"]["done"] for name in ("aaa", "bbb", "ccc")] == [True, False, True]
    assert found["user:bbb"]["reason"].startswith(FAULT)
