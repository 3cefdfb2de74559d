"""Tests of the tasks extension (SEP-2663): what a client polls for, answers and cancels."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from skillhouse.approval import ApprovalBroker, ApprovalSettings, ApprovalState
from skillhouse.audit import read_records
from skillhouse.frontends.mcp import tasks
from skillhouse.frontends.mcp.elicitation import ALLOW, DECISION, DENY
from skillhouse.house import call_tasks
from skillhouse.tools import UnknownToolError
from tests.frontends.mcp_inside import YES, Inside, Person, asked, talk
from tests.frontends.mcp_peer import PATIENCE_SECONDS, Peer, Pipe, has_sandbox, running, running_up
from tests.frontends.mcp_tasks import (
    ASKS,
    DECLARED,
    TASKS,
    WRITE,
    Talk,
    envelope,
    posted,
    talking,
)
from tests.harness import Need
from tests.person_answers import approve

pytestmark = pytest.mark.slow


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path)


def intents(inside: Inside) -> list[str]:
    """Return how each call that began ended, by the audit log."""
    records = read_records(inside.house.audit_log.path)
    return [str(one.status) for one in records if one.record.kind == "intent"]


def test_a_call_that_waits_for_approval_is_a_task_and_runs_once_after_it(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server()) as client:
            made = await client.call("write", **WRITE)
            assert made["resultType"] == "task"
            assert made["status"] == "working"
            assert made["ttlMs"] == 86_400_000
            assert made["pollIntervalMs"] == 1_000
            assert made["createdAt"].endswith("Z")
            assert not {"inputRequests", "result", "content", "requestState"} & made.keys()
            task_id = made["taskId"]
            assert len(task_id) >= 43
            waiting = await client.get(task_id)
            assert (waiting["resultType"], waiting["status"]) == ("complete", "working")
            [approval] = inside.house.approvals.pending()
            assert approval.id in waiting["statusMessage"]
            assert not (inside.project / "a.txt").exists()
            inside.answer()
            ended = await client.polled(task_id)
            assert ended["status"] == "completed"
            assert not ended["result"]["isError"]
            assert (inside.project / "a.txt").read_text() == "once\n"
            (inside.project / "a.txt").unlink()
            assert await client.get(task_id) == ended
            assert not (inside.project / "a.txt").exists()

    anyio.run(work)
    assert intents(inside) == ["ok"]
    kinds = [one.record.kind for one in read_records(inside.house.audit_log.path)]
    assert kinds.count("refusal") == 1  # The question has one record.


def test_a_call_that_is_done_at_once_is_no_task(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server()) as client:
            result = await client.call("list", path=".")
            assert result["resultType"] == "complete"
            assert not result["isError"]

    anyio.run(work)


@pytest.mark.parametrize("answer", [ALLOW, DENY])
def test_the_person_at_the_client_answers_by_an_update(inside: Inside, answer: str) -> None:
    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            made = await client.call("write", **WRITE)
            assert made["status"] == "input_required"
            assert "inputRequests" not in made
            asking = await client.get(made["taskId"])
            [[key, request]] = asking["inputRequests"].items()
            assert len(key) == 32
            assert request["method"] == "elicitation/create"
            assert request["params"]["message"].startswith("write: ")
            assert (await client.get(made["taskId"]))["inputRequests"] == {key: request}
            ack = await client.result(
                "tasks/update",
                taskId=made["taskId"],
                inputResponses={key: {"action": "accept", "content": {DECISION: answer}}},
            )
            assert ack["resultType"] == "complete"
            assert not {"taskId", "status", "result", "inputRequests"} & ack.keys()
            ended = await client.polled(made["taskId"])
            assert ended["status"] == "completed"
            assert ended["result"]["isError"] is (answer == DENY)

    anyio.run(work)
    assert (inside.project / "a.txt").exists() is (answer == ALLOW)
    [approval] = inside.house.approvals.latest()
    state = ApprovalState.USED if answer == ALLOW else ApprovalState.DENIED
    assert (approval.state, approval.by, approval.channel) == (state, "local", "mcp")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"action": "accept"},
        {"action": "accept", "content": {DECISION: "always"}},
        {"action": "decline", "content": {DECISION: ALLOW}},
        {"action": "cancel"},
        {"ignored": True},
        7,
    ],
)
def test_what_is_no_answer_leaves_the_question_open(inside: Inside, given: object) -> None:
    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            [key] = (await client.get(task_id))["inputRequests"]
            update: dict[str, Any] = {"taskId": task_id, "inputResponses": {key: given}}
            await client.send("tasks/update", **update)
            assert (await client.get(task_id))["status"] in ("working", "input_required")
            assert len(inside.house.approvals.pending()) == 1
            inside.answer()
            assert (await client.polled(task_id))["status"] == "completed"

    anyio.run(work)
    assert (inside.project / "a.txt").exists()


def test_a_cancelled_question_is_withdrawn_and_its_call_never_runs(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server()) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            ack = await client.result("tasks/cancel", taskId=task_id)
            assert ack["resultType"] == "complete"
            assert (await client.get(task_id))["status"] == "cancelled"
            assert inside.house.approvals.pending() == ()
            await client.result("tasks/cancel", taskId=task_id)
            assert (await client.get(task_id))["status"] == "cancelled"

    anyio.run(work)
    assert not (inside.project / "a.txt").exists()


def test_a_long_call_is_a_task_and_its_cancellation_kills_the_command(
    inside: Inside, need: Need
) -> None:
    need(has_sandbox(), "bubblewrap that can make namespaces")
    mark = f"3{inside.project.stat().st_ino}"
    inside.house = inside.another()
    server = inside.server()
    server.tasks.after_seconds = 0

    async def work() -> None:
        async with talking(server, ASKS) as client:
            made = await client.call("exec", command=f"sleep {mark}")
            assert (made["resultType"], made["status"]) == ("task", "working")
            await client.answer(made["taskId"], **{DECISION: ALLOW})
            while not running(mark):
                assert (await client.get(made["taskId"]))["status"] == "working"
                await anyio.sleep(0.02)
            assert (await client.get(made["taskId"]))["status"] == "working"
            await client.result("tasks/cancel", taskId=made["taskId"])
            assert (await client.polled(made["taskId"]))["status"] == "cancelled"
            assert not running(mark)

    anyio.run(work)
    assert intents(inside) == ["error"]


def test_a_call_that_fails_as_a_request_is_a_failed_task(inside: Inside) -> None:
    server = inside.server()
    server.tasks.after_seconds = 0
    is_task = anyio.Event()

    async def fails(*_: Any, **__: Any) -> Any:
        await is_task.wait()
        raise UnknownToolError("gone", "", [])

    inside.house.call = fails  # type: ignore[method-assign] # what an extension may end in.

    async def work() -> None:
        async with talking(server) as client:
            made = await client.call("write", **WRITE)
            is_task.set()
            ended = await client.polled(made["taskId"])
            assert ended["status"] == "failed"
            assert ended["error"]["code"] == -32602
            assert "gone" in ended["statusMessage"]

    anyio.run(work)


def test_who_does_not_declare_it_sees_no_task(inside: Inside) -> None:
    server = inside.server()
    server.tasks.after_seconds = 0
    person = Person(YES)

    async def work() -> None:
        async with talking(server, {}) as client:
            waiting = await client.call("write", **WRITE)
            assert waiting["resultType"] == "complete"
            assert waiting["content"][0]["text"].startswith("not approved yet: ")
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                error = await client.error(method, taskId="x", inputResponses={})
                assert error["code"] == -32021
                assert error["data"] == {"requiredCapabilities": DECLARED}

    anyio.run(work)

    async def first(client: Any) -> None:
        assert (await asked(client, "write", path="b.txt", content="x")).request_state

    talk(inside, first, "auto", person)


def test_what_the_extension_has_no_more_is_no_method(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server()) as client:
            found = await client.result("server/discover")
            assert found["capabilities"]["extensions"][TASKS] == {}
            for method in ("tasks/list", "tasks/result"):
                assert (await client.error(method, taskId="x"))["code"] == -32601
            assert (await client.error("tasks/get", taskId="x"))["code"] == -32602
            assert (await client.error("tasks/get"))["code"] == -32602

    anyio.run(work)


def test_a_question_survives_its_server_and_the_call_runs_once(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
        async with talking(inside.server(inside.another()), ASKS) as client:
            await client.answer(task_id, **{DECISION: ALLOW})
            assert not (await client.polled(task_id))["result"]["isError"]
        async with talking(inside.server(inside.another()), ASKS) as client:
            assert (await client.get(task_id))["status"] == "completed"

    anyio.run(work)
    assert intents(inside) == ["ok"]


def test_a_client_with_too_many_gets_plain_results(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_tasks, "OPEN_MAX", 1)

    async def work() -> None:
        async with talking(inside.server()) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            other = await client.call("write", path="b.txt", content="x")
            assert other["content"][0]["text"].startswith("not approved yet: ")
            await client.result("tasks/cancel", taskId=task_id)
            assert "taskId" in await client.call("write", path="c.txt", content="x")

    anyio.run(work)


def test_a_result_that_is_too_long_to_keep_says_so(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "OUTCOME_MAX", 400)
    (inside.project / "long.txt").write_text("line\n" * 1_000)
    server = inside.server()
    server.tasks.after_seconds = 0

    async def work() -> None:
        async with talking(server) as client:
            made = await client.call("read", path="long.txt")
            ended = await client.polled(made["taskId"])
            assert "too long to keep" in ended["result"]["content"][0]["text"]

    anyio.run(work)


def hanging(inside: Inside) -> list[bool]:
    """Have calls take long; return what gets an entry where one ends."""
    ended = []

    async def hangs(*_: Any, **__: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    inside.house.call = hangs  # type: ignore[method-assign] # what takes long.
    return ended


def sent(pipe: Pipe, number: int, method: str, **params: Any) -> dict[str, Any]:
    """Send a request and return the result that answers it."""
    pipe.send(method, number, _meta=envelope(DECLARED), **params)
    answer = pipe.receive()
    assert answer["id"] == number
    result: dict[str, Any] = answer["result"]
    return result


def test_another_server_of_the_state_has_a_call_cancelled(inside: Inside) -> None:
    """As behind a balancer that gives each request to the next server."""
    servers = [inside.server(one, identity="owner") for one in (inside.house, inside.another())]
    servers[0].tasks.after_seconds = 0
    ended = hanging(inside)

    async def work() -> None:
        async with talking(servers[0]) as first, talking(servers[1]) as second:
            task_id = (await first.call("write", **WRITE))["taskId"]
            assert (await second.get(task_id))["status"] == "working"
            await second.result("tasks/cancel", taskId=task_id)
            assert (await second.polled(task_id))["status"] == "cancelled"

    anyio.run(work)
    assert ended == [True]


def test_a_call_whose_request_is_given_up_ends(inside: Inside) -> None:
    server = inside.server()
    ended = hanging(inside)

    async def given_up() -> None:
        async with talking(server) as client:
            await client.begin("tools/call", name="write", arguments=WRITE)
            await client.notify("notifications/cancelled", requestId=1)
            while not ended:
                await client.error("tasks/get", taskId="x")

    anyio.run(given_up)
    assert ended == [True]


@pytest.mark.heavy
@pytest.mark.parametrize("is_answered", [False, True])
def test_over_a_killed_server_a_question_is_kept(peer: Peer, is_answered: bool) -> None:
    with Pipe(peer) as pipe:
        made = sent(pipe, 1, "tools/call", name="write", arguments=WRITE)
        assert made["resultType"] == "task"
        pipe.process.send_signal(signal.SIGKILL)
        pipe.process.wait()
    if is_answered:
        [approval] = ApprovalBroker(peer.log.parent).pending()
        approve(peer.log.parent, approval.id)
    with Pipe(peer) as pipe:
        number = 1
        found = sent(pipe, number, "tasks/get", taskId=made["taskId"])
        while is_answered and found["status"] == "working":
            number += 1
            found = sent(pipe, number, "tasks/get", taskId=made["taskId"])
        assert found["status"] == ("completed" if is_answered else "working")
    assert (peer.project / "a.txt").exists() is is_answered


@pytest.mark.heavy
def test_over_http_a_task_outlives_its_service(peer: Peer) -> None:
    with running_up(peer) as (process, address, token):
        with httpx2.Client(timeout=PATIENCE_SECONDS) as http:
            post = partial(posted, http, address, token)
            made = post("tools/call", "write", name="write", arguments=WRITE)["result"]
            task_id = made["taskId"]
            assert post("tasks/get", task_id, taskId=task_id)["result"]["status"] == "working"
        process.send_signal(signal.SIGKILL)
        process.wait()
    [approval] = ApprovalBroker(peer.log.parent).pending()
    approve(peer.log.parent, approval.id)
    with (
        running_up(peer) as (_, address, token),
        httpx2.Client(timeout=PATIENCE_SECONDS) as http,
    ):
        post = partial(posted, http, address, token)
        found = {"status": "working"}
        while found["status"] == "working":
            found = post("tasks/get", task_id, taskId=task_id)["result"]
    assert found["status"] == "completed", found
    assert (peer.project / "a.txt").read_text() == "once\n"


@pytest.mark.heavy
def test_a_call_that_ran_when_its_server_was_killed_is_lost_and_not_repeated(
    peer: Peer, need: Need
) -> None:
    need(has_sandbox(), "bubblewrap that can make namespaces")
    peer.configure('[[rules]]\neffect = "allow"\naction = "exec"\npattern = "sleep *"\n')
    mark = f"4{peer.project.stat().st_ino}"

    with Pipe(peer) as pipe:
        made = sent(pipe, 1, "tools/call", name="exec", arguments={"command": f"sleep {mark}"})
        assert (made["resultType"], made["status"]) == ("task", "working")
        number = 1
        while not running(mark):
            number += 1
            assert sent(pipe, number, "tasks/get", taskId=made["taskId"])["status"] == "working"
        pipe.process.send_signal(signal.SIGKILL)
        pipe.process.wait()
    with Pipe(peer) as pipe:
        for number in range(1, 4):
            found = sent(pipe, number, "tasks/get", taskId=made["taskId"])
            assert found["status"] == "failed"
            assert "whether it took effect is not known" in found["statusMessage"]
    assert sum(one.record.kind == "intent" for one in read_records(peer.log)) == 1


async def heard(client: Talk, task_id: str, *states: str) -> list[dict[str, Any]]:
    """Return the notifications of a task up to one of these states."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["status"] not in states:
        message = await client.receive()
        if message.get("method") == "notifications/tasks":
            assert message["params"]["taskId"] == task_id
            found.append(message["params"])
    return found


def test_a_client_that_listens_hears_of_its_tasks_and_polls_no_more(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server(), ASKS) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            ids = {"taskIds": [task_id, "of-another-client", 7]}
            number = await client.begin("subscriptions/listen", notifications=ids)
            first = await client.receive()
            assert first["method"] == "notifications/subscriptions/acknowledged"
            assert first["params"]["notifications"] == {"taskIds": [task_id]}
            [asking] = await heard(client, task_id, "input_required")
            assert asking["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
            assert "resultType" not in asking
            [key] = asking["inputRequests"]
            inside.answer()
            ended = (await heard(client, task_id, "completed"))[-1]
            assert not ended["result"]["isError"]
            assert (inside.project / "a.txt").read_text() == "once\n"
            polled = await client.get(task_id)
            assert {name: ended[name] for name in ended if name != "_meta"} == {
                name: polled[name] for name in polled if name not in ("_meta", "resultType")
            }
            assert len(key) == 32

    anyio.run(work)
    assert intents(inside) == ["ok"]


def test_who_does_not_declare_it_listens_to_no_task(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server(), {}) as client:
            wanted: dict[str, Any] = {"taskIds": ["x"]}
            error = await client.error("subscriptions/listen", notifications=wanted)
            assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": DECLARED})

    anyio.run(work)


@pytest.mark.parametrize("answer", [ALLOW, DENY])
def test_a_call_that_waits_inside_the_server_is_answered_by_an_update(
    tmp_path: Path, answer: str
) -> None:
    inside = Inside(tmp_path, approvals=ApprovalSettings(unattended="deny", wait_seconds=60))
    server = inside.server()
    server.tasks.after_seconds = 0

    async def work() -> None:
        async with talking(server, ASKS) as client:
            task_id = (await client.call("write", **WRITE))["taskId"]
            asking = await client.polled(task_id, "input_required")
            [[key, request]] = asking["inputRequests"].items()
            assert request["params"]["message"].startswith("write: ")
            assert not (inside.project / "a.txt").exists()
            given = {"other": {"action": "accept", "content": {DECISION: ALLOW}}}
            await client.result("tasks/update", taskId=task_id, inputResponses=given)
            assert (await client.get(task_id))["inputRequests"] == {key: request}
            given = {key: {"action": "accept", "content": {DECISION: answer}}}
            await client.result("tasks/update", taskId=task_id, inputResponses=given)
            ended = await client.polled(task_id)
            assert ended["result"]["isError"] is (answer == DENY)

    anyio.run(work)
    assert (inside.project / "a.txt").exists() is (answer == ALLOW)
    [approval] = inside.house.approvals.latest()
    state = ApprovalState.USED if answer == ALLOW else ApprovalState.DENIED
    assert (approval.state, approval.by, approval.channel) == (state, "local", "mcp")
