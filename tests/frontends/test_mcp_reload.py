"""Tests of configurations that change below running servers: real processes, on both transports."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from skillhouse.house.config_reload import NOTICE
from tests.frontends.mcp_inside import Inside
from tests.frontends.mcp_peer import (
    MODERN,
    PATIENCE_SECONDS,
    Peer,
    Pipe,
    http_client,
    running_up,
    text_of,
)

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

ALLOW = '[[rules]]\neffect = "allow"\naction = "write"\npattern = "*"\n'
DENY = '[[rules]]\neffect = "deny"\naction = "write"\npattern = "*"\nreason = "closed"\n'
NO_WEATHER = '[[rules]]\neffect = "deny"\naction = "skill"\npattern = "weather"\n'
WRITE: dict[str, Any] = {"name": "write", "arguments": {"path": "a.txt", "content": "x"}}


def answer(pipe: Pipe, number: int, method: str, **params: Any) -> dict[str, Any]:
    """Make a request and return its result; notifications before it are left out."""
    pipe.send(method, number, **params)
    while (message := pipe.receive()).get("id") != number:
        pass
    result: dict[str, Any] = message["result"]
    return result


def text(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


@pytest.mark.req("S001-37")
def test_a_running_server_follows_the_configuration(peer: Peer) -> None:
    peer.configure(ALLOW)
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        assert not answer(pipe, 2, "tools/call", **WRITE)["isError"]
        assert "weather" in json.dumps(answer(pipe, 3, "tools/list"))
        peer.configure(DENY)
        assert "closed" in text(answer(pipe, 4, "tools/call", **WRITE))
        peer.configure("[[rules]]\neffect = 7\n")
        for number in range(5, 8):
            assert "closed" in text(answer(pipe, number, "tools/call", **WRITE))
        peer.configure(ALLOW + NO_WEATHER)
        # Without any request: the list that the client has is out of date.
        methods = set()
        while "notifications/tools/list_changed" not in methods:
            methods.add(pipe.receive().get("method"))
        assert "weather" not in json.dumps(answer(pipe, 8, "tools/list"))
        assert not answer(pipe, 9, "tools/call", **WRITE)["isError"]
        _, errors = pipe.process.communicate(timeout=PATIENCE_SECONDS)
        assert pipe.process.returncode == 0
        lines = errors.decode().splitlines()
    file = peer.home / ".config/skillhouse/config.toml"
    assert lines[0] == f"skillhouse: configuration reloaded: `{file}` (rules: +1 -1)"
    assert lines[1].startswith("skillhouse: the configuration from before stays in use: line 2: ")
    assert lines[2] == f"skillhouse: configuration reloaded: `{file}` (rules: +2 -1)"
    assert len(lines) == 3


def test_the_instructions_say_that_a_file_is_broken(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    file = inside.places.home / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("")
    inside.house = inside.another()
    server = inside.server()
    said = []
    for content in ("", DENY + "[approvals", DENY):
        file.write_text(content)
        said.append(server.sdk.instructions or "")
    assert [NOTICE in one for one in said] == [False, True, False]
    assert "[approvals" not in said[1]


def test_every_running_server_follows_one_file(peer: Peer) -> None:
    peer.configure(ALLOW)
    with Pipe(peer) as one, Pipe(peer) as two:
        for pipe in (one, two):
            pipe.shake_hands()
        peer.configure(DENY)
        for pipe in (one, two):
            assert "closed" in text(answer(pipe, 2, "tools/call", **WRITE))


def test_a_client_of_an_agent_that_is_removed_gets_an_error_and_no_tools(peer: Peer) -> None:
    peer.configure("[agents.reviewer]\nrules = []\n")
    with Pipe(peer, "--agent", "reviewer") as pipe:
        pipe.shake_hands()
        assert answer(pipe, 2, "tools/list")["tools"]
        peer.configure("")
        result = answer(pipe, 3, "tools/call", **WRITE)
        assert (result["isError"], text(result)) == (True, "unknown agent `reviewer`")
        assert answer(pipe, 4, "tools/list")["tools"] == []
        peer.configure("[agents.reviewer]\nrules = []\n")
        assert answer(pipe, 5, "tools/list")["tools"]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.req("S001-37")
def test_the_page_and_the_log_of_up_say_what_became_of_a_change(peer: Peer) -> None:
    async def wrote(address: str, token: str) -> str:
        async with http_client(address, token, MODERN) as client:
            return text_of(await client.call_tool("write", WRITE["arguments"]))

    def fault(address: str, token: str) -> str:
        headers = {"authorization": f"Bearer {token}"}
        found = httpx2.get(f"{address}/api/v1/status", headers=headers, timeout=PATIENCE_SECONDS)
        said: str = found.json()["config_fault"]
        return said

    peer.configure(ALLOW)
    with running_up(peer) as (process, address, token):
        assert "closed" not in anyio.run(wrote, address, token)
        peer.configure(DENY)
        assert "closed" in anyio.run(wrote, address, token)
        peer.configure("x = 1\n")
        until(lambda: "unknown key `x`" in fault(address, token))
        peer.configure(ALLOW)
        until(lambda: fault(address, token) == "")
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    found = [(one["level"], one["event"].partition(":")[0]) for one in logged(errors)]
    assert found == [
        ("info", "configuration reloaded"),
        ("warning", "the configuration from before stays in use"),
        ("info", "configuration reloaded"),
    ]


def logged(errors: str) -> list[dict[str, str]]:
    lines = [json.loads(line) for line in errors.splitlines()]
    return [line for line in lines if line["logger"] == "skillhouse.house.config_reload"]


def test_nothing_is_printed_where_nothing_changes(peer: Peer) -> None:
    peer.configure(ALLOW)
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        assert not answer(pipe, 2, "tools/call", **WRITE)["isError"]
        peer.configure(ALLOW)
        assert not answer(pipe, 3, "tools/call", **WRITE)["isError"]
        _, errors = pipe.process.communicate(timeout=PATIENCE_SECONDS)
    assert errors == b""


def test_a_broken_configuration_stops_a_command_that_begins(peer: Peer) -> None:
    peer.configure("x = 1\n")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        peer.skillhouse("list")
    assert "unknown key `x`" in caught.value.stderr
