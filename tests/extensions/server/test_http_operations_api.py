"""Tests of extensions/server/operations_api.py: design 004's seven operations, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.test_http_app import BEARER, COOKIE, PORT, SESSION, TOKEN
from tests.house.desktop import make_desktop
from tests.house.places import make_places, write_skill

from skillhouse.audit import read_records
from skillhouse.extensions.server.app import make_app
from skillhouse.house import Skillhouse, configured

pytestmark = pytest.mark.slow

PATH = "/api/operations"


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    places = make_places(tmp_path)
    write_skill(places.home / ".claude/skills/notes")
    write_skill(places.start / ".claude/skills/ours")
    house = Skillhouse(configured(places), profile="claude-desktop")
    house.project_trust.trust()
    return house


def client_of(house: Skillhouse, headers: dict[str, str], read_only: str = "") -> TestClient:
    app = make_app(house, token=TOKEN, port=PORT, session=SESSION, read_only=read_only)
    return TestClient(app, f"http://127.0.0.1:{PORT}", headers=headers)


def asked(client: TestClient, operation: str, **arguments: Any) -> dict[str, Any]:
    answer = client.post(PATH, json={"operation": operation, "arguments": arguments})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.req("S004-67", "S004-62", "S004-63", "S004-72", "S004-73", "S004-74", "S004-79")
def test_a_program_manages_skills_by_the_seven_operations(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = make_desktop(tmp_path, monkeypatch)
    client = client_of(house, BEARER)
    assert len(client.get(PATH).json()) == 7
    listed = asked(client, "SKILLS_GET_ALL")["skills"]
    assert sorted(skill["id"] for skill in listed) == ["project:ours", "user:notes"]
    text = {"name": "mine", "description": "A: b", "instructions": "Go."}
    made = asked(client, "SKILLS_CREATE", **text)
    assert (made["success"], made["skill"]["id"]) == (True, "user:mine")
    file = {"skillId": "user:mine", "fileName": "SKILL.md"}
    assert asked(client, "SKILLS_READ_FILE", **file)["content"].startswith("---\nname: mine\n")
    off = asked(client, "SKILLS_TOGGLE_ENABLED", skillId="user:mine", enabled=False)
    assert off["skill"]["enabled"] is False
    assert asked(client, "SKILLS_OPEN_DIRECTORY", skillId="user:mine")["success"]
    assert opened.read_text().endswith(".claude/skills/mine\n")
    refused = {
        ("SKILLS_DELETE", "project:ours"): "Can only delete user skills",
        ("SKILLS_DELETE", "user:no"): "Skill not found",
    }
    for (operation, skill), error in refused.items():
        assert asked(client, operation, skillId=skill) == {"success": False, "error": error}
    beyond = {"skillId": "user:mine", "fileName": "../notes/SKILL.md"}
    error = "Access denied: path traversal detected"
    assert asked(client, "SKILLS_READ_FILE", **beyond) == {"success": False, "error": error}
    assert asked(client, "SKILLS_DELETE", skillId="user:mine")["success"]
    after = asked(client, "SKILLS_REFRESH")["skills"]
    assert "user:mine" not in [skill["id"] for skill in after]
    tools = [entry.record.tool for entry in read_records(house.audit_log.path)]
    assert {"manage:create", "manage:disable", "manage:delete"} <= set(tools)


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        (COOKIE, b'{"operation": "SKILLS_GET_ALL"}', 403, "token-wanted"),
        (BEARER | {"content-type": "text/plain"}, b"{}", 415, "json-wanted"),
        (BEARER, b"{", 400, "not-json"),
        (BEARER, b"[" * 100_000, 400, "not-json"),
        (BEARER, b" " * 3_000_000, 413, "too-large"),
        (BEARER, b"[]", 400, "wrong-shape"),
        (BEARER, b'{"operation": 1}', 400, "wrong-shape"),
        (BEARER, b'{"operation": "SKILLS_DELETE", "skillId": "x"}', 400, "wrong-shape"),
        (BEARER, b'{"operation": "SKILLS_GETALL"}', 400, "wrong-request"),
        (BEARER, b'{"operation": "SKILLS_DELETE"}', 400, "wrong-request"),
        (BEARER, b"{}", 400, "wrong-request"),
    ],
)
def test_a_request_of_another_shape_is_refused_with_the_reason(
    house: Skillhouse, headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    client = client_of(house, {"content-type": "application/json"} | headers)
    answer = client.post(PATH, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.one_server("agent")
def test_where_nothing_may_be_changed_only_what_reads_is_answered(house: Skillhouse) -> None:
    client = client_of(house, BEARER, read_only="a coding agent started this")
    assert asked(client, "SKILLS_GET_ALL")["success"]
    for operation in ("SKILLS_CREATE", "SKILLS_DELETE", "SKILLS_TOGGLE_ENABLED"):
        answer = client.post(PATH, json={"operation": operation, "arguments": {}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "read-only")
    assert client.post(PATH, json={}, headers={"authorization": "Bearer no"}).status_code == 401
