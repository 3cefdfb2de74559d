"""Attacks on servers that share a state: a peer that forges, a balancer that says who calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from skillhouse.approval import Answer, ApprovalBroker, ApprovalError, LiveServers, content_digest
from skillhouse.extensions.server.app import make_app
from skillhouse.house import Skillhouse, configured
from skillhouse.store import STATE, STATE_FILE, pooled
from tests.approval.questions import broker_at, question
from tests.extensions.server.api.place import token_of
from tests.house.places import make_places

API = "/api/v1"
FIRST, SECOND = 8601, 8602


@contextmanager
def two(base: Path, *, read_only: str = "") -> Iterator[tuple[TestClient, TestClient, Skillhouse]]:
    """Serve one state twice; what a coding agent started is the first, with `read_only`."""
    config = configured(make_places(base))
    with Skillhouse(config) as first, Skillhouse(config) as second:
        clients = []
        for house, port, why in ((first, FIRST, read_only), (second, SECOND, "")):
            app = make_app(house, token=f"{port:043d}", port=port, read_only=why)
            # As `skillhouse up` does before it announces the address.
            house.services.enforcement.connections.servers.begin(
                name=str(port),
                version="1",
                token="" if why else f"{port:043d}",
                beats=False,
            )
            address = f"http://127.0.0.1:{port}"
            clients.append(TestClient(app, address, follow_redirects=False))
        yield clients[0], clients[1], second


def key(port: int) -> dict[str, str]:
    return {"authorization": f"Bearer {port:043d}"}


def signed_in(client: TestClient, port: int) -> str:
    """Open the page, and return the value of its cookie."""
    answer = client.get(f"/?token={port:043d}")
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    client.cookies.clear()
    return str(cookie)


def test_a_digest_that_a_peer_writes_beside_an_answer_opens_no_other_call(tmp_path: Path) -> None:
    """The naive version compares the column alone."""
    broker = broker_at(tmp_path)
    shown = broker.open(question(content='{"a":1}', content_digest=content_digest('{"a":1}')))
    other = content_digest('{"rm":"/"}')
    broker.answer(shown.id, Answer.ONCE, by="local", channel="page", nonce=shown.request.nonce)
    with pooled(tmp_path / STATE_FILE, STATE) as store, store.transaction() as connection:
        connection.execute("UPDATE approval SET content_digest = ?", (other,))
    request = shown.request
    with pytest.raises(ApprovalError):
        broker.redeem(shown.id, other, request.session, request.client, request.connection)
    # Nor with the digest in the question itself, whose shown content is another.
    with pooled(tmp_path / STATE_FILE, STATE) as store, store.transaction() as connection:
        stored = json.loads(connection.execute("SELECT request FROM approval").fetchone()[0])
        connection.execute(
            "UPDATE approval SET request = ?", (json.dumps({**stored, "content_digest": other}),)
        )
    with pytest.raises(ApprovalError):
        broker.redeem(shown.id, other, request.session, request.client, request.connection)


def test_an_answer_with_the_nonce_of_another_question_counts_at_no_server(tmp_path: Path) -> None:
    first, second = broker_at(tmp_path), broker_at(tmp_path)
    one = first.open(question(content="1", content_digest=content_digest("1")))
    two_ = first.open(question(content="2", content_digest=content_digest("2")))
    with pytest.raises(ApprovalError, match="another question"):
        second.answer(one.id, Answer.ONCE, by="local", channel="page", nonce=two_.request.nonce)
    assert {each.state.value for each in second.pending()} == {"open"}


def test_a_peer_cannot_have_a_dead_connection_of_another_owner(tmp_path: Path) -> None:
    """A row says who is alive, never whose a question is."""
    broker = ApprovalBroker(tmp_path)
    asked = broker.open(question(client="editor", connection="0000000000001-aa-owner1"))
    forger = LiveServers(tmp_path)
    forger.begin(name="forger", version="1", beats=False)
    forger.hold("9999999999999-bb-owner2")
    with closing(forger):
        for mine in ("9999999999999-bb-owner2", "9999999999999-bb-owner1"):
            is_own = broker.connections.own(asked.request, "editor", mine)
            # The owner is alive here, whatever rows say.
            assert not is_own
    broker.connections.close()
    own = broker.connections.own
    assert own(asked.request, "editor", "9999999999999-bb-owner1")
    assert not own(asked.request, "editor", "9999999999999-bb-owner2")


def test_a_stolen_cookie_opens_no_server_after_it_was_revoked(tmp_path: Path) -> None:
    with two(tmp_path) as (first, second, house):
        stolen = signed_in(first, FIRST)
        names = (f"skillhouse_{FIRST}", f"skillhouse_{SECOND}", "skillhouse_1")
        for name in names:
            assert second.get("/", headers={"cookie": f"{name}={stolen}"}).status_code == 200
        tokens = house.services.enforcement.access_tokens
        (browser,) = [one for one in tokens.all() if one.kind == "browser"]
        tokens.revoke(browser.id)
        for client in (first, second):
            for name in names:
                assert client.get("/", headers={"cookie": f"{name}={stolen}"}).status_code == 401


def test_a_named_token_that_was_revoked_at_one_server_opens_none(tmp_path: Path) -> None:
    with two(tmp_path) as (first, second, house):
        header = token_of(house, "read", name="ci")
        assert first.get(f"{API}/skills", headers=header).status_code == 200
        assert second.delete(f"{API}/tokens/ci", headers=key(SECOND)).status_code == 200
        assert first.get(f"{API}/skills", headers=header).status_code == 401


def test_what_a_coding_agent_starts_gives_no_key_to_a_persons_server(tmp_path: Path) -> None:
    """An agent that starts a server reads its token; nothing is approved on that one."""
    with two(tmp_path, read_only="an agent runs it") as (agents, persons, _):
        assert agents.get(f"{API}/status", headers=key(FIRST)).status_code == 200
        assert persons.get(f"{API}/status", headers=key(FIRST)).status_code == 401
        assert persons.get(f"/?token={FIRST:043d}").status_code == 401
        cookie = signed_in(agents, FIRST)
        for name in (f"skillhouse_{FIRST}", f"skillhouse_{SECOND}"):
            assert persons.get("/", headers={"cookie": f"{name}={cookie}"}).status_code == 401
        # The other way round there is nothing to win.
        assert agents.get(f"{API}/status", headers=key(SECOND)).status_code == 200


FORWARDED = {
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": f"127.0.0.1:{SECOND}",
    "x-forwarded-proto": "https",
    "x-forwarded-port": "443",
    "x-forwarded-prefix": "/admin",
    "x-forwarded-user": "anna",
    "x-real-ip": "127.0.0.1",
    "forwarded": "for=127.0.0.1;host=localhost;proto=https",
    "x-original-url": "/",
    "x-rewrite-url": "/",
    "x-remote-user": "anna",
}


def test_what_a_balancer_adds_changes_neither_who_calls_nor_what_is_answered(
    tmp_path: Path,
) -> None:
    with two(tmp_path) as (_, second, house):
        caller = token_of(house, "call", "read", name="ci")
        call: dict[str, Any] = {
            "tool": "write",
            "arguments": {"path": "a.txt", "content": "x"},
        }
        plain = second.post(f"{API}/calls", json=call, headers=caller).json()
        dressed = second.post(f"{API}/calls", json=call, headers={**caller, **FORWARDED}).json()
        # The same caller, and so the same question.
        assert dressed["approval_id"] == plain["approval_id"]
        (asked,) = house.approvals.pending()
        assert asked.request.user == "local"
        # Neither a key nor a Host of ours comes from them.
        assert second.get(f"{API}/status", headers=FORWARDED).status_code == 401
        foreign = {**key(SECOND), **FORWARDED, "host": "evil.example"}
        assert second.get(f"{API}/status", headers=foreign).status_code == 421
        # A probe may have any Host, and is told one word.
        ready = second.get("/readyz", headers={"host": "10.0.0.7:8602"})
        assert ready.json() == {"status": "ready", "reasons": []}
        assert second.post("/readyz", headers={"host": "10.0.0.7:8602"}).status_code == 421
