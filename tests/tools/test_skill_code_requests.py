"""Requests of one skill's call that run at once, and that it cancels, through the gate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.runtime import Skillhouse
from skillhouse.sandbox import SandboxStatus
from tests.net.servers import ok, serving
from tests.runtime.coded import best_sandbox, coded_house, letting_go, recorded, write_code

pytestmark = pytest.mark.slow

SOURCES = {
    "python": """
        import asyncio

        async def tool(params, context):
            return [found.status for found in
                    await asyncio.gather(*[context.fetch(params["url"]) for _ in range(5)])]

        async def cancels(params, context):
            request = asyncio.ensure_future(context.fetch(params["url"]))
            await context.read_file("begun.txt")
            request.cancel()
            return (await context.read_file("begun.txt")).strip()

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
            context.fetch(params.url, { signal: abort.signal }).catch(() => {});
            await context.readFile('begun.txt');
            abort.abort();
            return (await context.readFile('begun.txt')).trim();
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


@pytest.fixture
def status(need: Any) -> SandboxStatus:
    return best_sandbox(need)


@pytest.mark.parametrize("language", SOURCES)
def test_five_requests_of_one_call_reach_the_server_before_it_answers_one(
    status: SandboxStatus, tmp_path: Path, language: str
) -> None:
    write_code(tmp_path / "skills/one", SOURCES[language], *TOOLS, language=language)

    async def main() -> None:
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

    anyio.run(main)


class Person:
    """Allows each read when the fetch has begun, then when it has ended; never allows a fetch."""

    def __init__(self) -> None:
        self.steps = [anyio.Event(), anyio.Event()]
        self.reads = 0

    async def ask(self, request: ApprovalRequest) -> Answer:
        began, ended = self.steps
        if request.title.startswith("fetch"):
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()
        self.reads += 1
        await (began, ended)[self.reads - 1].wait()
        return Answer.ONCE


@pytest.mark.parametrize("language", SOURCES)
def test_a_cancelled_fetch_ends_its_connection_and_has_an_outcome(
    status: SandboxStatus, tmp_path: Path, language: str
) -> None:
    write_code(tmp_path / "skills/one", SOURCES[language], *TOOLS, language=language)

    async def main() -> None:
        person = Person()
        began, ended = person.steps

        async def answer(stream: SocketStream) -> None:
            began.set()
            try:
                await stream.receive()
            finally:
                ended.set()

        async with serving(answer) as server:
            house = cancelling_house(tmp_path, person, status=status, hosts=(server.url,))
            async with letting_go(house):
                found = await house.call("one:cancels", {"url": server.url})
        assert found.data == {"success": True, "data": "begun"}
        outcomes = [
            entry.outcome.status if entry.outcome else None
            for entry in recorded(house)
            if entry.record.tool == "fetch"
        ]
        assert outcomes == ["error"]

    anyio.run(main)


@pytest.mark.parametrize("language", SOURCES)
def test_a_cancelled_request_withdraws_its_question_while_the_call_goes_on(
    status: SandboxStatus, tmp_path: Path, language: str
) -> None:
    write_code(tmp_path / "skills/one", SOURCES[language], *TOOLS, language=language)

    async def main() -> None:
        house = cancelling_house(tmp_path, Person(), status=status)
        async with letting_go(house):
            found = await house.call("one:cancels", {"url": "https://a.test/x"})
        assert found.data == {"success": True, "data": "begun"}

    anyio.run(main)


def cancelling_house(base: Path, person: Person, **options: Any) -> Skillhouse:
    house = coded_house(base, base / "skills", ("ask", "read", "*"), channel=person, **options)
    (house.services.project / "begun.txt").write_text("begun\n")
    return house
