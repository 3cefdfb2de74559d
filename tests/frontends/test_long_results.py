"""Long results, and a program's own tools, through the frontends as models get them.

In each a result is cut to what a model gets, and the file that it names is read on.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent, Runner
from mcp.client import Client
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from skillhouse import Effect, Layer, Rule, Skillhouse, tool
from skillhouse.extensions.chat.models import UsableModel
from skillhouse.frontends.adapters.openai_agents import skillhouse_tools
from skillhouse.house import configured
from skillhouse.tools import RESULT_MAX
from tests.extensions.chat.test_conversation import run, talk
from tests.frontends.adapters.test_openai_agents import Script
from tests.frontends.mcp_peer import (
    LEGACY,
    MODERN,
    PATIENCE_SECONDS,
    Peer,
    announced,
    connected,
    has_sandbox,
    http_client,
    place_of,
    text_of,
)
from tests.house.places import make_places

# It starts processes.
pytestmark = pytest.mark.slow

NAMED = re.compile(r"the whole result is in `([^`]+)`")
ALLOW_EXEC = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
DENY_COUNT = '[[rules]]\neffect = "deny"\naction = "count"\npattern = "*"\n'
WAYS = [("stdio", LEGACY), ("stdio", MODERN), ("http", LEGACY), ("http", MODERN)]
LINES, LINE = 20_000, "x" * 200_000

PROGRAM = """
import asyncio, sys
from skillhouse import Answer, ReportProgress, Skillhouse, tool

def note(line):
    with open("notes.txt", "a") as file:
        print(line, file=file)

@tool(level="read")
async def count(to: int, progress: ReportProgress) -> str:
    '''Count.'''
    for step in range(4):
        progress((step + 1) / 4, f"step {step}")
        await asyncio.sleep(0.15)
    return "\\n".join(map(str, range(1, to + 1)))

@tool(level="read")
async def wait() -> None:
    '''Wait.'''
    try:
        await asyncio.sleep(600)
    finally:
        note("cancelled")

@tool
def deploy(environment: str) -> str:
    '''Deploy.'''
    return f"deployed to {environment}"

class Asking:
    async def ask(self, request):
        note(f"asked {request.title}")
        return Answer.ONCE

with Skillhouse(tools=[count, deploy, wait], channel=Asking()) as house:
    if sys.argv[1] == "stdio":
        from skillhouse.frontends.mcp import serve
        serve(house)
    else:
        from skillhouse.extensions.server import serve
        serve(house, port=0)
"""


@tool(level="read")
def count(to: int) -> str:
    """Count."""
    return "\n".join(map(str, range(1, to + 1)))


@tool(level="read")
def one_line() -> str:
    """Return a line."""
    return LINE


def path_in(text: str) -> str:
    found = NAMED.search(text)
    assert found, text[-300:]
    return found[1]


async def hold_readable(call: Callable[[str, dict[str, Any]], Awaitable[str]], first: str) -> None:
    """Check that a cut result of the lines 1 to `LINES` names a file that is read on."""
    assert len(first) <= RESULT_MAX
    path = path_in(first)
    page = await call("read", {"path": path, "offset": 15_000, "limit": 2})
    assert page.startswith("15000\n15001\n")
    whole, offset = "", 1
    for _ in range(20):
        page = await call("read", {"path": path, "offset": offset})
        assert len(page) <= RESULT_MAX
        following = re.search(r"read on with `offset` (\d+)", page[-200:])
        whole += page[: page.rindex("[")] if following else page
        if not following:
            break
        offset = int(following[1])
    assert re.findall(r"^\d+$", whole, re.MULTILINE) == [str(n + 1) for n in range(LINES)]


@pytest.mark.heavy
@pytest.mark.parametrize(("transport", "mode"), WAYS)
def test_a_long_result_is_read_on_by_the_client_that_got_it(
    tmp_path: Path, transport: str, mode: str
) -> None:
    if not has_sandbox():
        pytest.skip("commands cannot run here")
    peer = Peer(tmp_path)
    peer.configure(ALLOW_EXEC)

    async def main(place: tuple[str, str]) -> None:
        async with connected(peer, place, mode) as client:

            async def call(name: str, arguments: dict[str, Any]) -> str:
                result = await client.call_tool(name, arguments)
                assert len(json.dumps(result.structured_content)) <= RESULT_MAX + 1_000
                assert not result.is_error, text_of(result)
                return text_of(result)

            first = await call("exec", {"command": f"seq 1 {LINES}"})
            await hold_readable(call, first)
            if place[0]:
                async with connected(peer, place, LEGACY) as other:
                    foreign = await other.call_tool("read", {"path": path_in(first)})
                assert "no result of this conversation" in text_of(foreign)

    with place_of(peer, transport) as place:
        anyio.run(main, place)


@pytest.mark.heavy
@pytest.mark.parametrize(("transport", "mode"), WAYS)
def test_own_tools_ask_report_and_stay_when_a_program_serves_them(
    tmp_path: Path, transport: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(tmp_path)
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async def work(client: Client) -> None:
        names = [one.name for one in (await client.list_tools()).tools]
        assert names[-3:] == ["count", "deploy", "wait"]

        async def call(name: str, arguments: dict[str, Any]) -> str:
            result = await client.call_tool(name, arguments, progress_callback=hear)
            return text_of(result)

        await hold_readable(call, await call("count", {"to": LINES}))
        assert [message for _, message in heard] == [f"step {n}" for n in range(4)]
        assert await call("deploy", {"environment": "test"}) == "deployed to test"
        with anyio.move_on_after(1) as scope:
            await call("wait", {})
        assert scope.cancelled_caught
        # The configuration changes; tools and channel of the program stay.
        peer.configure(DENY_COUNT)
        assert await call("count", {"to": 1}) == "denied: rule `count *` of user policy"
        names = [one.name for one in (await client.list_tools()).tools]
        assert names[-2:] == ["deploy", "wait"]
        assert await call("deploy", {"environment": "test"}) == "deployed to test"
        peer.configure('tools = ["skills", "deploy"]\n')
        names = [one.name for one in (await client.list_tools()).tools]
        assert names == ["skill", "search_skills", "deploy"]
        assert await call("deploy", {"environment": "test"}) == "deployed to test"

    async def over_stdio() -> None:
        async with peer.client(mode) as client:
            await work(client)

    async def over_http(address: str, token: str) -> None:
        async with http_client(address, token, mode) as client:
            await work(client)

    if transport == "stdio":
        monkeypatch.setattr(peer, "command", lambda: [sys.executable, "-c", PROGRAM, "stdio"])
        anyio.run(over_stdio)
    else:
        with announced(peer, [sys.executable, "-c", PROGRAM, "http"]) as (process, address, token):
            anyio.run(over_http, address, token)
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
    noted = (peer.project / "notes.txt").read_text("utf-8").splitlines()
    assert noted == ["asked deploy: test", "cancelled", *["asked deploy: test"] * 2]


def open_house(base: Path) -> Skillhouse:
    rules = (Rule(effect=Effect.ALLOW, action="exec", pattern="*"),)
    return Skillhouse(
        configured(make_places(base)),
        layers=(Layer(name="user", rules=rules),),
        tools=[count, one_line],
    )


CALLS: list[tuple[str, dict[str, Any]]] = [("count", {"to": LINES}), ("one_line", {})]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_a_chat_reads_on_in_a_long_result(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    got: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        parts = [part for one in messages for part in one.parts]
        got[:] = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        if not got:
            yield {0: DeltaToolCall(name, json.dumps(arguments), tool_call_id="1")}
        elif len(got) == 1:
            reading = json.dumps({"path": path_in(got[0]), "limit": 1})
            yield {0: DeltaToolCall("read", reading, tool_call_id="2")}
        else:
            yield "done"

    with open_house(tmp_path) as house:
        model = FunctionModel(stream_function=stream)
        conversation, _ = talk(house, UsableModel(model=model, reports_end=False))
        run(conversation, "go")
    assert [len(text) <= RESULT_MAX + 100 for text in got] == [True, True]
    assert got[1].startswith("1\n" if name == "count" else "xxxx")


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_an_adapter_reads_on_in_a_long_result(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    class Reading(Script):
        """Reads on in what the first call gave."""

        async def get_response(self, *given: Any, **more: Any) -> Any:
            self.heard = more.get("input", given[1] if len(given) > 1 else [])
            if len(self.told()) == 1:
                self.calls = [("read", {"path": path_in(self.told()[0]), "limit": 1})]
            return await super().get_response(*given, **more)

    script = Reading((name, arguments), ("read", {}))
    with open_house(tmp_path) as house:
        agent = Agent("a", tools=skillhouse_tools(house), model=script)
        # Not `run_sync`, which makes the thread an event loop and leaves it open.
        anyio.run(Runner.run, agent, "go")
        got = script.told()
    assert [len(text) <= RESULT_MAX + 500 for text in got] == [True, True]
    assert got[1].startswith("1\n" if name == "count" else "xxxx")
