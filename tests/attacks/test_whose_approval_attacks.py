"""Attacks on whose an approval is: other clients repeat the call first (G16)."""

from __future__ import annotations

import html
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation
from starlette.testclient import TestClient

from skillhouse.approval import Answer, ApprovalBroker, ApprovalState
from skillhouse.approval.webhook import question_value
from skillhouse.extensions.server import http_app
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.mcp.elicitation import ElicitationClient as ElicitingClient
from skillhouse.frontends.mcp.elicitation import elicitation_for
from skillhouse.house import Skillhouse, configured
from skillhouse.tools import CallerFields, ToolResult
from tests.frontends.mcp_inside import Person, asked, retried
from tests.frontends.mcp_peer import (
    LEGACY,
    MODERN,
    Peer,
    Pipe,
    connected,
    http_client,
    running_up,
    text_of,
    up,
)
from tests.person_answers import approve

pytestmark = pytest.mark.slow

WRITE: dict[str, Any] = {"path": "a.txt", "content": "once\n"}
SAME = ("editor", "editor")
"""Names of two clients. Each gives its name itself, so a name proves nothing."""


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    return Peer(tmp_path)


def state_of(peer: Peer) -> Path:
    return peer.log.parent


def question_of(peer: Peer) -> str:
    """Return the id of the latest question."""
    return ApprovalBroker(state_of(peer)).latest(1)[0].id


def named(name: str) -> Implementation:
    return Implementation(name=name, version="1")


@asynccontextmanager
async def two_clients(
    peer: Peer, ways: tuple[str, str], mode: str, names: tuple[str, str]
) -> AsyncIterator[tuple[Client, Client]]:
    async with AsyncExitStack() as stack:
        place = stack.enter_context(up(peer)) if "http" in ways else ("", "")
        found = []
        for way, name in zip(ways, names, strict=True):
            info = named(name)
            found.append(
                await stack.enter_async_context(
                    http_client(*place, mode, client_info=info)
                    if way == "http"
                    else peer.client(mode, client_info=info)
                )
            )
        yield found[0], found[1]


async def wrote(client: Client, path: str = "a.txt") -> bool:
    """Whether a client's write ran; else it waits for an answer."""
    text = text_of(await client.call_tool("write", {**WRITE, "path": path}))
    assert text.startswith("not approved yet: ") is not text.startswith("wrote"), text
    return text.startswith("wrote")


WAYS = [
    pytest.param(("stdio", "stdio"), LEGACY, SAME, id="stdio"),
    pytest.param(("stdio", "stdio"), "auto", SAME, id="stdio-modern"),
    pytest.param(("http", "http"), LEGACY, SAME, id="http"),
    pytest.param(("http", "http"), "auto", ("editor", "viewer"), id="http-modern"),
    pytest.param(("stdio", "http"), LEGACY, SAME, id="stdio-and-http"),
    pytest.param(("http", "stdio"), "auto", SAME, id="http-and-stdio"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("ways", "mode", "names"), WAYS)
async def test_an_approval_is_not_for_the_client_that_repeats_the_call_first(
    peer: Peer, ways: tuple[str, str], mode: str, names: tuple[str, str]
) -> None:
    async with two_clients(peer, ways, mode, names) as (origin_digest, other):
        assert not await wrote(origin_digest)
        approve(state_of(peer), question_of(peer))
        assert not await wrote(other)
        assert not (peer.project / "a.txt").exists()
        assert await wrote(origin_digest)
        assert not await wrote(origin_digest, "b.txt")


@pytest.mark.heavy
@pytest.mark.parametrize(("ways", "mode", "names"), WAYS)
async def test_a_session_answer_is_for_the_connection_that_asked_alone(
    peer: Peer, ways: tuple[str, str], mode: str, names: tuple[str, str]
) -> None:
    async with two_clients(peer, ways, mode, names) as (origin_digest, other):
        assert not await wrote(origin_digest, "notes/a.txt")
        approve(state_of(peer), question_of(peer), Answer.SESSION)
        assert not await wrote(other, "notes/a.txt")
        assert await wrote(origin_digest, "notes/a.txt")
        assert await wrote(origin_digest, "notes/b.txt")
        assert not await wrote(other, "notes/c.txt")


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_question_s_state_is_of_no_use_to_another_client(peer: Peer, way: str) -> None:
    """Since 2026-07-28 a client keeps the question; who takes it from there answers nothing."""
    person, thief = Person(), Person()
    async with AsyncExitStack() as stack:
        place = stack.enter_context(up(peer)) if way == "http" else ("", "")
        origin_digest, other = [
            await stack.enter_async_context(
                connected(peer, place, "auto", client_info=named(name), elicitation_callback=whose)
            )
            for name, whose in (("editor", person), ("viewer", thief))
        ]
        state = (await asked(origin_digest, "write", **WRITE)).request_state
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await retried(other, "write", state, **WRITE)
        assert not (peer.project / "a.txt").exists()
        assert not (await retried(origin_digest, "write", state, **WRITE)).is_error


def envelope(name: str) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def piped(pipe: Pipe, number: int, name: str) -> str:
    """Write over a pipe, and return what the client is told."""
    pipe.send("tools/call", number, name="write", arguments=WRITE, _meta=envelope(name))
    text: str = pipe.receive()["result"]["content"][0]["text"]
    return text


def test_an_approval_of_a_killed_client_goes_to_its_next_connection_alone(peer: Peer) -> None:
    with Pipe(peer) as older, Pipe(peer) as origin_digest:
        # Another window of the same program, there before.
        assert piped(older, 1, "editor").startswith("not approved yet: ")
        assert piped(origin_digest, 1, "editor").startswith("not approved yet: ")
        question = question_of(peer)
        approve(state_of(peer), question)
        with Pipe(peer) as next_one:
            # The asker is alive.
            assert piped(next_one, 1, "editor").startswith("not approved yet: ")
        origin_digest.process.send_signal(signal.SIGKILL)
        origin_digest.process.wait()
        assert piped(older, 2, "editor").startswith("not approved yet: ")
        with Pipe(peer) as other, Pipe(peer) as successor:
            assert piped(other, 1, "viewer").startswith("not approved yet: ")
            assert piped(successor, 1, "editor").startswith("wrote")
            assert piped(successor, 2, "editor").startswith("not approved yet: ")


def test_an_approval_of_a_session_that_ended_goes_to_the_next_one(peer: Peer) -> None:
    async def work(address: str, token: str) -> None:
        async with http_client(address, token, LEGACY, client_info=named("editor")) as older:
            async with http_client(
                address, token, LEGACY, client_info=named("editor")
            ) as origin_digest:
                assert not await wrote(origin_digest)
                approve(state_of(peer), question_of(peer))
            # The SDK's client ends its session with DELETE.
            assert not await wrote(older)
            async with http_client(address, token, LEGACY, client_info=named("editor")) as next_one:
                assert await wrote(next_one)

    with up(peer) as place:
        anyio.run(work, *place)


def test_an_approval_outlives_a_killed_server_over_http(peer: Peer) -> None:
    async def ask(address: str, token: str) -> None:
        async with http_client(address, token, LEGACY, client_info=named("editor")) as client:
            assert not await wrote(client)

    async def repeat(address: str, token: str, name: str, expected: bool) -> None:
        async with http_client(address, token, LEGACY, client_info=named(name)) as client:
            assert await wrote(client) is expected

    with running_up(peer) as (process, address, token):
        anyio.run(ask, address, token)
        process.send_signal(signal.SIGKILL)
        process.wait()
    approve(state_of(peer), question_of(peer))
    with up(peer) as (address, token):
        anyio.run(repeat, address, token, "viewer", False)
        anyio.run(repeat, address, token, "editor", True)
        anyio.run(repeat, address, token, "editor", False)


def test_two_programs_with_the_library_are_two_clients(peer: Peer) -> None:
    config = configured(peer.places)
    with Skillhouse(config) as origin_digest, Skillhouse(config) as other:

        def call(
            house: Skillhouse, approval_id: str | None = None, **who: Unpack[CallerFields]
        ) -> ToolResult:
            return house.call_sync("write", WRITE, approval_id=approval_id, **who)

        asked = call(origin_digest)
        assert asked.approval_id is not None
        approve(config.state_directory, asked.approval_id)
        assert call(other).status == "pending"
        # Neither a name nor the approval's id makes another client the one that asked.
        stolen = call(other, approval_id=asked.approval_id)
        assert (stolen.status, "another client" in stolen.content) == ("denied", True)
        assert call(origin_digest, client="other").status == "pending"
        assert call(origin_digest, channel="cli").status == "pending"
        assert origin_digest.approvals.get(asked.approval_id).state is ApprovalState.APPROVED
        assert call(origin_digest).status == "ok"


def test_a_connection_that_names_itself_after_another_is_not_that_one(peer: Peer) -> None:
    """An id says when a connection began; that alone opens nothing while the asker lives."""
    config = configured(peer.places)
    with Skillhouse(config) as origin_digest, Skillhouse(config) as other:
        asked = origin_digest.call_sync("write", WRITE)
        approve(config.state_directory, asked.approval_id or "")
        late = "9999999999999-00"
        assert other.call_sync("write", WRITE, connection=late).status == "pending"
        origin_digest.close()
        # The name of no connection, or one that began before, is no successor.
        for connection in ("", "mine", "0000000000001-00"):
            told = other.call_sync("write", WRITE, connection=connection)
            assert told.status == "pending"
        assert other.call_sync("write", WRITE, connection=late).status == "ok"


MANY = [f"make step{number} " + "x" * 40 for number in range(12)]
"""Commands of one line; where the first is shown alone, nobody sees the others (G5)."""


def test_a_question_has_the_title_of_all_its_commands_wherever_it_is_shown(
    peer: Peer,
) -> None:
    with Skillhouse(configured(peer.places)) as house:
        desk = FrameworkBridge(house=house, channel="some-framework")
        result = desk.call_sync("exec", {"command": " && ".join([*MANY, "rm -rf src"])})
        found = house.approvals.get(result.approval_id or "")
        title = found.request.title.removeprefix("not bound to files: ")
        assert title.startswith("exec: make step0 x")
        assert " ; make step1 x" in title
        # What is cut off is counted.
        assert title.endswith(f" ; and {13 - title.count('make step')} more commands")
        asked = desk.question(result)
        assert asked is not None
        form = elicitation_for(found.request, ElicitingClient(form=True), "")
        assert form is not None
        shown = {
            "list": peer.skillhouse("approvals", "list"),
            "list, all": peer.skillhouse("approvals", "list", "--all"),
            "list, JSON": peer.skillhouse("approvals", "list", "--json"),
            "show": peer.skillhouse("approvals", "show", found.id),
            "adapter": str(asked["title"]),
            "elicitation": form.message,
            "webhook": str(question_value(found.request)["text"]),
        }
        app = http_app(house, token="token", port=8600, session="session")
        pages = TestClient(app, "http://127.0.0.1:8600", cookies={"skillhouse_8600": "session"})
        for place in ("/approvals", f"/approvals/{found.id}", "/api/v1/approvals"):
            shown[place] = html.unescape(pages.get(place).text)
        shown["deny"] = peer.skillhouse("approvals", "deny", found.id)
    # A long title is shown in rows.
    wanted = "".join(title.split())
    assert [where for where, text in shown.items() if wanted not in "".join(text.split())] == []
