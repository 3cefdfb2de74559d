"""Calls over the API: results, questions, idempotency; and the published `POST /rpc`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import (
    API,
    BEARER,
    COOKIE,
    PORT,
    TOKEN,
    client_of,
    make_house,
    token_of,
)
from tests.house.coded import tool, write_code
from tests.house.deferred import kinds_house

from skillhouse import tool as own_tool
from skillhouse.approval import Answer, Connections
from skillhouse.audit import read_records
from skillhouse.extensions.server.app import make_app
from skillhouse.house import Skillhouse
from skillhouse.house.call_keys import CallKeyError, CallKeys
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import SandboxStatus

pytestmark = pytest.mark.slow

WRITE = {"tool": "write", "arguments": {"path": "a.txt", "content": "one"}}


def called(client: TestClient, body: dict[str, Any], key: str = "") -> dict[str, Any]:
    headers = {"idempotency-key": key} if key else {}
    answer = client.post(f"{API}/calls", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_call_goes_through_the_gate_and_its_question_is_answered_over_the_api(
    house: Skillhouse, client: TestClient, tmp_path: Path
) -> None:
    loaded = called(client, {"tool": "skill", "arguments": {"name": "notes"}})
    assert loaded["status"] == "ok"
    assert "Body." in loaded["content"]
    waits = called(client, WRITE)
    assert waits["status"] == "pending"
    (question,) = client.get(f"{API}/approvals").json()["approvals"]
    assert question["id"] == waits["approval_id"]
    path = f"{API}/approvals/{question['id']}"
    wrong = client.post(f"{path}/answer", json={"answer": "once", "content_digest": "x"})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "another-call")
    given = {"answer": "once", "content_digest": question["content_digest"]}
    assert client.post(f"{path}/answer", json=given).json()["answered_on"] == "api"
    assert client.post(f"{path}/answer", json=given).status_code == 409
    done = called(client, {**WRITE, "approval_id": question["id"]})
    assert done["status"] == "ok"
    assert (tmp_path / "project/a.txt").read_text() == "one"
    record = read_records(house.audit_log.path, tool="write", limit=1)[0].record
    assert (record.channel, record.request) == ("api", done["request"])
    one = client.get(f"{API}/audit/records/{record.id}").json()
    assert one["status"] == "ok"


def test_a_forecast_does_nothing_and_asks_nothing(house: Skillhouse, client: TestClient) -> None:
    def forecast(body: dict[str, Any], at: TestClient = client) -> tuple[int, dict[str, Any]]:
        answer = at.post(f"{API}/calls/forecast", json=body)
        return answer.status_code, answer.json()

    status, found = forecast(WRITE)
    assert (status, found["effect"]) == (200, "ask")
    assert "a.txt" in found["title"]
    assert found["reasons"]
    assert forecast({"tool": "skill", "arguments": {"name": "notes"}})[1]["effect"] == "allow"
    assert forecast({"tool": "nothing"})[0] == 404
    assert not house.approvals.pending()
    assert not read_records(house.audit_log.path, limit=9)
    reader = client_of(house, token_of(house, "read"))
    assert forecast(WRITE, reader)[0] == 403


def test_a_question_has_the_callers_id_of_the_call(client: TestClient) -> None:
    called(client, {**WRITE, "call_id": "call_1"})
    (question,) = client.get(f"{API}/approvals").json()["approvals"]
    assert (question["call_id"], question["out_of_band_only"]) == ("call_1", False)


def test_a_record_names_the_model_that_the_caller_names(client: TestClient) -> None:
    called(client, {"tool": "list", "arguments": {}, "model": "openai:gpt-5"})
    (record,) = client.get(f"{API}/audit/records").json()["records"]
    assert record["record"]["model"] == record["outcome"]["model"] == "openai:gpt-5"


@pytest.mark.parametrize("ends", [True, False])
async def test_a_call_ends_with_its_request_where_it_says_so(tmp_path: Path, *, ends: bool) -> None:
    begun, go, ended = anyio.Event(), anyio.Event(), []

    @own_tool(level="read")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go.wait()
        ended.append(True)
        return "ended"

    house = make_house(tmp_path, tools=[wait])
    app = make_app(house, token=TOKEN, port=PORT)
    body = json.dumps({"tool": "wait", "ends_on_disconnect": ends}).encode()
    requests = iter([{"type": "http.request", "body": body}])

    async def receive() -> dict[str, Any]:
        for message in requests:
            return message
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        return

    headers = {**BEARER, "content-type": "application/json", "host": f"127.0.0.1:{PORT}"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"{API}/calls",
        "raw_path": f"{API}/calls".encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    if not ends:
        # Nothing looks whether the client has gone.
        go.set()
    with anyio.fail_after(60):
        await app(scope, receive, send)
    assert ended == ([] if ends else [True])
    (entry,) = read_records(house.audit_log.path, tool="wait", limit=9)
    assert entry.outcome
    assert entry.outcome.error == ("cancelled" if ends else "")


def test_a_repeated_key_makes_no_second_call(
    house: Skillhouse, client: TestClient, tmp_path: Path
) -> None:
    question = called(client, WRITE, "k1")["approval_id"]
    nonce = house.approvals.get(question).request.nonce
    house.approvals.answer(question, Answer.ONCE, by="local", channel="cli", nonce=nonce)
    first = called(client, {**WRITE, "approval_id": question}, "k1")
    assert first["status"] == "ok"
    (tmp_path / "project/a.txt").unlink()
    headers = {"idempotency-key": "k1"}
    again = client.post(f"{API}/calls", json=WRITE, headers=headers)
    assert again.json() == first
    assert again.headers["idempotency-replayed"] == "true"
    assert not (tmp_path / "project/a.txt").exists()
    other = {"tool": "read", "arguments": {"path": "b.txt"}}
    reused = client.post(f"{API}/calls", json=other, headers=headers)
    assert (reused.status_code, reused.json()["code"]) == (422, "key-reused")
    # The key of one token is not that of another.
    caller = client_of(house, token_of(house, "call"))
    mine = caller.post(f"{API}/calls", json=other, headers=headers)
    assert mine.status_code == 200


def test_a_call_whose_process_ended_is_not_made_again(tmp_path: Path) -> None:
    alive = Connections(tmp_path)
    keys = CallKeys(tmp_path, alive)
    assert keys.begin("a", "k", "d") is None
    with pytest.raises(CallKeyError, match="runs still"):
        keys.begin("a", "k", "d")
    with pytest.raises(CallKeyError, match="runs still"):
        CallKeys(tmp_path).begin("a", "k", "d")
    alive.close()
    with pytest.raises(CallKeyError, match="not known"):
        CallKeys(tmp_path).begin("a", "k", "d")
    keys.end("a", "k", "{}")
    assert CallKeys(tmp_path).begin("a", "k", "d") == "{}"
    assert CallKeys(tmp_path, clock=lambda: 2e9 * 2).begin("a", "k", "other") is None


def test_an_unknown_tool_is_a_problem_and_frees_the_key(client: TestClient) -> None:
    headers = {"idempotency-key": "k2"}
    for _ in range(2):
        answer = client.post(f"{API}/calls", json={"tool": "nothing"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-tool")


def rpc(client: TestClient, method: str, **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = client.post("/rpc", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.req("S002-13")
@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (
            "/calls",
            {"tool": "read", "arguments": {"path": "a", "offset": "x"}},
            "wrong argument `offset` of `read`: expected a whole number (at least 1), got `x`",
        ),
        (
            "/operations/SKILLS_TOGGLE_ENABLED",
            {"skillId": "user:notes", "enabled": "x"},
            (
                "wrong argument `enabled` of `SKILLS_TOGGLE_ENABLED`: expected `true` or `false`, "
                "got text"
            ),
        ),
    ],
)
def test_a_wrong_argument_says_what_was_expected_and_what_came(
    client: TestClient, path: str, body: dict[str, Any], text: str
) -> None:
    answer = client.post(API + path, json=body).json()
    assert answer.get("content", answer.get("detail")) == text


def test_the_published_rpc_is_answered(house: Skillhouse, client: TestClient) -> None:
    assert rpc(client, "health") == {"jsonrpc": "2.0", "id": 1, "result": {"status": "ok"}}
    assert rpc(client, "tool.list")["result"] == []
    assert rpc(client, "tool.execute", tool="a:b", args={})["error"]["code"] == -32602
    assert rpc(client, "tool.execute", tool="write", args={})["error"]["code"] == -32602
    assert rpc(client, "core.fetch", url="x")["error"]["code"] == -32601
    note = {"jsonrpc": "2.0", "method": "health"}
    assert client.post("/rpc", json=note).status_code == 204
    assert client.post("/rpc", content=b"{}").status_code == 415
    assert client.get("/rpc").status_code == 405
    browser = client_of(house, COOKIE)
    assert browser.post("/rpc", json=note).status_code == 401
    caller = client_of(house, token_of(house, "call"))
    assert rpc(caller, "health")["result"] == {"status": "ok"}
    assert rpc(caller, "skill.reload")["error"]["code"] == -32601
    reader = client_of(house, token_of(house, "read"))
    assert reader.post("/rpc", json=note).status_code == 403


@pytest.fixture
def printed(tmp_path: Path) -> Skillhouse:
    return printed_house(tmp_path)


def printed_house(tmp_path: Path, *rules: Rule) -> Skillhouse:
    """Return a house of design 002, with trusted skills where it has them."""
    layers = (Layer(name="user", rules=rules),)
    house = make_house(tmp_path, profile="owliabot-js", layers=layers)
    place = tmp_path / "project/workspace/skills"
    code = "tools = {name: lambda params, context: params for name in ('get_balance', 'shared')}\n"
    write_code(place / "crypto-balance", code, tool("get_balance"), tool("shared"))
    write_code(place / "other", code, tool("shared"), tool("read"))
    write_code(place / "broken", "1 / 0\n")
    house.project_trust.trust()
    return house


@pytest.mark.one_server("inside")
@pytest.mark.req("S002-16", "S002-17", "S002-18", "S002-54")
def test_the_printed_request_names_a_tool_without_its_skill(
    printed: Skillhouse, status: SandboxStatus
) -> None:
    printed.services.sandbox.adopt(status)
    # One event loop for all requests: cells end in the one that they began in.
    with client_of(printed) as client:
        is_answered_as_printed(client)
        assert client.portal is not None
        client.portal.call(printed.services.release_loop)


def is_answered_as_printed(client: TestClient) -> None:
    names = [one["name"] for one in rpc(client, "tool.list")["result"]]
    shared = ["crypto-balance:shared", "other:shared"]
    assert sorted(names) == ["broken:tool", "crypto-balance:get_balance", "crypto-balance:shared",
                             "other:read", "other:shared"]  # fmt: skip
    done = rpc(client, "tool.execute", tool="get_balance", args={"chain": "base"})
    assert done["result"] == {"success": True, "data": {"chain": "base"}}
    several = rpc(client, "tool.execute", tool="shared", args={})["error"]
    assert (several["code"], all(name in several["message"] for name in shared)) == (
        -32602,
        True,
    )
    # Nothing of ours is reached so: what the service offers there is of skills alone.
    assert rpc(client, "tool.execute", tool="write", args={})["error"]["code"] == -32602
    reloaded = rpc(client, "skill.reload")["result"]
    assert sorted(reloaded["loaded"]) == ["crypto-balance:get_balance", *shared]
    failed = {one["name"]: one["error"] for one in reloaded["failed"]}
    assert sorted(failed) == ["broken", "other:read"]
    over_api = client.post(f"{API}/reload").json()
    assert sorted(over_api["loaded"]) == sorted(reloaded["loaded"])
    assert (over_api["not_tried"], over_api["failed"]) == ([], reloaded["failed"])
    bare = called(client, {"tool": "get_balance", "arguments": {"chain": "base"}})
    assert bare["status"] == "ok"


def test_a_reload_over_rpc_says_what_no_one_may_run_without_a_question(tmp_path: Path) -> None:
    asks = Rule(effect=Effect.ASK, action="skill_tool", pattern="*")
    client = client_of(printed_house(tmp_path, asks))
    reloaded = rpc(client, "skill.reload")["result"]
    assert (reloaded["loaded"], reloaded["failed"]) == ([], [])
    assert "crypto-balance:get_balance" in reloaded["not_tried"]


@pytest.mark.one_server("session")
def test_tools_without_room_are_found_loaded_and_called(tmp_path: Path) -> None:
    house = kinds_house(tmp_path)
    client = client_of(house)

    def names(query: str = "") -> set[str]:
        found = client.get(f"{API}/tools{query}").json()["tools"]
        return {one["name"] for one in found if one["name"].startswith(("kind", "call"))}

    assert names() == {"call_skill_tool"}
    assert names("?every=true") == {f"kind-{number}__add" for number in range(6)}
    talk = {"session_id": "talk"}
    body = {"tool": "search_skills", "arguments": {"query": "numbers of kind 2"}, **talk}
    found = called(client, body)
    assert found["data"]["tools"][0]["parameters"]["required"] == ["a", "b"]
    called(client, {"tool": "skill", "arguments": {"name": "kind-2"}, **talk})
    assert names("?session_id=talk") == {"call_skill_tool", "kind-2__add"}
    assert names("?session_id=other") == {"call_skill_tool"}
    given = {"name": "kind-2__add", "arguments": {"a": 1}}
    wrong = called(client, {"tool": "call_skill_tool", "arguments": given, **talk})
    assert wrong["status"] == "error"
    assert '"required":["a","b"]' in wrong["content"]
