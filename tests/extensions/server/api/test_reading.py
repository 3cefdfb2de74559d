"""The routes that read: values, pages, tags, problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import API, COOKIE, client_of, token_of
from tests.house.places import write_skill

from skillhouse.house import Skillhouse

pytestmark = pytest.mark.slow


def test_the_values_are_those_of_the_command_line(house: Skillhouse, client: TestClient) -> None:
    listed = client.get(f"{API}/skills").json()
    assert (listed["list"], listed["total"], listed["next"]) == ("skills", 5, None)
    assert [skill["id"] for skill in listed["skills"]][:2] == ["user:notes", "user:pdf"]
    shown = client.get(f"{API}/skills/notes").json()
    assert (shown["state"], shown["decision"]["effect"]) == ("in-use", "allow")
    assert "body" not in shown
    assert client.get(f"{API}/skills/user:notes/content").json()["body"] == "Body.\n"
    files = client.get(f"{API}/skills/notes/files").json()
    assert files["types"] == {"references/list.md": "markdown"}
    one = client.get(f"{API}/skills/notes/files/references%2Flist.md").json()
    assert one == {"name": "references/list.md", "content": "- one\n"}
    hits = client.get(f"{API}/search", params={"q": "merge files", "limit": 1}).json()["hits"]
    assert [hit["id"] for hit in hits] == ["user:pdf"]


def test_a_list_comes_in_pages_that_lose_and_repeat_nothing(
    client: TestClient, tmp_path: Path
) -> None:
    for number in range(7):
        write_skill(tmp_path / f"home/.agents/skills/s{number}")
    found: list[str] = []
    query = {"limit": "3"}
    while True:
        answer = client.get(f"{API}/skills", params=query).json()
        assert answer["total"] == 12
        found += [skill["id"] for skill in answer["skills"]]
        if answer["next"] is None:
            break
        query["cursor"] = answer["next"]
    assert len(found) == len(set(found)) == 12
    for cursor in ("x", "WzEsMl0", "%00", "WzEsIngiXQ"):
        problem = client.get(f"{API}/skills", params={"cursor": cursor})
        assert problem.json()["code"] in ("wrong-cursor", "cursor-ended")


def test_an_answer_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    first = client.get(f"{API}/skills")
    tag = first.headers["etag"]
    again = client.get(f"{API}/skills", headers={"if-none-match": f'"x", W/{tag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(f"{API}/skills", headers={"if-none-match": '"x"'}).status_code == 200
    head = client.head(f"{API}/skills")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "nothing-here"),
        ("GET", "", 404, "nothing-here"),
        ("GET", "/skills/none", 404, "unknown-skill"),
        ("GET", "/skills/%ff", 404, "nothing-here"),
        ("GET", "/skills/notes/files/..%2f..%2fx", 404, "path-parent"),
        ("GET", "/skills/notes/files/none", 404, "not-found"),
        ("GET", "/skills?limit=0", 400, "wrong-parameter"),
        ("GET", "/skills?limit=five", 400, "wrong-parameter"),
        ("GET", "/skills?limit=1&limit=2", 400, "wrong-parameter"),
        ("GET", "/skills?colour=red", 400, "wrong-parameter"),
        ("GET", "/search", 400, "wrong-parameter"),
        ("GET", "/tools?agent=nobody", 422, "config"),
        ("PUT", "/search", 405, "wrong-method"),
        ("POST", "/rehearse", 415, "json-wanted"),
    ],
)
def test_an_error_is_a_problem_with_a_stable_code(
    client: TestClient, method: str, path: str, status: int, code: str
) -> None:
    answer = client.request(method, f"{API}{path}")
    value = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, value["status"], value["code"]) == (status, status, code)
    assert value["type"] == f"urn:skillhouse:problem:{code}"
    if status == 405:
        assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "not-json"),
        (b'{"request": "a", "request": "b"}', 400, "not-json"),
        (b"[" * 10_000, 400, "not-json"),
        (b'{"request": 1}', 400, "wrong-body"),
        (b'{"request": "a", "more": 1}', 400, "wrong-body"),
        (b" " * 70_000, 413, "too-large"),
    ],
)
def test_a_body_of_another_shape_is_refused(
    client: TestClient, body: bytes, status: int, code: str
) -> None:
    kind = {"content-type": "application/json"}
    answer = client.post(f"{API}/rehearse", content=body, headers=kind)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.one_server("agent")
def test_a_rehearsal_changes_nothing_and_is_answered_where_nothing_may_change(
    house: Skillhouse,
) -> None:
    client = client_of(house, read_only="a coding agent started this")
    answer = client.post(f"{API}/rehearse", json={"request": "merge pdf files"})
    assert answer.status_code == 200
    assert answer.json()["skill"]["id"] == "user:pdf"


def test_health_needs_no_key_and_everything_else_does(house: Skillhouse) -> None:
    client = client_of(house, {})
    assert client.get(f"{API}/health").json() == {"status": "ok"}
    answer = client.get(f"{API}/skills")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.get(f"{API}/skills", headers=COOKIE).status_code == 200
    assert client.get(f"{API}/skills", headers=token_of(house, "read")).status_code == 200


@pytest.mark.one_server("inside")
def test_a_fault_of_ours_says_nothing_of_this_machine(
    house: Skillhouse, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("secret place")

    monkeypatch.setattr(house, "refresh", broken)
    answer = client.get(f"{API}/skills")
    assert (answer.status_code, answer.json()["code"]) == (500, "broken")
    assert "secret" not in json.dumps(answer.json())


REFUSED_BEFORE = pytest.mark.one_server("balancer")


@pytest.mark.parametrize(
    "query",
    [
        *("🎉", "\0", '" OR NEAR( * ^', "طائرة \u202e"),
        *(pytest.param(long, marks=REFUSED_BEFORE) for long in ("kite " * 9_000, "数据" * 3_000)),
    ],
)
def test_no_query_fails(client: TestClient, query: str) -> None:
    answer = client.get(f"{API}/search", params={"q": query})
    # What is longer than a parameter may be is refused, and never an error of ours.
    assert answer.status_code == 200 or (answer.status_code == 400 and "code" in answer.json())
