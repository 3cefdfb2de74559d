"""`list --profile NAME` and `doctor --client NAME` give one answer, for each client."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skillhouse.skill import load_profile, profile_names
from tests.frontends.conftest import Run
from tests.house.places import write_skill
from tests.profiles.probes import START, build

CLIENTS = [name for name in profile_names() if load_profile(name).client]


@pytest.fixture
def tree(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree with which the clients were measured, and its project trusted."""
    base = Path(os.path.realpath(place))
    (base / "project/.git").rmdir()
    build(base)
    monkeypatch.chdir(base / START)
    assert run("trust", "--yes")[0] == 0
    return base


@pytest.mark.slow
@pytest.mark.parametrize("name", CLIENTS)
def test_list_and_doctor_name_the_same_skills(run: Run, tree: Path, name: str) -> None:
    for rule in load_profile(name).roots:
        # Never an absolute path: only what is below this home or this project.
        if rule.path.startswith("~/") and "*" not in rule.path:
            write_skill(tree / "home" / rule.path[2:] / "own")
        elif rule.path.startswith("."):
            write_skill(tree / START / rule.path / "own")
    # What a person has not seen is not listed as it is.
    assert run("trust", "--yes", "--profile", name)[0] == 0
    listed = json.loads(run("list", "--profile", name, "--json")[1])
    report = json.loads(run("doctor", "--client", name, "--json")[1])
    start = Path(report["start"])

    def real(short: str) -> str:
        home = f"{tree}/home/" if short.startswith("~/") else ""
        path = home + short[2:] if home else os.path.join(report["project"], short)
        return os.path.realpath(path)

    def states(*wanted: str) -> set[tuple[str, str]]:
        return {
            (verdict["name"], real(skill["file"]))
            for skill in report["skills"]
            if (verdict := skill["clients"][name])["state"] in wanted
        }

    assert start == tree / START
    found = {(skill["name"], os.path.realpath(skill["location"])) for skill in listed["skills"]}
    assert found == states("seen")
    assert found
    for_people = {
        (one["name"], os.path.realpath(one["path"]))
        for one in listed["absent"]
        if one["state"] == "people-only"
    }
    assert for_people == states("manual")
    shadowed = {(one["name"], os.path.realpath(one["location"])) for one in listed["shadowed"]}
    assert shadowed == states("shadowed")
    refused = {
        os.path.realpath(one["path"])
        for one in listed["diagnostics"]
        if one["severity"] == "error"
        and one["path"]
        # `doctor` has a file of another name among what is nearly a skill.
        and one["code"] not in ("duplicate", "wrong-case")
    }
    assert refused == {path for _, path in states("dropped")}
