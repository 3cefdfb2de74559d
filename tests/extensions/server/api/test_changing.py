"""The routes that change something: skills, rules, stop; and the operations by their channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import API, client_of, make_house, token_of

from skillhouse.audit import read_records
from skillhouse.house import Skillhouse
from skillhouse.presentation.operations import OPERATIONS

pytestmark = pytest.mark.slow

GOOD = "---\nname: notes\ndescription: Better notes.\n---\nWrite.\n"


def names(client: TestClient) -> list[str]:
    return [skill["id"] for skill in client.get(f"{API}/skills").json()["skills"]]


def test_a_skill_is_made_switched_deleted_and_put_back(
    house: Skillhouse, client: TestClient
) -> None:
    new = {"name": "mine", "description": "Does it.", "instructions": "Do it."}
    made = client.post(f"{API}/skills", json=new)
    assert (made.status_code, made.json()["id"]) == (201, "user:mine")
    again = client.post(f"{API}/skills", json=new)
    assert (again.status_code, again.json()["code"]) == (409, "skill-exists")
    assert "user:mine" in names(client)
    off = client.put(f"{API}/skills/mine/enabled", json={"enabled": False})
    assert off.json() == {"id": "user:mine", "enabled": False}
    assert "user:mine" not in names(client)
    assert client.get(f"{API}/skills/mine").json()["state"] == "disabled"
    gone = client.delete(f"{API}/skills/user:mine")
    assert gone.json()["scope"] == "user"
    (deleted,) = client.get(f"{API}/trash").json()["deleted"]
    back = client.post(f"{API}/trash/{deleted['key']}/restore")
    assert back.json()["id"] == "user:mine"
    assert client.post(f"{API}/trash/{deleted['key']}/restore").status_code == 404
    assert client.delete(f"{API}/skills/builtin:weather").json()["code"] == "not-deletable"
    tools = [entry.record.tool for entry in read_records(house.audit_log.path)]
    assert {"manage:create", "manage:disable", "manage:delete", "manage:undelete"} <= set(tools)


def test_a_skill_is_edited_only_as_it_was_read(client: TestClient, tmp_path: Path) -> None:
    path = f"{API}/skills/notes/source"
    read = client.get(path)
    tag = read.headers["etag"]
    assert read.json()["text"].startswith("---\nname: notes\n")
    assert client.put(path, json={"text": GOOD}).status_code == 428
    bad = client.put(path, json={"text": "---\nname: 'x\n---\n"}, headers={"if-match": tag})
    assert (bad.status_code, bad.json()["code"]) == (422, "frontmatter")
    assert bad.json()["diagnostics"][0]["line"]
    done = client.put(path, json={"text": GOOD}, headers={"if-match": tag})
    assert done.json()["description"] == "Better notes."
    file = tmp_path / "home/.agents/skills/notes/SKILL.md"
    assert file.read_text() == GOOD
    late = client.put(path, json={"text": GOOD + "more\n"}, headers={"if-match": tag})
    assert (late.status_code, late.json()["code"]) == (412, "changed")
    assert file.read_text() == GOOD
    builtin = f"{API}/skills/builtin:weather/source"
    tag = client.get(builtin).headers["etag"]
    answer = client.put(builtin, json={"text": GOOD}, headers={"if-match": tag})
    assert (answer.status_code, answer.json()["code"]) == (409, "not-editable")


def test_a_text_is_checked_without_being_written(client: TestClient) -> None:
    found = client.post(f"{API}/validate", json={"name": "x", "text": "no frontmatter"}).json()
    assert found["total"] == len(found["diagnostics"]) > 0
    fine = {"name": "notes", "text": GOOD}
    assert client.post(f"{API}/validate", json=fine).json()["total"] == 0


def test_rules_are_tried_added_and_removed(client: TestClient, tmp_path: Path) -> None:
    asked = {"action": "exec", "resource": "git push origin"}
    rule = {"effect": "deny", "action": "exec", "pattern": "git push *"}
    tried = client.post(f"{API}/policy/test", json={**asked, "rules": [rule]}).json()
    assert (tried["before"]["effect"], tried["after"]["effect"]) == ("ask", "deny")
    file = tmp_path / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('# mine\n[[rules]]\neffect = "ask"\naction = "read"\npattern = "*.pem"\n')
    file.chmod(0o600)
    shown = client.post(f"{API}/policy/rules", params={"preview": "true"}, json=rule).json()
    assert "git push" in shown["text"]
    assert "git push" not in file.read_text()
    assert client.post(f"{API}/policy/rules", json=rule).status_code == 201
    now = client.post(f"{API}/policy/explain", json=asked).json()
    assert (now["effect"], now["layer"]) == ("deny", "user")
    listed = client.get(f"{API}/policy/rules")
    assert [one["pattern"] for one in listed.json()["rules"]] == ["*.pem", "git push *"]
    stale = client.delete(f"{API}/policy/rules/user/0", headers={"if-match": '"x"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "changed")
    tag = {"if-match": listed.headers["etag"]}
    assert client.delete(f"{API}/policy/rules/user/7", headers=tag).status_code == 422
    assert client.delete(f"{API}/policy/rules/user/0", headers=tag).status_code == 200
    assert file.read_text().startswith('# mine\n[[rules]]\neffect = "deny"')
    assert client.get(f"{API}/policy/lint").status_code == 200


@pytest.mark.one_server("agent")
def test_a_stop_is_made_by_a_token_and_lifted_by_the_owner_alone(
    house: Skillhouse, client: TestClient
) -> None:
    manager = client_of(house, token_of(house, "manage"), read_only="an agent")
    assert manager.post(f"{API}/stop", json={"reason": "test"}).json()["new"] is True
    assert client.get(f"{API}/stop").json() == {"stopped": True, "reason": "test (by local)"}
    confirm = {"confirm": "resume"}
    manager = client_of(house, token_of(house, "manage", name="other"))
    refused = manager.post(f"{API}/resume", json=confirm)
    assert (refused.status_code, refused.json()["code"]) == (403, "owner-wanted")
    assert client.post(f"{API}/resume", json={"confirm": "yes"}).status_code == 400
    assert client.post(f"{API}/resume", json=confirm).json() == {"resumed": True}
    assert client.get(f"{API}/stop").json()["stopped"] is False


def run(client: TestClient, operation: str, **arguments: Any) -> dict[str, Any]:
    answer = client.post(f"{API}/operations/{operation}", json=arguments)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.req("S004-67")
def test_the_seven_operations_answer_with_their_published_messages(tmp_path: Path) -> None:
    client = client_of(make_house(tmp_path, profile="claude-desktop"))
    assert {one["operation"] for one in client.get(f"{API}/operations").json()["operations"]} == {
        *OPERATIONS
    }
    new = {"name": "mine", "description": "A: b", "instructions": "Go."}
    assert run(client, "SKILLS_CREATE", **new)["skill"]["id"] == "user:mine"
    assert run(client, "SKILLS_GET_ALL")["success"]
    file = {"skillId": "user:mine", "fileName": "../x"}
    error = "Access denied: path traversal detected"
    assert run(client, "SKILLS_READ_FILE", **file) == {"success": False, "error": error}
    missing = {"success": False, "error": "Skill not found"}
    assert run(client, "SKILLS_DELETE", skillId="user:none") == missing
    off = run(client, "SKILLS_TOGGLE_ENABLED", skillId="user:mine", enabled=False)
    assert off["skill"]["enabled"] is False
    assert run(client, "SKILLS_DELETE", skillId="user:mine")["success"]
    assert client.post(f"{API}/operations/SKILLS_NONE", json={}).status_code == 404
    wrong = client.post(f"{API}/operations/SKILLS_DELETE", json={})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "config")


@pytest.mark.one_server("agent")
def test_where_nothing_may_change_only_what_reads_is_answered(house: Skillhouse) -> None:
    client = client_of(house, read_only="a coding agent started this")
    changes = [
        ("POST", "/skills", {"name": "a", "description": "b", "instructions": "c"}),
        ("PUT", "/skills/notes/enabled", {"enabled": False}),
        ("POST", "/operations/SKILLS_DELETE", {"skillId": "notes"}),
        ("POST", "/policy/rules", {"effect": "allow", "action": "exec", "pattern": "git *"}),
        ("POST", "/resume", {"confirm": "resume"}),
        ("POST", "/approvals/x/answer", {"answer": "once", "content_digest": "x"}),
    ]
    for method, path, body in changes:
        answer = client.request(method, API + path, json=body)
        assert (path, answer.status_code, answer.json()["code"]) == (path, 403, "read-only")
    assert client.post(f"{API}/operations/SKILLS_GET_ALL", json={}).status_code == 200
