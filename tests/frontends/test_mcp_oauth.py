"""Tests of logging in at `/mcp` by an authorization server: the SDK's client does it by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from skillhouse.audit import read_records
from tests.authorization_server import authorization_server, table
from tests.balanced import is_replicated
from tests.frontends.mcp_inside import ERAS
from tests.frontends.mcp_peer import PATIENCE_SECONDS, Peer, text_of, up
from tests.house.places import write_skill

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

METADATA = "/.well-known/oauth-protected-resource"
BACK = "http://127.0.0.1:1/callback"


class Kept:
    """What a client keeps of a log-in."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def person(address: str, kept: Kept) -> OAuthClientProvider:
    """Return the client's log-in, with a browser whose user agrees."""
    found: list[AuthorizationCodeResult] = []

    async def open_browser(url: str) -> None:
        async with httpx2.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            answer = await http.get(url, follow_redirects=False)
        back = {
            key: one[0] for key, one in parse_qs(urlsplit(answer.headers["location"]).query).items()
        }
        found.append(AuthorizationCodeResult(**back))

    async def came_back() -> AuthorizationCodeResult:
        return found.pop()

    return OAuthClientProvider(
        server_url=f"{address}/mcp",
        client_metadata=OAuthClientMetadata(client_name="a client", redirect_uris=[AnyUrl(BACK)]),
        storage=kept,
        redirect_handler=open_browser,
        callback_handler=came_back,
    )


@pytest.mark.parametrize("mode", ERAS)
def test_a_client_logs_in_by_itself(tmp_path: Path, mode: str) -> None:
    peer, kept = Peer(tmp_path), Kept()
    write_skill(peer.home / ".agents/skills/notes", "Takes notes.")

    async def work(address: str) -> None:
        async with httpx2.AsyncClient(auth=person(address, kept), timeout=PATIENCE_SECONDS) as http:
            transport = streamable_http_client(f"{address}/mcp", http_client=http)
            with anyio.fail_after(PATIENCE_SECONDS):
                async with Client(transport, mode=mode) as client:
                    names = [tool.name for tool in (await client.list_tools()).tools]
                    assert "skill" in names
                    result = await client.call_tool("skill", {"name": "notes"})
                    assert not result.is_error
                    assert "Takes notes" not in text_of(result)

    with authorization_server() as issuer, up(peer) as (address, _):
        # The running server takes the changed file with the next request.
        peer.configure(table(issuer.issuer, address))
        anyio.run(work, address)
        # Each server asks once.
        assert issuer.asked.count("/jwks") in ((1, 2) if is_replicated() else (1,))
    assert kept.tokens is not None
    assert kept.tokens.scope == "skillhouse"
    records = [one.record for one in read_records(peer.log) if one.record.tool == "skill"]
    assert {(one.user, one.agent, one.channel) for one in records} == {
        ("oauth:alice", "default", "mcp")
    }


def test_what_a_client_without_a_token_learns(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    with (
        authorization_server() as issuer,
        up(peer) as (address, token),
        httpx2.Client(base_url=address, timeout=PATIENCE_SECONDS) as http,
    ):
        # Without the table no address is there, and our own tokens are all there is.
        for path in (METADATA, f"{METADATA}/mcp"):
            assert http.get(path).status_code == 401, path
        refused = http.post("/mcp", json={})
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.headers["content-type"] == "application/json"
        assert refused.json()["error"]["code"] == "unauthorized"

        peer.configure(table(issuer.issuer, address))
        refused = http.post("/mcp", json={})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == (
            f'Bearer scope="skillhouse", resource_metadata="{address}{METADATA}/mcp"'
        )
        for path in (METADATA, f"{METADATA}/mcp"):
            found = http.get(path)
            assert found.status_code == 200
            assert found.headers["content-type"] == "application/json"
            assert json.loads(found.text) == {
                "resource": f"{address}/mcp",
                "authorization_servers": [issuer.issuer],
                "scopes_supported": ["skillhouse"],
                "bearer_methods_supported": ["header"],
                "resource_name": "skillhouse",
            }
            assert http.post(path).status_code == 405
        # Our own tokens stay.
        own = {"authorization": f"Bearer {token}", "accept": "application/json"}
        assert http.post("/mcp", json={}, headers=own).status_code not in (401, 403)


def test_the_configuration_says_who_and_what_is_refused_names_it(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    with authorization_server("carol") as issuer, up(peer) as (address, _):

        def posted(**claims: Any) -> httpx2.Response:
            token = issuer.token(f"{address}/mcp", **claims)
            headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
            with httpx2.Client(timeout=PATIENCE_SECONDS) as http:
                return http.post(f"{address}/mcp", json={}, headers=headers)

        peer.configure(table(issuer.issuer, address))
        refused = posted()
        assert refused.status_code == 403
        assert "www-authenticate" not in refused.headers
        assert refused.json()["error"]["message"] == "this user may not use this service"
        refused = posted(sub="alice", scope="read")
        assert refused.status_code == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
        assert 'scope="skillhouse"' in refused.headers["www-authenticate"]
        assert posted(sub="alice", scope=None, scp=["skillhouse"]).status_code not in (401, 403)

        more = {"user_claim": '"email"', "users": '["*"]', "claims": '{groups = "tools"}'}
        peer.configure(table(issuer.issuer, address, **more))
        assert posted().status_code == 403
        assert posted(email="c@example.com", groups=["staff"]).status_code == 403
        let_in = posted(email="c@example.com", groups=["staff", "tools"])
        assert let_in.status_code not in (401, 403)
