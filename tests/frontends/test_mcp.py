"""Tests of the MCP server, over a real process and its pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from skillhouse.audit import read_records
from skillhouse.frontends.mcp.handshake import HANDSHAKE_VERSIONS, FastHandshake, lines
from skillhouse.frontends.mcp.messages import MESSAGE_MAX, RefusedMessage
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.frontends.mcp.tried_clients import Places
from skillhouse.house import Skillhouse, configured
from tests.frontends.mcp_inside import sdk_answers
from tests.frontends.mcp_peer import (
    LEGACY,
    MODERN,
    PATIENCE_SECONDS,
    Peer,
    Pipe,
    handshake,
    has_sandbox,
    running,
    text_of,
)
from tests.harness import Need
from tests.house.places import write_skill
from tests.sandbox.places import own

pytestmark = pytest.mark.slow


Work = Callable[[Client], Awaitable[None]]
TOOLS = [
    *("skill", "search_skills", "read", "list", "write", "edit"),
    *("exec", "exec_output", "exec_stop", "fetch", "web_search"),
]


def talk(peer: Peer, work: Work, mode: str = LEGACY) -> None:
    """Run `work` with a connected client."""

    async def main() -> None:
        async with peer.client(mode) as client:
            await work(client)

    anyio.run(main)


@pytest.mark.parametrize("mode", [LEGACY, "auto", MODERN])
def test_the_skill_tool_lists_the_catalog_and_its_names(peer: Peer, mode: str) -> None:
    write_skill(peer.home / ".agents/skills/notes", "Takes notes about anything.")

    async def work(client: Client) -> None:
        if mode != MODERN:  # A client that is told its version asks for no capabilities.
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == TOOLS
        description = tools["skill"].description or ""
        assert "\nnotes: Takes notes about anything.\n" in description
        names = tools["skill"].input_schema["properties"]["name"]["enum"]
        assert names == ["notes", "github", "weather", "web-search"]

    talk(peer, work, mode)


def test_annotations_say_which_tools_only_read(peer: Peer) -> None:
    async def work(client: Client) -> None:
        hints = {
            tool.name: (tool.annotations.read_only_hint, tool.annotations.destructive_hint)
            for tool in (await client.list_tools()).tools
            if tool.annotations
        }
        reading = {"skill", "search_skills", "read", "list", "exec_output", "web_search"}
        assert hints == {name: (name in reading, name not in reading) for name in TOOLS}

    talk(peer, work)


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_every_tool_answers_with_one_text_that_is_not_json(peer: Peer, mode: str) -> None:
    write_skill(peer.home / ".agents/skills/notes", body="# Notes\n\nSay *hello*.\n")
    (peer.project / "a.md").write_text("# A\n\n- one\n", encoding="utf-8")
    peer.configure('[[rules]]\neffect = "allow"\naction = "write"\npattern = "*"\n')

    async def work(client: Client) -> None:
        async def call(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result
            return text_of(result)

        assert "\n# Notes\n\nSay *hello*.\n" in await call("skill", name="notes")
        assert (await call("search_skills", query="weather")).startswith("weather: ")
        assert await call("read", path="a.md") == "# A\n\n- one\n"
        assert "a.md" in (await call("list")).split("\n")
        await call("write", path="b.txt", content="first\n")
        await call("edit", path="b.txt", old="first", new="second")
        assert (peer.project / "b.txt").read_text(encoding="utf-8") == "second\n"

    talk(peer, work, mode)


def test_what_needs_a_yes_waits_for_one_and_says_how_to_give_it(peer: Peer) -> None:
    async def work(client: Client) -> None:
        result = await client.call_tool("exec", {"command": "touch", "params": ["made"]})
        assert result.is_error
        assert text_of(result).startswith("not approved yet: ")
        assert "ask the user to approve " in text_of(result)

    talk(peer, work)
    assert not (peer.project / "made").exists()
    [refusal] = read_records(peer.log)
    assert (refusal.record.kind, refusal.record.tool, refusal.record.channel) == (
        "refusal",
        "exec",
        "mcp",
    )


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_an_unknown_tool_is_a_protocol_error_that_names_the_nearest(peer: Peer, mode: str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("serch_skills", {})
        assert caught.value.code == INVALID_PARAMS
        assert caught.value.message == "unknown tool `serch_skills`; did you mean `search_skills`"

    talk(peer, work, mode)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("skill", {"nam": "weather"}, "`skill` has no argument `nam`; did you mean `name`"),
        ("skill", {}, "wrong argument of `skill`"),
        ("skill", {"name": "weathr"}, "weather"),
        ("read", {"path": 5}, "wrong argument `path` of `read`"),
        ("read", {"path": "absent"}, "absent"),
        ("search_skills", {"query": "x", "limit": 0}, "wrong argument `limit`"),
    ],
)
def test_bad_arguments_are_a_result_that_names_the_right_ones(
    peer: Peer, name: str, arguments: dict[str, Any], says: str
) -> None:
    async def work(client: Client) -> None:
        result = await client.call_tool(name, arguments)
        assert result.is_error
        assert says in text_of(result)
        assert "Traceback" not in text_of(result)

    talk(peer, work)


async def test_a_handshake_client_is_told_of_a_new_skill(peer: Peer) -> None:
    told = anyio.Event()

    async def handle(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    async with peer.client(LEGACY, message_handler=handle) as client:
        await client.list_tools()
        write_skill(peer.home / ".agents/skills/fresh")
        await told.wait()
        assert "fresh" in _names(await client.list_tools())
        result = await client.call_tool("skill", {"name": "fresh"})
        assert not result.is_error


def test_a_subscribed_client_is_told_of_a_removed_skill(peer: Peer) -> None:
    skill = write_skill(peer.home / ".agents/skills/stale")

    async def work(client: Client) -> None:
        assert "stale" in _names(await client.list_tools())
        async with client.listen(tools_list_changed=True) as changes:
            (skill / "SKILL.md").unlink()
            async for _ in changes:
                break
        assert "stale" not in _names(await client.list_tools())

    talk(peer, work, MODERN)


def _names(listed: Any) -> list[str]:
    names: list[str] = listed.tools[0].input_schema["properties"]["name"]["enum"]
    return names


def test_an_agent_sees_only_what_its_rules_leave(peer: Peer) -> None:
    peer.configure(
        '[[agents.reviewer.rules]]\neffect = "deny"\naction = "skill"\npattern = "weather"\n'
    )
    with Pipe(peer, "--agent", "reviewer", "--user", "ada") as pipe:
        pipe.shake_hands()
        pipe.send("tools/list", 1)
        [skill, *_] = pipe.receive()["result"]["tools"]
        assert skill["inputSchema"]["properties"]["name"]["enum"] == ["github", "web-search"]
        pipe.send("tools/call", 2, name="skill", arguments={"name": "github"})
        assert pipe.receive()["result"]["isError"] is False
    [entry] = read_records(peer.log)
    assert (entry.record.agent, entry.record.user) == ("reviewer", "ada")


def test_an_unknown_agent_is_a_usage_error_and_no_handshake(peer: Peer) -> None:
    done = subprocess.run(
        peer.command("--agent", "defalt"),
        env=peer.environment,
        capture_output=True,
        input=b"",
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"did you mean `default`" in done.stderr


def test_a_missing_sdk_names_the_extra(peer: Peer) -> None:
    program = (
        "import sys; sys.modules['mcp'] = None; from skillhouse.frontends.cli import main; "
        "sys.exit(main(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=peer.environment,
        capture_output=True,
        input=b"",
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"[mcp]'`" in done.stderr


def test_lines_that_are_no_messages_are_answered_and_do_not_end_the_connection(peer: Peer) -> None:
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        found = []
        for line in (b"{", b'"text"', b"[" * 5000, b'{"jsonrpc": "1.0", "id": 1}', b"\xff"):
            pipe.write(line)
            answer = pipe.receive()
            found.append((answer["id"], answer["error"]["code"]))
        ids, codes = zip(*found, strict=True)
        assert ids == (None, None, None, 1, None)
        assert codes == (-32700, -32600, -32700, -32600, -32700)
        pipe.send("ping", 7)
        assert pipe.receive() == {"jsonrpc": "2.0", "id": 7, "result": {}}


def test_a_file_name_that_is_not_unicode_does_not_end_the_connection(peer: Peer) -> None:
    with open(os.fsencode(peer.project) + b"/caf\xe9", "wb"):
        pass
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        pipe.send("tools/call", 1, name="list", arguments={})
        assert "\ncaf" in pipe.receive()["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2026-07-28", "1999-01-01"])
def test_the_greeter_answers_what_the_sdk_would_have_answered(peer: Peer, version: str) -> None:
    house = Skillhouse(configured(peer.places))
    listing = ToolListing(house, "default")
    server = SkillhouseServer(house, listing, agent="default", user="local")
    fast_handshake = FastHandshake()
    fast_handshake.set_instructions({Places.EACH: listing.instructions()})
    fast_handshake.set_tools({Places.EACH: listing.tools()})
    requests: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": handshake(version)},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/list",
            "params": {"_meta": {"progressToken": 0}},
        },
    ]

    found = [fast_handshake.answer(request) for request in requests[:1]]
    assert fast_handshake.answer(INITIALIZED) == b""
    found += [fast_handshake.answer(request) for request in requests[1:]]
    messages = [requests[0], INITIALIZED, *requests[1:]]
    sdk = anyio.run(sdk_answers, server, messages)
    assert [json.loads(answer or b"") for answer in found] == sdk


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_the_versions_of_the_greeter_are_those_of_the_sdk() -> None:
    assert HANDSHAKE_VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}',
        b'{"jsonrpc": "2.0", "id": true, "method": "initialize", "params": {}}',
        json.dumps({"jsonrpc": "2.0", "method": "initialize", "params": handshake("x")}).encode(),
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {**handshake("x"), "capabilities": {"roots": 5}},
            }
        ).encode(),
    ],
)
def test_other_first_messages_are_left_to_the_sdk(line: bytes) -> None:
    fast_handshake = FastHandshake()
    assert fast_handshake.answer(json.loads(line)) is None
    assert fast_handshake.handshake == []


def test_a_handshake_that_the_sdk_refuses_is_answered_once(peer: Peer) -> None:
    with Pipe(peer) as pipe:
        pipe.send("initialize", 0, protocolVersion=5)
        assert pipe.receive()["error"]["code"] == INVALID_PARAMS
        assert pipe.shake_hands()["result"]["protocolVersion"] == "2025-06-18"
        pipe.send("ping", 1)
        assert pipe.receive()["id"] == 1


def test_initialize_is_answered_within_a_second_of_the_spawn(peer: Peer) -> None:
    """The clock is the subject here; the best of five, so that other work does not count."""
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        with Pipe(peer) as pipe:
            pipe.shake_hands()
            seconds.append(time.perf_counter() - began)
    assert min(seconds) < 1


def test_a_line_over_the_bound_costs_only_itself() -> None:
    source, sink = os.pipe()
    parts = [b"first\n", b"x" * (MESSAGE_MAX + 1), b"\n\n", b"last"]

    def feed() -> None:
        with open(sink, "wb") as stream:
            stream.writelines(parts)

    feeding = threading.Thread(target=feed)
    feeding.start()
    first, refused, last = lines(source)
    assert (first, last) == (b"first", b"last")
    assert isinstance(refused, RefusedMessage)
    feeding.join()
    os.close(source)


def test_a_closed_stdin_ends_the_server(peer: Peer) -> None:
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        out, err = pipe.process.communicate(timeout=PATIENCE_SECONDS)
        assert (pipe.process.returncode, out, err) == (0, b"", b"")


def test_a_closed_stdout_ends_the_server(peer: Peer) -> None:
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        assert pipe.process.stdout is not None
        pipe.process.stdout.close()
        pipe.send("ping", 1)
        assert pipe.process.wait(PATIENCE_SECONDS) == 0
        assert pipe.process.stderr is not None
        assert pipe.process.stderr.read() == b""
        pipe.process.stdout = None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_at_once(peer: Peer, number: signal.Signals) -> None:
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        pipe.send("ping", 1)
        pipe.receive()
        began = time.perf_counter()
        pipe.process.send_signal(number)
        assert pipe.process.wait(PATIENCE_SECONDS) == 0
        assert time.perf_counter() - began < PATIENCE_SECONDS / 3


def test_a_client_that_does_not_read_cannot_hold_up_the_end(peer: Peer) -> None:
    (peer.project / "big").write_text("x" * 200_000)
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        for number in range(1, 5):
            pipe.send("tools/call", number, name="read", arguments={"path": "big"})
        while len(read_records(peer.log)) < 1:
            time.sleep(0.05)
        pipe.process.send_signal(signal.SIGTERM)
        assert pipe.process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "stdin", "cancelled"])
def test_ending_during_an_exec_leaves_no_process_and_no_open_intent(
    peer: Peer, end: str, need: Need
) -> None:
    need(has_sandbox(), "bubblewrap that can make namespaces")
    peer.configure('[[rules]]\neffect = "allow"\naction = "exec"\npattern = "sleep *"\n')
    # Its own for each case: they run side by side, and all look through the process table.
    marked = own(86399)
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        pipe.send("tools/call", 1, name="exec", arguments={"command": "sleep", "params": [marked]})
        _until(lambda: running(marked))
        assert pipe.process.stdin is not None
        if end == "stdin":
            pipe.process.stdin.close()
            pipe.process.stdin = None
        elif end == "cancelled":
            pipe.send("notifications/cancelled", requestId=1)
            _until(lambda: not running(marked))
            pipe.process.terminate()
        else:
            pipe.process.send_signal(signal.Signals[end])
        assert pipe.process.wait(PATIENCE_SECONDS) == 0
        assert not running(marked)
    [entry] = read_records(peer.log)
    assert entry.record.kind == "intent"
    assert entry.outcome is not None
    assert (entry.status, entry.outcome.reason) == ("error", "cancelled")


def _until(holds: Callable[[], bool]) -> None:
    """Wait for another process."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
