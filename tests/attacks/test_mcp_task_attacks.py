"""Attacks on tasks of MCP clients: another client's, a question that is not its own to answer, a
call that is made twice."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest

from skillhouse.approval import ApprovalState
from skillhouse.audit import read_records
from skillhouse.frontends.mcp.elicitation import ALLOW, DECISION
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.task_news import LOOK_MS
from tests.frontends.mcp_inside import Inside
from tests.frontends.mcp_peer import PATIENCE_SECONDS, Peer, running_up
from tests.frontends.mcp_tasks import ASKS, DECLARED, WRITE, posted, talking

pytestmark = pytest.mark.slow

METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
YES = {"action": "accept", "content": {DECISION: ALLOW}}


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path)


def begun(inside: Inside) -> int:
    """Return how many calls began."""
    records = read_records(inside.house.audit_log.path)
    return sum(one.record.kind == "intent" for one in records)


def others(inside: Inside) -> list[tuple[SkillhouseServer, str]]:
    """Return servers with the name of a client that is not the one that asked."""
    return [
        (inside.server(inside.another()), "test"),
        (inside.server(inside.another()), "other"),
        (inside.server(inside.another(), user="eve"), "test"),
        (inside.server(inside.another(), is_of_user=False), "test"),
        (inside.server(inside.another(), identity="token 1"), "test"),
    ]


@pytest.mark.parametrize("number", range(5))
def test_the_task_of_another_client_is_as_one_that_is_not_there(
    inside: Inside, number: int
) -> None:
    """The other client knows the id, and the one that asked is alive."""

    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            [key] = (await client.get(task_id))["inputRequests"]
            server, name = others(inside)[number]
            async with talking(server, ASKS, name) as eve:
                for method in METHODS:
                    more = {"inputResponses": {key: YES}}
                    got = await eve.error(method, taskId=task_id, **more)
                    unknown = await eve.error(method, taskId="A" * 43, **more)
                    assert got == unknown
                    assert got["code"] == -32602
            assert (await client.get(task_id))["status"] == "input_required"
            assert len(inside.house.approvals.pending()) == 1

    anyio.run(work)
    assert begun(inside) == 0


def test_the_task_of_a_dead_client_goes_to_its_successor_alone(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server(), ASKS, "other") as earlier:
            async with talking(inside.server(inside.another()), ASKS) as client:
                task_id = (await client.call("write", **WRITE))["taskId"]
            assert (await earlier.error("tasks/get", taskId=task_id))["code"] == -32602
            async with talking(inside.server(inside.another()), ASKS, "new") as new:
                assert (await new.error("tasks/get", taskId=task_id))["code"] == -32602

    anyio.run(work)


def test_the_state_keeps_no_id_by_which_a_task_is_reached(inside: Inside) -> None:
    async def work() -> str:
        async with talking(inside.server()) as client:
            return str((await client.call("write", **WRITE))["taskId"])

    task_id = anyio.run(work)
    state = inside.house.config.state_directory
    for file in state.rglob("*"):
        if file.is_file():
            assert task_id.encode() not in file.read_bytes(), file


def test_the_client_of_a_program_answers_no_question(inside: Inside) -> None:
    """A named token, and a service without one: whoever asks there is no person."""

    async def work() -> None:
        server = inside.server(is_of_user=False, identity="token 1")
        async with talking(server, ASKS) as client:
            made = await client.call("write", **WRITE)
            assert made["status"] == "working"
            task_id = made["taskId"]
            found = await client.get(task_id)
            assert "inputRequests" not in found
            [approval] = inside.house.approvals.pending()
            for key in ("approval", approval.id, approval.request.nonce):
                given = {"inputResponses": {key: YES}}
                await client.result("tasks/update", taskId=task_id, **given)
            assert (await client.get(task_id))["status"] == "working"

    anyio.run(work)
    assert begun(inside) == 0


def test_a_key_that_was_guessed_or_shown_for_another_question_answers_none(
    inside: Inside,
) -> None:
    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            first = (await client.call("write", **WRITE))["taskId"]
            second = (await client.call("write", path="b.txt", content="x"))["taskId"]
            [key] = (await client.get(first))["inputRequests"]
            for given in ({key: YES}, {"approval": YES}, {"": YES}):
                await client.result("tasks/update", taskId=second, inputResponses=given)
            assert (await client.get(second))["status"] == "input_required"
            assert (await client.get(first))["status"] == "input_required"

    anyio.run(work)
    assert begun(inside) == 0


def test_a_question_for_the_page_alone_is_answered_by_no_update(inside: Inside) -> None:
    async def work() -> None:
        house = inside.house
        house.approvals.page = "http://127.0.0.1:8600"
        client_asks = {**DECLARED, "elicitation": {"form": {}, "url": {}}}
        async with talking(inside.server(), client_asks) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            [key] = (await client.get(task_id))["inputRequests"]
            only_for_page(inside)
            found = await client.get(task_id)
            [[now, request]] = found["inputRequests"].items()
            assert request["params"]["mode"] == "url"
            for name in {key, now}:
                given = {name: YES}
                await client.result("tasks/update", taskId=task_id, inputResponses=given)
            assert (await client.get(task_id))["status"] == "input_required"

    anyio.run(work)
    assert begun(inside) == 0


def only_for_page(inside: Inside) -> None:
    """Have the open question decided on the page only, as a call of tier 1 is."""
    file = inside.house.config.state_directory / "state.sqlite3"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE approval SET request = json_set(request, '$.on_page', json('true'))"
        )


def test_two_servers_that_see_the_answer_make_the_call_once(inside: Inside) -> None:
    async def work() -> None:
        servers = [inside.server(inside.another(), identity="owner") for _ in range(3)]
        async with (
            talking(servers[0]) as one,
            talking(servers[1]) as two,
            talking(servers[2]) as three,
        ):
            task_id = (await one.call("write", **WRITE))["taskId"]
            inside.answer()
            async with anyio.create_task_group() as group:
                for client in (one, two, three):
                    group.start_soon(client.get, task_id)
            for client in (one, two, three):
                ended = await client.polled(task_id)
                assert not ended["result"]["isError"]

    anyio.run(work)
    assert begun(inside) == 1
    [approval] = inside.house.approvals.latest()
    assert approval.state is ApprovalState.USED


def test_a_call_that_was_denied_or_cancelled_is_not_revived(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            [key] = (await client.get(task_id))["inputRequests"]
            await client.result("tasks/cancel", taskId=task_id)
            given = {key: YES}
            await client.result("tasks/update", taskId=task_id, inputResponses=given)
            assert (await client.get(task_id))["status"] == "cancelled"

    anyio.run(work)
    assert begun(inside) == 0


@pytest.mark.heavy
def test_over_http_a_token_reaches_no_task_of_another_and_a_header_misleads_none(
    tmp_path: Path,
) -> None:
    peer = Peer(tmp_path)

    def token(name: str) -> str:
        return peer.skillhouse("tokens", "new", name, "--scope", "call", "--user", name).strip()

    bob, eve = token("bob"), token("eve")
    with running_up(peer) as (_, address, owner), httpx2.Client(timeout=PATIENCE_SECONDS) as http:
        post = partial(posted, http, address)
        made = post(bob, "tools/call", "write", name="write", arguments=WRITE)
        task_id = made["result"]["taskId"]
        for key in (eve, owner):
            for method in METHODS:
                got = post(key, method, task_id, taskId=task_id, inputResponses={})
                assert got["error"]["code"] == -32602, got
        for name in ("", "another"):
            assert post(bob, "tasks/get", name, taskId=task_id)["error"]["code"] == -32020
        found = post(bob, "tasks/get", task_id, taskId=task_id)
        assert found["result"]["status"] == "working"


@pytest.mark.parametrize("number", range(5))
def test_who_listens_for_the_task_of_another_client_hears_nothing(
    inside: Inside, number: int
) -> None:
    """A naive server sends each change of a task to whoever names its id."""

    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            server, name = others(inside)[number]
            async with talking(server, ASKS, name) as eve:
                wanted = {"taskIds": [task_id], "toolsListChanged": True}
                await eve.begin("subscriptions/listen", notifications=wanted)
                first = await eve.receive()
                assert first["method"] == "notifications/subscriptions/acknowledged"
                honoured = first["params"]["notifications"]
                assert honoured == {"taskIds": [], "toolsListChanged": True}
                await client.result("tasks/cancel", taskId=task_id)
                heard = []
                with anyio.move_on_after(3 * LOOK_MS / 1000):
                    heard.append(await eve.receive())
                assert heard == []

    anyio.run(work)
    assert begun(inside) == 0
