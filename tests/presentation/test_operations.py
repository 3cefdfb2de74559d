"""Tests of presentation/operations.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse.answers.json_form import plain
from skillhouse.floor import ConfigError
from skillhouse.house import Skillhouse, configured
from skillhouse.presentation import operations
from skillhouse.presentation.operations import OPERATIONS
from tests.house.desktop import make_desktop
from tests.house.places import make_places, write_skill


def answer(house: Skillhouse, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = plain(operations.answer(house, operation, arguments))
    return found


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    places = make_places(tmp_path)
    write_skill(places.home / ".claude/skills/notes")
    return Skillhouse(configured(places), profile="claude-desktop")


@pytest.mark.req("S004-67")
def test_each_of_the_seven_channels_answers(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = make_desktop(tmp_path, monkeypatch)
    listed = answer(house, "SKILLS_GET_ALL", {})
    assert [skill["id"] for skill in listed["skills"]] == ["user:notes"]
    assert list(listed["skills"][0]) == [
        "id", "name", "description", "source", "path", "directoryPath", "enabled",
        "instructions", "allowedTools", "files",
    ]  # fmt: skip
    made = answer(
        house,
        "SKILLS_CREATE",
        {"name": "mine", "description": "A: b", "instructions": "Go."},
    )
    assert made["success"], made
    assert made["skill"]["id"] == "user:mine"
    assert (
        "# "
        not in answer(house, "SKILLS_READ_FILE", {"skillId": "user:mine", "fileName": "SKILL.md"})[
            "content"
        ].splitlines()[0]
    )
    off = answer(house, "SKILLS_TOGGLE_ENABLED", {"skillId": "user:mine", "enabled": False})
    assert off["skill"]["enabled"] is False
    assert answer(house, "SKILLS_OPEN_DIRECTORY", {"skillId": "user:mine"})["success"]
    assert opened.read_text().endswith("/mine\n")
    assert answer(house, "SKILLS_DELETE", {"skillId": "user:mine"})["success"]
    after = answer(house, "SKILLS_REFRESH", {})
    assert [skill["id"] for skill in after["skills"]] == ["user:notes"]
    assert len(OPERATIONS) == 7


@pytest.mark.req("S004-79", "S004-82")
def test_a_skill_that_is_made_in_a_project_is_listed_or_the_answer_says_why_not(
    tmp_path: Path,
) -> None:
    house = Skillhouse(configured(make_places(tmp_path)), profile="claude-desktop")
    new = {"name": "ours", "description": "D.", "instructions": "Go.", "source": "project"}
    only_the_users = {"success": False, "error": "Can only delete user skills"}
    made = answer(house, "SKILLS_CREATE", new)
    assert (made["success"], made["skill"]["id"]) == (True, "project:ours")
    assert made["notice"] == (
        "no agent and no list has it until the project is trusted: run `skillhouse trust`"
    )
    assert answer(house, "SKILLS_GET_ALL", {})["skills"] == []
    for reference in ("project:ours", "ours", made["skill"]["path"]):
        gone = answer(house, "SKILLS_DELETE", {"skillId": reference})
        assert gone == only_the_users, reference
    none = answer(house, "SKILLS_DELETE", {"skillId": "project:none"})
    assert none["error"] == "Skill not found"
    house.project_trust.trust()
    listed = answer(house, "SKILLS_GET_ALL", {})["skills"]
    assert [skill["id"] for skill in listed] == ["project:ours"]
    made = answer(house, "SKILLS_CREATE", {**new, "name": "more"})
    assert list(made) == ["success", "skill"]
    assert answer(house, "SKILLS_DELETE", {"skillId": "project:more"}) == only_the_users


@pytest.mark.req("S004-62", "S004-63")
def test_errors_come_in_the_published_words(house: Skillhouse) -> None:
    for operation, arguments, error in (
        ("SKILLS_READ_FILE", {"skillId": "user:no", "fileName": "x"}, "Skill not found"),
        ("SKILLS_DELETE", {"skillId": "user:no"}, "Skill not found"),
        (
            "SKILLS_READ_FILE",
            {"skillId": "user:notes", "fileName": "../../../x"},
            "Access denied: path traversal detected",
        ),
    ):
        assert answer(house, operation, arguments) == {"success": False, "error": error}


def test_a_request_of_another_shape_is_an_error_of_the_caller(house: Skillhouse) -> None:
    for operation, arguments, message in (
        ("SKILLS_GETALL", {}, "did you mean `SKILLS_GET_ALL`"),
        ("SKILLS_DELETE", {}, "no argument `skillId`"),
        ("SKILLS_DELETE", {"skillId": "x", "force": True}, "unknown argument `force`"),
        (
            "SKILLS_TOGGLE_ENABLED",
            {"skillId": "x", "enabled": "yes"},
            "expected `true` or `false`, got text",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            answer(house, operation, arguments)
