"""Tests of the MCP server at `/mcp` of `skillhouse up`: a real process, and the SDK's client."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from skillhouse.remote import McpServer, connected
from tests.frontends.mcp_peer import LEGACY, PATIENCE_SECONDS, Peer, http_client, text_of, up
from tests.runtime.places import write_skill

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
