"""Attacks on the HTTP API: each works on a naive service and fails on ours.

The naive service is what an afternoon gives: it takes a token anywhere, and a cookie for
everything; a key opens all, what is in a path is a path, and every reader gets every event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import anyio
import pytest
from starlette.testclient import TestClient

from skillhouse.approval import Answer
from skillhouse.extensions.server.api.events import EventLog
from skillhouse.extensions.server.forms import Proofs
from skillhouse.house import Access, AccessTokens, Skillhouse
from skillhouse.house.access_tokens import AccessError, AccessScope
from skillhouse.store import STATE_FILE
from tests.extensions.server.api.place import (
    API,
    BASE,
    BEARER,
    COOKIE,
    PORT,
    TOKEN,
    client_of,
    make_house,
    token_of,
)
from tests.extensions.server.api.test_packages import applied, planned
from tests.frontends.test_cli_repositories import configure
from tests.registry.repositories import StaticRepository

pytestmark = pytest.mark.slow

FORM = {"content-type": "application/x-www-form-urlencoded"}
SWITCH = f"{API}/skills/notes/enabled"
OFF = {"enabled": False}
ORIGIN = {"origin": BASE}


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    (tmp_path / "outside.txt").write_text("a file outside every skill")
    return make_house(tmp_path)


@pytest.fixture
def naive(house: Skillhouse, tmp_path: Path) -> TestClient:
    return TestClient(naive_app(house, tmp_path / "home/.agents/skills"), BASE)


def naive_app(house: Skillhouse, root: Path):
    """Return the API of an afternoon."""

    async def app(scope, receive, send):
        headers = dict(scope["headers"])
        query = parse_qs(scope["query_string"].decode())
        known = headers.get(b"authorization", b"").startswith(b"Bearer ")
        known = known or b"cookie" in headers or query.get("token") == [TOKEN]
        path = unquote(scope["path"])
        value: Any = {"ok": known}
        if known and "/files/" in path:
            skill, _, file = path.partition("/skills/")[2].partition("/files/")
            value = (root / skill / file).read_text()
        elif known and scope["method"] != "GET":
            await anyio.to_thread.run_sync(
                lambda: house.management.set_enabled("notes", enabled=False)
            )
        status = 200 if known else 401
        start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": []}
        await send(start)
        await send({"type": "http.response.body", "body": json.dumps(value).encode()})

    return app


def is_on(house: Skillhouse) -> bool:
    return house.management.get("user:notes").enabled


def refused(answer: Any, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_rebound_name_reaches_no_route(house: Skillhouse, naive: TestClient) -> None:
    rebound = {**BEARER, "host": f"attacker.example:{PORT}"}
    assert naive.put(SWITCH, json=OFF, headers=rebound).status_code == 200
    assert not is_on(house)
    house.management.set_enabled("notes", enabled=True)
    refused(client_of(house).put(SWITCH, json=OFF, headers=rebound), 421, "wrong-host")
    refused(client_of(house).get(f"{API}/health", headers=rebound), 421, "wrong-host")
    assert is_on(house)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://attacker.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_page_of_another_origin_changes_nothing(
    house: Skillhouse, naive: TestClient, headers: dict[str, str]
) -> None:
    assert naive.put(SWITCH, json=OFF, headers={**COOKIE, **headers}).status_code == 200
    assert not is_on(house)
    house.management.set_enabled("notes", enabled=True)
    for key in (COOKIE, BEARER):
        client = client_of(house, {**key, **headers})
        refused(client.put(SWITCH, json=OFF), 403, "foreign-origin")
        refused(client.get(f"{API}/events"), 403, "foreign-origin")
    assert is_on(house)


def test_a_cookie_without_a_proof_changes_nothing(house: Skillhouse, naive: TestClient) -> None:
    # A browser that sends neither Origin nor Sec-Fetch-Site, and a form in place of JSON.
    assert naive.put(SWITCH, content=b"enabled=false", headers={**COOKIE, **FORM}).is_success
    house.management.set_enabled("notes", enabled=True)
    client = client_of(house, COOKIE)
    changes = [
        ("PUT", SWITCH, OFF),
        ("POST", f"{API}/calls", {"tool": "read", "arguments": {"path": "x"}}),
        ("POST", f"{API}/stop", {}),
        ("DELETE", f"{API}/skills/notes", None),
        ("POST", f"{API}/rehearse", {"request": "x"}),
    ]
    proofs = ("", "x", "0" * 64, "é")
    for method, path, body in changes:
        for proof in proofs:
            headers = {b"skillhouse-proof": proof.encode("latin-1")}
            answer = client.request(method, path, json=body, headers=headers)
            refused(answer, 403, "proof-wanted")
    assert is_on(house)


def test_the_proof_of_one_change_is_none_of_another(house: Skillhouse) -> None:
    proofs, mine = Proofs(lambda: b"key"), Access(kind="browser", id="a1")
    proof = proofs.of(mine, "PUT", SWITCH)
    assert proofs.holds(proof, mine, "PUT", SWITCH)
    for change in (("POST", SWITCH), ("PUT", f"{API}/skills/pdf/enabled"), ("PUT", SWITCH, "more")):
        assert not proofs.holds(proof, mine, *change)
    for other in (Access(), Access(kind="browser", id="b2"), Access(kind="token", id="a1")):
        assert not proofs.holds(proof, other, "PUT", SWITCH)
    assert not Proofs(lambda: b"other").holds(proof, mine, "PUT", SWITCH)
    # A page of ours reads its proofs; one of another origin cannot read an answer.
    client = client_of(house, COOKIE)
    asked = {"method": "PUT", "path": SWITCH}
    given = client.get(f"{API}/proof", params=asked).json()["proof"]
    assert client.put(SWITCH, json=OFF, headers={"skillhouse-proof": given}).status_code == 200
    refused(
        client.delete(f"{API}/skills/notes", headers={"skillhouse-proof": given}),
        403,
        "proof-wanted",
    )
    foreign = {"origin": "https://attacker.example"}
    refused(client.get(f"{API}/proof", params=asked, headers=foreign), 403, "foreign-origin")


def test_the_proof_of_one_browser_is_none_of_another(house: Skillhouse) -> None:
    """Also not the one that a read-only token was given, nor that of a browser that was revoked."""
    tokens = house.services.enforcement.access_tokens
    cookies = [{"cookie": f"skillhouse_{PORT}={tokens.new_browser()}"} for _ in range(2)]
    one, two = (client_of(house, cookie, session=None) for cookie in cookies)
    reader = client_of(house, token_of(house, "read", user="eve"), session=None)
    asked = {"method": "PUT", "path": SWITCH}
    proofs = [c.get(f"{API}/proof", params=asked).json()["proof"] for c in (one, two, reader)]
    assert len(set(proofs)) == 3
    for proof in proofs[1:]:
        refused(one.put(SWITCH, json=OFF, headers={"skillhouse-proof": proof}), 403, "proof-wanted")
    for path in ("/approvals/stop", "/approvals/suggested/x"):
        form = {"csrf_token": two.get(f"{API}/proof", params={"method": "POST", "path": path})}
        form = {"csrf_token": form["csrf_token"].json()["proof"]}
        assert one.post(path, data=form, headers=ORIGIN).status_code in (403, 404)
    assert not house.services.enforcement.tiers.stopped_reason
    (first, _) = (access for access in tokens.all() if access.kind == "browser")
    tokens.revoke(first.id)
    sent = {"skillhouse-proof": proofs[0]}
    refused(one.put(SWITCH, json=OFF, headers=sent), 401, "unauthorized")
    refused(two.put(SWITCH, json=OFF, headers=sent), 403, "proof-wanted")
    assert is_on(house)


def test_the_key_of_the_proofs_is_private_and_outlives_a_start(house: Skillhouse) -> None:
    tokens = house.services.enforcement.access_tokens
    key = tokens.proof_key()
    assert len(key) == 32
    assert AccessTokens(house.config.state_directory).proof_key() == key
    for file in house.config.state_directory.glob(f"{STATE_FILE}*"):
        assert file.stat().st_mode & 0o077 == 0
    asked = {"method": "PUT", "path": SWITCH}
    proof = client_of(house, COOKIE).get(f"{API}/proof", params=asked).json()["proof"]
    sent = {"skillhouse-proof": proof}
    assert client_of(house, COOKIE).put(SWITCH, json=OFF, headers=sent).status_code == 200
    # No page and no answer has the key.
    for path in (
        "/",
        "/system",
        f"{API}/status",
        f"{API}/tokens",
        f"{API}/proof?method=PUT&path=/",
    ):
        assert key.hex() not in client_of(house, COOKIE).get(path).text


def test_a_token_in_the_query_opens_nothing(house: Skillhouse, naive: TestClient) -> None:
    # Addresses end up in histories, logs and the links that people pass on.
    assert naive.get(f"{API}/skills", params={"token": TOKEN}).is_success
    for path in ("/skills", "/events", "/openapi.json"):
        answer = client_of(house, {}).get(API + path, params={"token": TOKEN})
        refused(answer, 401, "unauthorized")
        assert "set-cookie" not in answer.headers
    named = token_of(house, "read")["authorization"].removeprefix("Bearer ")
    for text in (named, named[:-1], named + "x", named.upper(), "skh__", "_", "skh_é_x"):
        assert client_of(house, {}).get("/", params={"token": text}).status_code == 401


@pytest.mark.parametrize(
    "path",
    (
        "..%2f..%2f..%2f..%2foutside.txt ..%252f..%252foutside.txt "
        "%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2foutside.txt %2fetc%2fpasswd "
        "references%2f..%2f..%2f..%2f..%2f..%2foutside.txt ..%5c..%5coutside.txt "
        "SKILL.md%00.txt %ff"
    ).split(),
)
def test_a_path_in_disguise_reads_nothing_outside(
    house: Skillhouse, naive: TestClient, path: str
) -> None:
    first = naive.get(f"{API}/skills/notes/files/..%2f..%2f..%2f..%2foutside.txt", headers=COOKIE)
    assert "a file outside" in first.text
    answer = client_of(house).get(f"{API}/skills/notes/files/{path}")
    assert answer.status_code in (400, 404)
    assert "a file outside" not in answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "path",
    (
        "/api/v1/../../ /api/v1//skills /api/v1/skills/ /api/v1/skills/notes/ "
        "/api/v1/%73kills /api/v1/skills%2fnotes /API/v1/skills /api/v1;x/skills"
    ).split(),
)
def test_another_spelling_of_an_address_is_no_way_around(house: Skillhouse, path: str) -> None:
    for headers in ({}, COOKIE, token_of(house, "approve")):
        answer = client_of(house, headers).put(path, json=OFF)
        assert answer.status_code in (401, 403, 404, 405), (path, answer.status_code)
    assert is_on(house)


def test_a_profile_by_a_path_reads_no_file(house: Skillhouse, tmp_path: Path) -> None:
    client = client_of(house)
    for name in ("..%2f..%2foutside", "%2fetc%2fpasswd", str(tmp_path).replace("/", "%2f")):
        assert client.get(f"{API}/profiles/{name}").status_code == 404
        assert client.get(f"{API}/clients", params={"client": f"../{name}"}).status_code == 404


def test_events_of_another_user_are_not_sent(house: Skillhouse) -> None:
    log = EventLog()

    def naive_stream() -> bytes:
        return b"".join(one.data for one in log.after(0)[0])

    async def read(user: str) -> bytes:
        sent = bytearray()
        stream = log.open(user, log.id_of(0))
        assert stream is not None
        is_sent = anyio.Event()

        async def receive() -> dict[str, Any]:
            await is_sent.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.extend(message.get("body", b""))
            if b"for all" in sent:
                is_sent.set()

        await stream(receive, send)
        return bytes(sent)

    log.publish("question", {"title": "bob pays"}, user="bob")
    log.publish("question", {"title": "eve pays"}, user="eve")
    log.publish("index", {"added": ["for all"]})
    assert b"bob pays" in naive_stream()
    assert b"bob pays" not in anyio.run(read, "eve")
    assert b"eve pays" in anyio.run(read, "eve")
    assert b"bob pays" in anyio.run(read, "local")


def test_a_reader_whose_token_was_revoked_is_sent_nothing_more(house: Skillhouse) -> None:
    log, tokens = EventLog(), house.services.enforcement.access_tokens
    access, _ = tokens.new("spy", [AccessScope.READ])

    async def read(holds: Callable[[], bool]) -> bytes:
        sent = bytearray()
        stream = log.open("local", "", holds=holds)
        assert stream is not None

        async def receive() -> dict[str, Any]:
            await anyio.sleep_forever()
            raise AssertionError

        async def send(message: Any) -> None:
            sent.extend(message.get("body", b""))
            if b"for who is known" in sent and b"after" not in sent:
                tokens.revoke(access.id)
                log.publish("index", {"added": ["after"]})

        with anyio.move_on_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream, receive, send)
                while not log.readers:  # noqa: ASYNC110 - the log has no event for it.
                    await anyio.sleep(0.001)
                log.publish("index", {"added": ["for who is known"]})
                while log.readers and b"after" not in sent:  # noqa: ASYNC110 - likewise.
                    await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()
        return bytes(sent)

    ours = anyio.run(read, lambda: tokens.holds(access.id))
    assert b"for who is known" in ours
    assert b"after" not in ours
    access, _ = tokens.new("spy", [AccessScope.READ])
    assert b"after" in anyio.run(read, lambda: True)


def test_an_answer_to_what_was_shown_installs_nothing_else(tmp_path: Path) -> None:
    made = StaticRepository(tmp_path / "official")
    made.make("1.0.0", "memo")
    configure(tmp_path, ("official", made.address, True))
    client = client_of(make_house(tmp_path))
    request = {"action": "install", "source": "memo"}
    (plan,) = planned(client, **request)
    made.make("1.1.0", "memo")
    for answer in (
        {"plan_digest": plan["plan_digest"], "answers": plan["questions"]},
        {"plan_digest": "sha256:00", "answers": ["unsigned", "untrusted", "edited"]},
    ):
        (done,) = applied(client, {"memo": answer}, **request)
        assert (done["status"], done["error"]["code"]) == ("refused", "plan-changed")
    other = tmp_path / "other"
    other.mkdir()
    thief = client_of(make_house(other), COOKIE)
    for path in ("/changes", "/changes/plan", "/outdated", "/verify", "/fixes/0"):
        refused(thief.post(API + path, json={}), 403, "proof-wanted")
    assert not (tmp_path / "home/.agents/skills/memo").exists()
    # A naive service shows a name, and takes the answer for whatever has that name by then.
    (brought,) = planned(client, **request)
    naive = {"plan_digest": brought["plan_digest"], "answers": plan["questions"]}
    (done,) = applied(client, {"memo": naive}, **request)
    assert (done["status"], plan["version"], done["version"]) == ("installed", "1.0.0", "1.1.0")


def test_questions_grants_and_records_of_another_user_are_not_shown(house: Skillhouse) -> None:
    write = {"path": "a.txt", "content": "secret of bob"}
    question = house.call_sync("write", write, user="bob").approval_id
    assert question
    eve = client_of(house, token_of(house, "read", user="eve"))
    assert eve.get(f"{API}/approvals", params={"all": "true"}).json()["total"] == 0
    refused(eve.get(f"{API}/approvals/{question}"), 404, "unknown")
    records = eve.get(f"{API}/audit/records", params={"user": "bob"}).json()["records"]
    assert {one["record"]["user"] for one in records} <= {"eve"}
    for suffix in ("json", "csv"):
        assert "bob" not in eve.get(f"{API}/audit/export.{suffix}?user=bob").text
    answers = client_of(house, token_of(house, "approve", user="eve"))
    digest = house.approvals.get(question).request.content_digest
    given = {"answer": "once", "content_digest": digest}
    refused(answers.post(f"{API}/approvals/{question}/answer", json=given), 404, "unknown")
    bob = client_of(house, token_of(house, "read", user="bob", name="bob"))
    assert bob.get(f"{API}/approvals/{question}").json()["user"] == "bob"


def test_a_stolen_cookie_opens_neither_mcp_nor_rpc(house: Skillhouse, naive: TestClient) -> None:
    assert naive.post("/mcp", headers=COOKIE, json={}).is_success
    stolen = client_of(house, {}, session=None)
    cookie = stolen.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    body = {"jsonrpc": "2.0", "id": 1, "method": "tool.list"}
    thief = client_of(house, {"cookie": cookie}, session=None)
    assert thief.get(f"{API}/skills").status_code == 200
    assert thief.post("/mcp", json=body).status_code == 401
    assert thief.post("/rpc", json=body).status_code == 401
    value = cookie.partition("=")[2]
    bearer = {"authorization": f"Bearer {value}"}
    assert client_of(house, bearer, session=None).get(f"{API}/skills").status_code == 401
    # Revoked, it opens nothing any more, in this process and in each other one.
    tokens = house.services.enforcement.access_tokens
    (browser,) = [one for one in tokens.all() if one.kind == "browser"]
    tokens.revoke(browser.id)
    assert thief.get(f"{API}/skills").status_code == 401


NEEDS = {
    "read": ("GET", f"{API}/skills", None),
    "manage": ("PUT", SWITCH, {"enabled": True}),
    "call": ("POST", f"{API}/calls", {"tool": "list", "arguments": {"path": "."}}),
    "approve": ("DELETE", f"{API}/grants/none", None),
}


@pytest.mark.parametrize("scope", list(NEEDS))
def test_a_named_token_does_what_its_scope_names_and_nothing_else(
    house: Skillhouse, naive: TestClient, scope: str
) -> None:
    key = token_of(house, scope)
    assert naive.put(SWITCH, json=OFF, headers=key).is_success
    client = client_of(house, key)
    for needed, (method, path, body) in NEEDS.items():
        answer = client.request(method, path, json=body)
        if needed == scope:
            assert answer.status_code in (200, 404), answer.text
        else:
            refused(answer, 403, "scope-wanted")
    # Pages are the owner's; what is published beside v1 needs the same scopes, and `/mcp` calls.
    assert client.get("/").status_code == 403
    if scope != "call":
        assert client.post("/mcp", json={}).status_code == 403
    assert client.get("/api/operations").status_code == (200 if scope == "read" else 403)
    listed = {"operation": "SKILLS_GET_ALL"}
    expected = 200 if scope == "manage" else 403
    assert client.post("/api/operations", json=listed).status_code == expected
    assert client.post("/approvals/stop", content=b"", headers=FORM).status_code == 403


def test_a_token_of_one_agent_is_no_other_agent(house: Skillhouse) -> None:
    caller = client_of(house, token_of(house, "call", agent="reviewer"))
    body = {"tool": "read", "arguments": {"path": "x"}, "agent": "default"}
    refused(caller.post(f"{API}/calls", json=body), 403, "scope-wanted")


def test_no_token_calls_and_answers_its_own_question(house: Skillhouse) -> None:
    tokens = house.services.enforcement.access_tokens
    with pytest.raises(AccessError, match="must not approve its own calls"):
        tokens.new("both", [AccessScope.CALL, AccessScope.APPROVE])
    caller = client_of(house, token_of(house, "call"))
    body = {"tool": "write", "arguments": {"path": "a.txt", "content": "b"}}
    question = caller.post(f"{API}/calls", json=body).json()["approval_id"]
    digest = house.approvals.get(question).request.content_digest
    given = {"answer": Answer.ONCE.value, "content_digest": digest}
    refused(caller.post(f"{API}/approvals/{question}/answer", json=given), 403, "scope-wanted")


def test_a_token_is_not_in_the_state_and_ends_when_it_should(
    house: Skillhouse, tmp_path: Path
) -> None:
    key = token_of(house, "read", days=1)
    token = key["authorization"].removeprefix("Bearer ")
    secret = token.split("_", 2)[2].encode()
    state = house.config.state_directory
    assert all(secret not in file.read_bytes() for file in state.rglob("*") if file.is_file())
    tokens = house.services.enforcement.access_tokens
    assert tokens.find(token, "token") is not None
    assert tokens.find(token, "browser") is None
    later = type(tokens)(state, clock=lambda: 4e9)
    assert later.find(token, "token") is None
