"""Requests of one skill's call that run at once, and that it cancels, through the gate."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.sandbox import SandboxStatus
from tests.house.coded import coded_house, letting_go, recorded, write_code
from tests.net.servers import ok, serving

pytestmark = pytest.mark.slow

SOURCES = {
    "python": """
        import asyncio

        async def tool(params, context):
            return [found.status for found in
                    await asyncio.gather(*[context.fetch(params["url"]) for _ in range(5)])]

        async def cancels(params, context):
            async def until(state):
                while (await context.read_file("state.txt")).strip() != state:
                    await asyncio.sleep(0.05)
            request = asyncio.ensure_future(context.fetch(params["url"]))
            await until("begun")
            request.cancel()
            await until("ended")
            return "went on"

        tools = {"tool": tool, "cancels": cancels}
    """,
    "javascript": """
        export const tools = {
          tool: async (params, context) => {
            const found = await Promise.all([1, 2, 3, 4, 5].map(() => context.fetch(params.url)));
            return found.map((answer) => answer.status);
          },
          cancels: async (params, context) => {
            const abort = new AbortController();
            const until = async (state) => {
              while ((await context.readFile('state.txt')).trim() !== state) {
                await new Promise((resolve) => setTimeout(resolve, 50));
              }
            };
            context.fetch(params.url, { signal: abort.signal }).catch(() => {});
            await until('begun');
            abort.abort();
            await until('ended');
            return 'went on';
          },
        };
    """,
}
TOOLS: tuple[Mapping[str, Any], ...] = tuple(
    {
        "name": name,
        "description": "Does it.",
        "parameters": {"type": "object"},
        "security": {"level": "read"},
    }
    for name in ("tool", "cancels")
)


@pytest.mark.parametrize("language", SOURCES)
async def test_five_requests_of_one_call_reach_the_server_before_it_answers_one(
    status: SandboxStatus, tmp_path: Path, language: str
) -> None:
    write_code(tmp_path / "skills/one", SOURCES[language], *TOOLS, language=language)
    all_open = anyio.Event()

    async def answer(stream: SocketStream) -> None:
        if len(server.seen) == 5:
            all_open.set()
        await all_open.wait()
        await stream.send(ok(b"hello"))

    async with serving(answer) as server:
        house = coded_house(tmp_path, tmp_path / "skills", status=status, hosts=(server.url,))
        async with letting_go(house):
            found = await house.call("one:tool", {"url": server.url})
        assert found.data == {"success": True, "data": [200] * 5}


class State:
    """A file of the workspace that says how far a request is, for the tool to read."""

    def __init__(self, base: Path) -> None:
        self.path = base / "project/state.txt"

    async def last(self) -> None:
        """Be a request that never ends by itself."""
        self.path.write_text("begun\n")
        try:
            await anyio.sleep_forever()
        finally:
            self.path.write_text("ended\n")


class Thinking(State):
    """A person who never answers."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        await self.last()
        return Answer.NO


@pytest.mark.parametrize("language", SOURCES)
async def test_a_cancelled_fetch_ends_its_connection_and_has_an_outcome(
    status: SandboxStatus, tmp_path: Path, language: str
) -> None:
    write_code(tmp_path / "skills/one", SOURCES[language], *TOOLS, language=language)

    state = State(tmp_path)

    async def answer(stream: SocketStream) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(state.last)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
            tasks.cancel_scope.cancel()

    async with serving(answer) as server:
        house = coded_house(tmp_path, tmp_path / "skills", status=status, hosts=(server.url,))
        state.path.write_text("new\n")
        async with letting_go(house):
            found = await house.call("one:cancels", {"url": server.url})
    assert found.data == {"success": True, "data": "went on"}
    outcomes = [
        entry.outcome.status if entry.outcome else None
        for entry in recorded(house)
        if entry.record.tool == "fetch"
    ]
    assert outcomes == ["error"]


@pytest.mark.parametrize("language", SOURCES)
async def test_a_cancelled_request_withdraws_its_question_while_the_call_goes_on(
    status: SandboxStatus, tmp_path: Path, language: str
) -> None:
    write_code(tmp_path / "skills/one", SOURCES[language], *TOOLS, language=language)
    person = Thinking(tmp_path)
    house = coded_house(tmp_path, tmp_path / "skills", status=status, channel=person)
    person.path.write_text("new\n")
    async with letting_go(house):
        found = await house.call("one:cancels", {"url": "https://a.test/x"})
    assert found.data == {"success": True, "data": "went on"}
