"""Tests of what a client may send before the handshake, and of messages that are refused then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillhouse.frontends.mcp.messages import MESSAGE_MAX, RefusedMessage
from skillhouse.frontends.mcp.stdio import OpeningGate
from tests.frontends.mcp_peer import Peer, Pipe

pytestmark = pytest.mark.slow

REFUSED = [
    (b'{"jsonrpc": "2.0", "id": 1, "method": ', 1, -32700),
    (b'{"jsonrpc": "2.0", "id": 2.5, "method": "x"}', 2.5, -32600),
    (b'[{"jsonrpc": "2.0", "id": 3, "method": "ping"}]', 3, -32600),
    (b'{"jsonrpc": "2.0", "id": 4, "method": "x", "params": []}', 4, -32600),
    (b'{"jsonrpc": "2.0", "id": 5, "id": 6, "method": "x"}', None, -32600),
    (b'{"method": "x", "params": {"a": "' + b"a" * MESSAGE_MAX + b'"}, "id": 7}', 7, -32600),
    (b'{"id": "8", "method": "x", "params": ' + b"[" * 99, "8", -32700),
]


@pytest.mark.parametrize("phase", ["start", "served"])
def test_refused_messages_and_pings_are_answered_before_the_handshake(
    peer: Peer, phase: str
) -> None:
    with Pipe(peer) as pipe:
        if phase == "served":
            # Its answer comes from the SDK, which is there from then on.
            pipe.send("prompts/list", 0)
            early = "`prompts/list` before `initialize`: send that first"
            assert pipe.receive()["error"]["message"] == early
        for line, request_id, code in REFUSED:
            pipe.write(line)
            answer = pipe.receive()
            assert (answer["id"], answer["error"]["code"]) == (request_id, code)
        pipe.send("ping", 10)
        pipe.send("initialize", 11, **HELLO)
        pipe.send("ping", 12)
        pipe.send("notifications/initialized")
        pipe.send("ping", 13)
        pipe.send("prompts/list", 14)
        found = [pipe.receive() for _ in range(5)]
        assert {message["id"] for message in found} == {10, 11, 12, 13, 14}
        assert all("result" in message for message in found)


HELLO: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.mark.parametrize("name", ["\\ud800", "\xff"])
def test_a_handshake_that_only_one_parser_reads_does_not_end_the_server(
    peer: Peer, name: str
) -> None:
    """Python's parser takes lone surrogates and UTF-16, and the SDK's refuses both."""
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
    data = hello.encode("utf-16") if name == "\xff" else hello.replace("test", name).encode()
    with Pipe(peer) as pipe:
        # In UTF-16 the end of the line has a byte more.
        pipe.write(data.replace(b"\n", b""))
        assert pipe.receive()["error"]["code"] == -32700
        assert pipe.shake_hands()["result"]["protocolVersion"] == "2025-06-18"
        pipe.send("prompts/list", 2)
        assert pipe.receive()["id"] == 2


def test_early_requests_do_not_decide_the_revision(peer: Peer) -> None:
    meta = "io.modelcontextprotocol/"
    envelope = {f"{meta}protocolVersion": "2026-07-28", f"{meta}clientCapabilities": {}}
    with Pipe(peer) as pipe:
        for at, method in enumerate(("prompts/list", "ping", "no/such", "server/discover")):
            pipe.send(method, at)
        found = [pipe.receive() for _ in range(4)]
        codes = [message.get("error", {}).get("code") for message in found]
        assert codes == [-32600, None, -32601, -32601]
        pipe.send("prompts/list", 9, _meta=envelope)
        assert pipe.receive()["result"]["resultType"] == "complete"


def test_the_gate_opens_for_a_handshake_or_an_envelope() -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    gate = OpeningGate(lambda method: method == "tools/list")
    assert gate.answer({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
    assert gate.answer({"jsonrpc": "2.0", "id": 3, "result": {}}) is None
    assert gate.answer(ping) is not None
    assert isinstance(gate.answer(listing), RefusedMessage)
    assert gate.answer({"jsonrpc": "2.0", "id": 4, "method": "initialize"}) is None
    assert gate.answer(ping) is None
    assert gate.answer(listing) is None


def test_odd_requests_are_each_answered_once(peer: Peer) -> None:
    odd: list[tuple[str, Any, Any]] = [
        ("no/such", {}, -32601),
        ("", {}, -32601),
        ("notifications/initialized", {}, -32601),
        ("notifications/cancelled", {"requestId": 1}, -32601),
        ("tools/list", {"cursor": "x"}, -32602),
        ("resources/list", {"cursor": "x"}, -32602),
        ("prompts/list", {"cursor": "x"}, -32602),
        ("tools/list", {"cursor": 5}, -32602),
        ("tools/list", {"_meta": {"progressToken": [1]}}, -32602),
        ("tools/list", {"_meta": 5}, -32602),
        ("tools/call", {"name": 5}, -32602),
        ("tools/call", {"name": "list", "arguments": []}, -32602),
        ("tools/call", {"name": "list", "_meta": {"progressToken": "\n"}}, None),
        ("ping", None, None),
    ]
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        for at, (method, params, _) in enumerate(odd, 1):
            message = {"jsonrpc": "2.0", "id": at, "method": method, "params": params}
            pipe.write(json.dumps(message).encode())
        for method in ("notifications/cancelled", "notifications/progress", "no/such"):
            pipe.send(method, requestId=99, progressToken=1, progress="x")
        pipe.send("notifications/cancelled", requestId={"a": 1})
        pipe.send("notifications/initialized")
        found = {message["id"]: message for message in (pipe.receive() for _ in odd)}
        codes = [found[at].get("error", {}).get("code") for at in range(1, len(odd) + 1)]
        assert codes == [code for _, _, code in odd]
        for request_id in (10**900, -1, "\x00\u2028", ""):
            message = {"jsonrpc": "2.0", "id": request_id, "method": "ping"}
            pipe.write(json.dumps(message).encode())
            assert pipe.receive() == {"jsonrpc": "2.0", "id": request_id, "result": {}}
