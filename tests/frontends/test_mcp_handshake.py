"""Tests of the early answers to a client that begins with `server/discover`."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillhouse.frontends.mcp.handshake import MODERN_VERSIONS, FastHandshake
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.frontends.mcp.tried_clients import Places
from skillhouse.house import Skillhouse, configured
from tests.frontends.mcp_inside import sdk_answers
from tests.frontends.mcp_peer import Peer, Pipe

pytestmark = pytest.mark.slow

META = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{META}protocolVersion": "2026-07-28",
    f"{META}clientInfo": {"name": "test", "version": "1"},
    f"{META}clientCapabilities": {"elicitation": {"form": {}}},
}


def request(method: str, request_id: int | str = 1, **meta: Any) -> dict[str, Any]:
    """Return a request of 2026-07-28; each of `meta` replaces a value of its envelope."""
    envelope = {**ENVELOPE, **{f"{META}{key}": value for key, value in meta.items()}}
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": method,
        "params": {"_meta": envelope},
    }


def test_the_modern_versions_of_the_greeter_are_those_of_the_sdk() -> None:
    assert MODERN_VERSIONS == MODERN_PROTOCOL_VERSIONS


def test_the_greeter_discovers_and_lists_as_the_sdk_does(peer: Peer) -> None:
    house = Skillhouse(configured(peer.places))
    listing = ToolListing(house, "default")
    server = SkillhouseServer(house, listing, agent="default", user="local")
    fast_handshake = FastHandshake()
    fast_handshake.set_instructions({Places.EACH: listing.instructions()})
    fast_handshake.set_tools({Places.EACH: listing.tools()})
    requests = [request("server/discover", "a"), request("tools/list", 2, progressToken=0)]

    found = [fast_handshake.answer(each) for each in requests]
    assert [json.loads(answer or b"") for answer in found] == anyio.run(
        sdk_answers, server, requests
    )
    assert fast_handshake.handshake == []


@pytest.mark.parametrize(
    "message",
    [
        request("server/discover", protocolVersion="2027-01-01"),
        request("server/discover", protocolVersion=["2026-07-28"]),
        request("server/discover", clientCapabilities=None),
        request("server/discover", clientCapabilities={"roots": 5}),
        request("server/discover", clientInfo={"name": "test"}),
        {**request("server/discover"), "id": True},
        {**request("server/discover"), "params": {}},
        {**request("tools/list"), "params": {"_meta": ENVELOPE, "cursor": "x"}},
    ],
)
def test_other_requests_of_2026_07_28_are_left_to_the_sdk(message: dict[str, Any]) -> None:
    fast_handshake = FastHandshake()
    fast_handshake.set_tools({Places.EACH: []})
    assert fast_handshake.answer(message) is None


def test_a_client_that_discovers_is_answered_before_the_sdk_is_there_and_served_after_it(
    peer: Peer,
) -> None:
    with Pipe(peer) as pipe:
        for at, method in enumerate(("server/discover", "tools/list", "prompts/list")):
            pipe.write(json.dumps(request(method, at)).encode())
        found = [pipe.receive() for _ in range(3)]
        assert [message["id"] for message in found] == [0, 1, 2]
        assert "github: " in found[0]["result"]["instructions"]
        assert found[1]["result"]["tools"][0]["name"] == "skill"
        assert found[2]["result"]["prompts"]
        # The SDK answers the same when it is asked.
        pipe.write(json.dumps(request("server/discover", 0)).encode())
        assert pipe.receive() == found[0]


def test_initialize_may_follow_a_discovery_that_took_too_long(peer: Peer) -> None:
    with Pipe(peer) as pipe:
        pipe.write(json.dumps(request("server/discover")).encode())
        hello = pipe.shake_hands()
        pipe.send("tools/list", 2)
        pipe.send("ping", 3)
        found = [hello, *(pipe.receive() for _ in range(3))]
    assert [message["id"] for message in found] == [1, 0, 2, 3]
    assert found[0]["result"]["supportedVersions"] == ["2026-07-28"]
    assert found[1]["result"]["protocolVersion"] == "2025-06-18"
    assert found[2]["result"]["tools"]
