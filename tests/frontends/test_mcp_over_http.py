"""Tests of the MCP server at `/mcp` of `skillhouse up`: a real process, and the SDK's client."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from skillhouse.frontends.mcp import over_http
from skillhouse.frontends.mcp.over_http import McpOverHttp
from skillhouse.house import Access, Skillhouse, configured
from skillhouse.remote import McpServer, connected
from tests.frontends.mcp_inside import YES, Person
from tests.frontends.mcp_peer import (
    LEGACY,
    PATIENCE_SECONDS,
    Peer,
    http_client,
    running_up,
    text_of,
    up,
)
from tests.house.places import make_places, write_skill

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools_and_skills_are_served_to_who_has_the_token(tmp_path: Path, mode: str) -> None:
    peer = Peer(tmp_path)
    write_skill(peer.home / ".agents/skills/notes", "Takes notes.")

    async def work(address: str, token: str) -> None:
        headers = {"authorization": f"Bearer {token}"}
        with anyio.fail_after(PATIENCE_SECONDS):
            async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as http:
                transport = streamable_http_client(f"{address}/mcp", http_client=http)
                async with Client(transport, mode=mode) as client:
                    names = [tool.name for tool in (await client.list_tools()).tools]
                    assert "skill" in names
                    result = await client.call_tool("skill", {"name": "notes"})
                    assert not result.is_error
                    found = (await client.list_resources()).resources
                    assert "skill://user/notes/SKILL.md" in [one.uri for one in found]
                if mode == "auto":
                    server = McpServer(label="up", url=f"{address}/mcp")
                    again = streamable_http_client(f"{address}/mcp", http_client=http)
                    async with connected(server, transport=lambda _: again) as other:
                        assert len(await other.list_skills()) == 4

    with up(peer) as (address, token):
        anyio.run(work, address, token)


def test_two_clients_have_conversations_of_their_own(tmp_path: Path) -> None:
    """What one client's model has loaded is no reason to read it for the other's."""
    peer = Peer(tmp_path)
    skill = write_skill(peer.home / ".agents/skills/notes", "Takes notes.")
    (skill / "more.md").write_text("more\n")
    more = {"path": str(skill / "more.md")}

    async def work(address: str, token: str) -> None:
        async with (
            http_client(address, token, LEGACY) as one,
            http_client(address, token, LEGACY) as two,
        ):
            await one.call_tool("skill", {"name": "notes"})
            assert text_of(await one.call_tool("read", more)) == "more\n"
            assert "not approved yet" in text_of(await two.call_tool("read", more))
            capabilities = one.server_capabilities
            assert capabilities.tools is not None
            assert capabilities.tools.list_changed

    with up(peer) as (address, token):
        anyio.run(work, address, token)


def test_nobody_else_is_answered(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    def status(http: httpx2.Client, url: str, **headers: str) -> int:
        answer = http.post(
            url, json=body, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )
        return answer.status_code

    with up(peer) as (address, token), httpx2.Client(timeout=PATIENCE_SECONDS) as http:
        url = f"{address}/mcp"
        right = f"Bearer {token}"
        assert status(http, url) == 401
        assert status(http, url, authorization="Bearer wrong") == 401
        assert status(http, url, authorization=right, host="evil.example") == 421
        assert status(http, url, authorization=right, origin="http://evil.example") == 403
        assert status(http, url, authorization=right, sec_fetch_site="cross-site") == 403
        # A page in a browser that has the cookie is no client.
        http.get(f"{address}/", params={"token": token})
        assert http.get(f"{address}/").status_code == 200
        assert status(http, url) == 401
        assert http.put(url, headers={"authorization": right}).status_code == 405
        assert http.post(f"{address}/", headers={"authorization": right}).status_code == 405


AGENTS = """
[[agents.reviewer.rules]]
effect = "deny"
action = "skill"
pattern = "notes"
"""
ACCEPTS = {"accept": "application/json, text/event-stream"}


def named(peer: Peer, name: str, *options: str) -> str:
    """Return a new named token."""
    return peer.skillhouse("tokens", "new", name, *options).strip()


def test_a_named_token_calls_as_its_own_agent_and_user(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    peer.configure(AGENTS)
    write_skill(peer.home / ".agents/skills/notes", "Takes notes.")
    bob = named(peer, "bob", "--scope", "call", "--agent", "reviewer", "--user", "bob")
    eve = named(peer, "eve", "--scope", "call", "--user", "eve")
    reader = named(peer, "reader", "--scope", "read", "--scope", "manage")
    write = {"path": "a.txt", "content": "b"}

    async def work(address: str, token: str) -> None:
        person = Person(YES)
        async with http_client(address, bob, LEGACY, elicitation_callback=person) as client:
            # This agent has another rule, and no prompts: those are a person's.
            assert (await client.call_tool("skill", {"name": "notes"})).is_error
            # What a program says in place of a person is asked for by none, and counts for nothing.
            assert "not approved yet" in text_of(await client.call_tool("write", write))
            assert person.shown == []
            assert (await client.list_prompts()).prompts == []
        async with http_client(address, eve, LEGACY) as client:
            assert not (await client.call_tool("skill", {"name": "notes"})).is_error
        async with http_client(address, token, LEGACY) as client:
            assert not (await client.call_tool("skill", {"name": "notes"})).is_error

    with up(peer) as (address, token), httpx2.Client(timeout=PATIENCE_SECONDS) as http:
        anyio.run(work, address, token)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for key in (reader, bob[:-1] + "x"):
            answer = http.post(
                f"{address}/mcp", json=body, headers={"authorization": f"Bearer {key}"}
            )
            assert answer.status_code == (403 if key == reader else 401)
    records = json.loads(peer.skillhouse("audit", "list", "--json"))["records"]
    calls = [one["record"] for one in records if one["record"]["tool"] in ("skill", "write")]
    found = {(one["tool"], one["agent"], one["user"], one["channel"]) for one in calls}
    assert found == {
        ("write", "reviewer", "bob", "mcp"),
        ("skill", "default", "eve", "mcp"),
        ("skill", "default", "local", "mcp"),
    }


def test_a_session_of_one_token_is_unknown_to_another_and_ends_with_its_own(
    tmp_path: Path,
) -> None:
    peer = Peer(tmp_path)
    bob = named(peer, "bob", "--scope", "call", "--user", "bob")
    eve = named(peer, "eve", "--scope", "call", "--user", "eve")
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    more = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}

    with up(peer) as (address, _), httpx2.Client(timeout=PATIENCE_SECONDS) as http:

        def post(key: str, body: dict[str, object], **headers: str) -> httpx2.Response:
            given = {"authorization": f"Bearer {key}", **ACCEPTS, **headers}
            return http.post(f"{address}/mcp", json=body, headers=given)

        session = {"mcp-session-id": post(bob, begin).headers["mcp-session-id"]}
        assert post(bob, more, **session).status_code == 200
        unknown = post(eve, more, **session)
        assert unknown.status_code == 404, unknown.text
        # A stream that is open ends soon after its token was revoked, not only the next request.
        given = {"authorization": f"Bearer {bob}", **ACCEPTS, **session}
        with http.stream("GET", f"{address}/mcp", headers=given) as stream:
            assert stream.status_code == 200
            peer.skillhouse("tokens", "revoke", "bob")
            for _ in stream.iter_bytes():
                pass
        assert post(bob, more, **session).status_code == 401


def test_what_the_network_reaches_demands_a_token_and_says_so(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    with running_up(peer, "--host", "0.0.0.0") as (process, address, token):
        port = address.rpartition(":")[2]
        with httpx2.Client(timeout=PATIENCE_SECONDS) as http:
            for path in ("/mcp", "/rpc", "/api/v1/calls", "/api/v1/skills"):
                url = f"http://127.0.0.1:{port}{path}"
                assert http.post(url, json={}).status_code == 401, path
            given = {"authorization": f"Bearer {token}"}
            found = http.get(f"http://127.0.0.1:{port}/api/v1/skills", headers=given)
            assert found.status_code == 200
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert "the network reaches this service; it demands a token" in errors


def test_a_request_while_it_is_looked_whether_tokens_have_ended_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a token, whose request moves its server to the end of those that were used."""
    looks, go_on = threading.Semaphore(0), threading.Event()
    monkeypatch.setattr(over_http, "ENDED_SECONDS", 0.01)

    def holds(_: str) -> bool:
        looks.release()
        return go_on.wait(PATIENCE_SECONDS)

    access = Access(kind="token", id="a", name="a", user="eve", agent="default")
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    async def work(house: Skillhouse) -> None:
        app: Any = McpOverHttp(house, access=lambda _: access, holds=holds)
        headers = {"authorization": "Bearer a", **ACCEPTS}
        http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://up", headers=headers
        )

        async def looked() -> bool:
            return await anyio.to_thread.run_sync(looks.acquire, True, 5)

        async def is_answered() -> bool:
            answer = await http.post("/mcp", json=ping)
            return answer.status_code == 200

        with anyio.fail_after(PATIENCE_SECONDS):
            async with app.running(), http:
                assert await is_answered()
                assert await looked()
                assert await is_answered()
                go_on.set()
                # The next look: the one before went on to its end.
                assert await looked()
                assert await is_answered()

    with Skillhouse(configured(make_places(tmp_path))) as house:
        anyio.run(work, house)
