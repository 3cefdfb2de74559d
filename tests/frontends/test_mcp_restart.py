"""Tests of answers over processes: a server that is killed, and a person at another terminal."""

from __future__ import annotations

import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

from skillhouse.approval import Approval, ApprovalBroker
from skillhouse.audit import read_records
from skillhouse.frontends.mcp.elicitation import ALLOW, DECISION
from tests.balanced import is_replicated
from tests.frontends.mcp_inside import YES, Person, asked, retried
from tests.frontends.mcp_peer import (
    LEGACY,
    MODERN,
    Peer,
    Pipe,
    connected,
    http_client,
    place_of,
    running_up,
    text_of,
    up,
)
from tests.person_answers import approve

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

WRITE: dict[str, Any] = {"path": "a.txt", "content": "once\n"}
ENVELOPE = {
    PROTOCOL_VERSION_META_KEY: MODERN,
    CLIENT_INFO_META_KEY: {"name": "test", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}},
}


def open_questions(state: Path) -> tuple[Approval, ...]:
    return ApprovalBroker(state).pending()


def ran_once(peer: Peer) -> None:
    """Check that the call ran, and that the log has it once, with its outcome."""
    assert (peer.project / "a.txt").read_text() == "once\n"
    [entry] = [entry for entry in read_records(peer.log) if entry.record.kind == "intent"]
    assert entry.status == "ok"
    approved = entry.record.confirmation
    assert approved is not None
    assert approved.channel == "mcp"


def test_a_new_server_takes_the_answer_to_the_question_of_a_killed_one(peer: Peer) -> None:
    """Over stdio and 2026-07-28: SIGKILL between the question and the answer."""

    def called(pipe: Pipe, number: int, **more: Any) -> dict[str, Any]:
        pipe.send("tools/call", number, name="write", arguments=WRITE, _meta=ENVELOPE, **more)
        answer = pipe.receive()
        assert answer["id"] == number
        result: dict[str, Any] = answer["result"]
        return result

    with Pipe(peer) as pipe:
        question = called(pipe, 1)
        pipe.process.send_signal(signal.SIGKILL)
        assert pipe.process.wait() == -signal.SIGKILL
    assert question["resultType"] == "input_required"
    assert "a.txt" in question["inputRequests"]["approval"]["params"]["message"]
    answer = {
        "requestState": question["requestState"],
        "inputResponses": {
            "approval": {"action": "accept", "content": {DECISION: ALLOW}},
        },
    }
    with Pipe(peer) as pipe:
        assert not called(pipe, 2, **answer).get("isError")
        ran_once(peer)
        again = called(pipe, 3, **answer)
        assert again["isError"]
        assert "used already" in again["content"][0]["text"]
    with Pipe(peer) as pipe:
        assert called(pipe, 4, **answer)["isError"]
    ran_once(peer)


def test_over_http_too(peer: Peer) -> None:
    async def ask(address: str, token: str) -> str | None:
        async with http_client(address, token, "auto", elicitation_callback=Person()) as client:
            return (await asked(client, "write", **WRITE)).request_state

    async def answer(address: str, token: str) -> None:
        async with http_client(address, token, "auto", elicitation_callback=Person()) as client:
            assert not (await retried(client, "write", state, **WRITE)).is_error
            assert (await retried(client, "write", state, **WRITE)).is_error

    with running_up(peer) as (process, address, token):
        state = anyio.run(ask, address, token)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with up(peer) as (address, token):
        anyio.run(answer, address, token)
    ran_once(peer)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", [LEGACY, "auto"])
def test_a_headless_client_waits_for_the_inbox_and_its_retry_runs(
    peer: Peer, transport: str, mode: str
) -> None:
    async def work(place: tuple[str, str]) -> None:
        async with connected(peer, place, mode) as client:
            waiting = text_of(await client.call_tool("write", WRITE))
            assert waiting.startswith("not approved yet: ")
            listed = await anyio.to_thread.run_sync(peer.skillhouse, "approvals", "list", "--json")
            [approval] = json.loads(listed)["approvals"]
            assert f"ask the user to approve {approval['id']}" in waiting
            if place[0] and not is_replicated():  # `[approvals] page_url` names the balancer.
                assert f"({place[0]}/approvals/{approval['id']})" in waiting
            assert not (peer.project / "a.txt").exists()
            await anyio.to_thread.run_sync(approve, peer.log.parent, approval["id"])
            assert not (await client.call_tool("write", WRITE)).is_error
            assert (await client.call_tool("write", WRITE)).is_error

    with place_of(peer, transport) as place:
        anyio.run(work, place)
    assert (peer.project / "a.txt").read_text() == "once\n"


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", [LEGACY, "auto"])
def test_a_person_at_the_client_answers_over_every_transport(
    peer: Peer, transport: str, mode: str
) -> None:
    person = Person(YES)

    async def work(place: tuple[str, str]) -> None:
        async with connected(peer, place, mode, elicitation_callback=person) as client:
            assert not (await client.call_tool("write", WRITE)).is_error

    with place_of(peer, transport) as place:
        anyio.run(work, place)
    assert len(person.shown) == 1
    ran_once(peer)


@pytest.mark.one_server("address")
def test_without_a_token_tools_are_served_and_the_page_is_not(peer: Peer) -> None:
    """`up --no-auth`: what such a client brings is nobody's yes."""
    person = Person()

    async def work(address: str) -> None:
        for mode in (LEGACY, "auto"):
            async with http_client(address, "", mode, elicitation_callback=person) as client:
                assert "skill" in [tool.name for tool in (await client.list_tools()).tools]
                assert "not approved yet" in text_of(await client.call_tool("write", WRITE))

    with up(peer, "--no-auth") as (address, token):
        anyio.run(work, address)
        assert httpx2.get(f"{address}/").status_code == 401
        assert httpx2.get(f"{address}/api/v1/status").status_code == 401
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
            assert httpx2.post(f"{address}/mcp", json=body, headers=headers).status_code >= 400
        assert token
    assert person.shown == []


@pytest.mark.parametrize("mode", ["auto"])
def test_of_two_servers_either_takes_what_was_asked_at_the_other(peer: Peer, mode: str) -> None:
    """As behind a balancer that gives each request to the next server."""

    async def work(places: list[tuple[str, str]]) -> None:
        async with AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(http_client(*place, mode)) for place in places
            ]
            for number in range(6):
                asks, repeats = (first, second) if number % 2 else (second, first)
                wanted = {"path": f"{number}.txt", "content": "once\n"}
                assert text_of(await asks.call_tool("write", wanted)).startswith("not approved yet")
                # Joined, and not asked once more.
                again = text_of(await repeats.call_tool("write", wanted))
                assert again.startswith("not approved yet")
                [question] = open_questions(peer.log.parent)
                approve(peer.log.parent, question.id)
                assert not (await repeats.call_tool("write", wanted)).is_error
                assert open_questions(peer.log.parent) == ()

    with up(peer) as first, up(peer) as second:
        anyio.run(work, [first, second])
    assert len(list(peer.project.glob("?.txt"))) == 6
