"""Events: order, what a reader that comes back gets, users, memory, and a whole stream."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from jsonschema_rs import Draft202012Validator
from tests.extensions.server import test_http_serve
from tests.extensions.server.api.place import make_house
from tests.house.places import make_places, write_skill

import skillhouse
from skillhouse.answers.doctor import InstanceAnswer
from skillhouse.answers.service import CompanionEventAnswer, ProgressAnswer
from skillhouse.approval import Answer, Connections
from skillhouse.extensions.server.api.event_routes import EVENTS
from skillhouse.extensions.server.api.event_watch import EventWatch
from skillhouse.extensions.server.api.events import EVENT_MAX, RING, EventLog
from skillhouse.extensions.server.api.job_rows import JobRows
from skillhouse.extensions.server.api.jobs import Job, Jobs
from skillhouse.extensions.server.api.openapi import openapi_document
from skillhouse.extensions.server.api.routes import ENDPOINTS
from skillhouse.extensions.server.status import StatusReader
from skillhouse.frontends.api_client import ApiClient
from skillhouse.tools import Caller

pytestmark = pytest.mark.slow


def test_a_reader_gets_what_came_after_its_last_event_and_nothing_twice() -> None:
    log = EventLog()
    start = log.place("")
    assert start == 0
    for number in range(5):
        log.publish("call", {"id": str(number)})
    events, has_lost = log.after(2)
    assert ([one.number for one in events], has_lost) == ([3, 4, 5], False)
    assert log.place(log.id_of(4)) == 4
    assert log.after(5) == ([], False)


@pytest.mark.parametrize("last_id", ["x", "00000000-1", "-", "é-1", "-1"])
def test_an_id_of_an_earlier_start_is_no_place_here(last_id: str) -> None:
    log = EventLog()
    log.publish("call", {})
    assert log.place(last_id) is None


def test_the_ring_is_bounded_and_who_falls_behind_is_told_to_read_again() -> None:
    log = EventLog()
    old = log.id_of(0)
    for number in range(3 * RING):
        log.publish("call", {"id": number, "text": "x" * (20_000 if number % 2 else 1)})
    events, has_lost = log.after(0)
    assert (len(events), has_lost) == (RING, True)
    assert max(len(one.data) for one in events) < 100
    assert log.place(old) is None
    assert log.place(log.id_of(10 * RING)) is None


async def test_the_first_look_has_readers_read_again(tmp_path: Path) -> None:
    """What changed between a page and the first look is in no event: the page would stay old."""
    log = EventLog()
    house = make_house(tmp_path)
    watch = EventWatch(house, StatusReader(house, lambda: 0.0), log)
    remove = log.add_waker(asyncio.Event())
    async with watch.running():
        with anyio.fail_after(60):
            while not log.after(0)[0]:  # noqa: ASYNC110 - nothing else says it.
                await anyio.sleep(0.01)
    remove()
    assert [one.kind for one in log.after(0)[0]] == ["reset"]


@pytest.mark.anyio
async def test_a_fault_of_a_look_ends_nothing_else(tmp_path: Path) -> None:
    """The looks are beside `/mcp`, which would answer nothing any more."""
    log = EventLog()
    house = make_house(tmp_path)
    watch = EventWatch(house, StatusReader(house, lambda: 0.0), log)
    faults = []

    def fault() -> tuple[()]:
        faults.append(1)
        raise RuntimeError("a row of a later version")

    watch.jobs = fault
    remove = log.add_waker(asyncio.Event())
    house.call_sync("write", {"path": "a", "content": "b"})
    with anyio.fail_after(60):
        async with watch.running():
            while len(faults) < 2:  # noqa: ASYNC110 - nothing else says it.
                await anyio.sleep(0.01)
    remove()


def test_a_job_whose_server_dies_is_an_event_at_each_server_without_a_commit(
    tmp_path: Path,
) -> None:
    house = make_house(tmp_path)
    directory = house.config.state_directory
    house.call_sync("write", {"path": "a", "content": "b"})
    logs = (EventLog(), EventLog())
    watches = []
    for log in logs:
        watch = EventWatch(house, StatusReader(house, lambda: 0.0), log)
        watch.jobs = JobRows(directory, Connections(directory), clock=lambda: 9.0).elsewhere
        watches.append(watch)
    connections = Connections(directory)
    rows = JobRows(directory, connections, clock=lambda: 5.0)
    job = Job("plan", "eve", lambda _: None, 5.0)
    job.state = "running"
    rows.open(job.id, "plan", "eve", job.answer())
    for watch in watches:
        watch.look()
    connections.close()
    for watch, log in zip(watches, logs, strict=True):
        # What is no scan asks of no row.
        watch.look(scans=False)
        watch.look()
        watch.look()
        found = [(one.kind, one.user, json.loads(one.data)) for one in log.after(0)[0]]
        assert [(kind, user, value["state"]) for kind, user, value in found] == [
            ("job", "eve", "failed")
        ]
        assert found[0][2]["ended_ms"] == 9_000


def test_a_look_publishes_what_changed_since_the_one_before(tmp_path: Path) -> None:
    house = make_house(tmp_path)
    log = EventLog()
    now = 0.0
    watch = EventWatch(house, StatusReader(house, lambda: now), log)
    house.call_sync("skill", {"name": "notes"})
    watch.look()
    assert log.after(0) == ([], False)
    write_skill(tmp_path / "home/.agents/skills/fresh")
    house.call_sync("read", {"path": "none"}, user="bob")
    caller = Caller(user="bob", channel="mcp", client="codex", client_info="codex 1.2")
    asked = {"path": "a", "content": "b"}
    question = house.call_sync("write", asked, caller=caller).approval_id
    now = 10.0
    watch.look()
    found = [(one.kind, one.user, json.loads(one.data)) for one in log.after(0)[0]]
    kinds = [kind for kind, _, _ in found]
    assert kinds.count("question") == 1
    assert "call" in kinds
    added = {"added": ["user:fresh"], "removed": [], "changed": [], "findings": 0}
    assert ("index", "", added) in found
    event = next(value for kind, user, value in found if kind == "question" and user == "bob")
    assert (event["id"], event["state"]) == (question, "open")
    assert (event["channel"], event["client"]) == ("mcp", "codex")
    calls = [value["client"] for kind, _, value in found if kind == "call"]
    assert calls == ["", "codex 1.2"]
    assert set(check(log)) == {"question", "call", "index"}
    watch.look()
    assert len(log.after(0)[0]) == len(found)


def test_a_look_publishes_that_a_file_cannot_be_used_and_that_it_is_mended(tmp_path: Path) -> None:
    house = make_house(tmp_path)
    log = EventLog()
    now = 0.0
    watch = EventWatch(house, StatusReader(house, lambda: now), log)
    watch.look()
    place = tmp_path / "home/.agents/skills/fresh"

    def published() -> list[dict[str, object]]:
        nonlocal now
        now += 10.0
        before = len(log.after(0)[0])
        watch.look()
        return [json.loads(one.data) for one in log.after(0)[0][before:]]

    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: 'fresh\n---\n")
    nothing: dict[str, object] = {"added": [], "removed": [], "changed": []}
    assert published() == [{**nothing, "findings": 1}]
    assert published() == []
    write_skill(place)
    assert published() == [{**nothing, "added": ["user:fresh"], "findings": 1}]


def test_each_kind_of_event_is_in_the_document() -> None:
    source = "".join(file.read_text() for file in Path(skillhouse.__file__).parent.rglob("*.py"))
    kinds = set(re.findall(r'events\.publish\("(\w+)"', source))
    kinds |= set(re.findall(r'kind = "(question)" if .* else "(answer)"', source)[0])
    assert kinds == set(EVENTS)


def check(log: EventLog) -> list[str]:
    """Check the events against the document, and return their kinds."""
    schemas = openapi_document(ENDPOINTS)["components"]["schemas"]
    references = {"components": {"schemas": schemas}}
    kinds = []
    for one in log.after(0)[0]:
        sent = {"id": log.id_of(one.number), "event": one.kind, "data": one.data.decode()}
        Draft202012Validator({**schemas["ServerSentEvent"], **references}).validate(sent)
        name = schemas["ServerSentEvent"]["discriminator"]["mapping"][one.kind].rpartition("/")[2]
        data = schemas[name]["properties"]["data"]["contentSchema"]
        Draft202012Validator({**data, **references}).validate(json.loads(one.data))
        kinds.append(one.kind)
    return kinds


def test_the_data_of_an_event_is_what_the_document_says(tmp_path: Path) -> None:
    house = make_house(tmp_path)
    log = EventLog()
    watch = EventWatch(house, StatusReader(house, lambda: 0.0), log)
    watch.look()
    asked = house.call_sync("write", {"path": "a", "content": "b"}).approval_id
    watch.look()
    assert asked is not None
    nonce = house.approvals.get(asked).request.nonce
    house.approvals.answer(asked, Answer.NO, by="local", channel="cli", nonce=nonce)
    watch.look()
    Jobs(log, clock=lambda: 0.0, moment=lambda: 0.0).start("plan", "", lambda _: None)
    log.publish("companion", CompanionEventAnswer(state="soon", minutes=9))
    log.publish("progress", progress(message=None))
    log.publish("progress", progress(message="x" * EVENT_MAX))
    log.instance = InstanceAnswer(
        id="a", name="n", host="b", version="1", started="2026-01-31T12:00:00.000Z"
    )
    log.publish("reset", log.reset)
    assert set(check(log)) == set(EVENTS) - {"index"}
    assert json.loads(log.after(0)[0][-2].data) == {"id": None, "is_cut": True}


def progress(*, message: str | None) -> ProgressAnswer:
    return ProgressAnswer(request="a", tool="b", progress=1, total=None, message=message)


@contextmanager
def started(base: Path, *options: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Run `skillhouse up`; give its address, its token and its environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
    environment = {**kept, "HOME": str(make_places(base).home)}
    with test_http_serve.started(base, *options) as (_, port, token):
        yield f"http://127.0.0.1:{port}", token, environment


def test_a_question_of_another_process_is_seen_and_answered_over_the_api(tmp_path: Path) -> None:
    """What the page needs: a call that blocks elsewhere appears without a reload."""

    async def follow(address: str, token: str, environment: dict[str, str]) -> list[str]:
        client = ApiClient(address, token)
        kinds: list[str] = []
        is_watched = anyio.Event()

        async def call() -> None:
            await is_watched.wait()
            command = [sys.executable, "-m", "skillhouse", "call", "write"]
            command += ["path=a.txt", "content=b", "--wait-seconds", "60"]
            done = await anyio.run_process(
                command, check=False, cwd=tmp_path / "project", env=environment
            )
            assert done.returncode == 0, done.stderr

        async def change() -> None:
            """The first look only remembers, so skills come until one is an event."""
            for number in range(200):
                if is_watched.is_set():
                    return
                write_skill(tmp_path / f"home/.agents/skills/s{number}")
                await anyio.sleep(0.3)

        with anyio.fail_after(90):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                tasks.start_soon(change)
                async for event in client.events():
                    is_watched.set()
                    kinds.append(event.kind)
                    if event.kind == "question":
                        (question,) = await client.questions()
                        assert question["id"] == event.data["id"]
                        await client.answer(question, "once")
                    if event.kind == "call" and event.data["status"] == "ok":
                        break
        return kinds

    with started(tmp_path) as (address, token, environment):
        kinds = anyio.run(follow, address, token, environment)
    assert "question" in kinds
    assert "answer" in kinds
    assert (tmp_path / "project/a.txt").read_text() == "b"
