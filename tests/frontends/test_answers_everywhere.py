"""The answers mean the same at every entry: the table of docs/guides/approvals.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp.client import Client

from skillhouse.approval import Answer, ApprovalBroker
from skillhouse.floor import structs
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.tools import ToolResult
from tests.frontends.mcp_peer import LEGACY, Peer, http_client, text_of, up
from tests.house.places import make_places
from tests.person_answers import approve

Write = Callable[[str], Awaitable[bool]]
"""Writes to a path, and whether that ran; else it waits for an answer."""
Connect = Callable[[Locations], AbstractAsyncContextManager[Write]]
"""A new connection of the same client, in the place."""


def ran(result: ToolResult) -> bool:
    assert result.status in ("ok", "pending"), result
    return result.status == "ok"


def arguments(path: str) -> dict[str, str]:
    return {"path": path, "content": "x\n"}


@asynccontextmanager
async def library(places: Locations) -> AsyncIterator[Write]:
    with Skillhouse(configured(places)) as house:

        async def write(path: str) -> bool:
            return ran(await house.call("write", arguments(path)))

        yield write


@asynccontextmanager
async def command_line(places: Locations) -> AsyncIterator[Write]:
    async def write(path: str) -> bool:
        # Each `skillhouse call` is a process, and so a connection.
        with Skillhouse(configured(places)) as house:
            return ran(await house.call("write", arguments(path), channel="cli"))

    yield write


def framework(channel: str) -> Connect:
    @asynccontextmanager
    async def connect(places: Locations) -> AsyncIterator[Write]:
        with Skillhouse(configured(places)) as house:
            desk = FrameworkBridge(house=house, channel=channel)

            async def write(path: str) -> bool:
                return ran(await desk.call("write", arguments(path)))

            yield write

    return connect


@asynccontextmanager
async def stdio(places: Locations) -> AsyncIterator[Write]:
    with Skillhouse(configured(places)) as house:
        server = SkillhouseServer(
            house, ToolListing(house, "default"), agent="default", user="local"
        )
        async with Client(server.sdk, mode=LEGACY) as client:
            yield written_by(client.call_tool)


@asynccontextmanager
async def http(places: Locations) -> AsyncIterator[Write]:
    peer = Peer(places.start.parent)
    peer.project = places.start
    with up(peer) as place:
        async with http_client(*place, LEGACY) as client:
            yield written_by(client.call_tool)


def written_by(call_tool: Callable[..., Awaitable[object]]) -> Write:
    async def write(path: str) -> bool:
        text = text_of(await call_tool("write", arguments(path)))  # type: ignore[arg-type]
        assert text.startswith("wrote") is not text.startswith("not approved yet"), text
        return text.startswith("wrote")

    return write


ENTRIES: dict[str, Connect] = {
    "library": library,
    "cli": command_line,
    "chat": framework("chat"),
    "adapter": framework("langchain"),
    "stdio": stdio,
    "http": http,
}
SAME, NEXT, ELSEWHERE = "same connection", "next connection", "other place"
HOLDS: dict[Answer, set[str]] = {
    Answer.ONCE: set(),
    Answer.SESSION: {SAME},
    Answer.PROJECT: {SAME, NEXT},
    Answer.ALWAYS: {SAME, NEXT, ELSEWHERE},
}


def expected(entry: str, answer: Answer) -> set[str]:
    """Return where what is like the approved call runs unasked."""
    if entry == "cli" and answer is Answer.SESSION:
        # The connection that was approved is over with the call.
        return set()
    return HOLDS[answer]


async def holds(connect: Connect, places: Locations, answer: Answer) -> set[str]:
    """Approve one call, and return where calls like it then run unasked."""
    other = structs.replace(places, start=places.start.parent / "other")
    other.start.mkdir()
    found = set()
    state = configured(places).state_directory
    # A pattern is a directory: that of another place is none of this one's.
    shared = str(places.start / "notes/a.txt")
    async with connect(places) as write:
        assert not await write(shared)
        approve(state, ApprovalBroker(state).latest(1)[0].id, answer)
        assert await write(shared)
        if await write("notes/b.txt"):
            found.add(SAME)
    async with connect(places) as write:
        if await write("notes/c.txt"):
            found.add(NEXT)
    async with connect(other) as write:
        if answer is not Answer.ALWAYS:
            assert not await write("notes/d.txt")
    grants = ApprovalBroker(state).grant_store.all()
    if any(not grant.place for grant in grants):
        found.add(ELSEWHERE)
    return found


@pytest.mark.parametrize("answer", [Answer.ONCE, Answer.SESSION, Answer.PROJECT, Answer.ALWAYS])
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(name, marks=[pytest.mark.slow, pytest.mark.heavy] if name == "http" else [])
        for name in ENTRIES
    ],
)
def test_an_answer_means_the_same_at_every_entry(
    tmp_path: Path, entry: str, answer: Answer
) -> None:
    places = make_places(tmp_path)
    places.start.mkdir(exist_ok=True)
    assert anyio.run(holds, ENTRIES[entry], places, answer) == expected(entry, answer)
