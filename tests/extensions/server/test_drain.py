"""Tests of extensions/server/drain.py: when a server that ends may go."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.testclient import TestClient
from tests.bundles import BundlePlace
from tests.extensions.server.api.place import BASE, PORT, TOKEN, make_house
from tests.harness import Clock, until

from skillhouse.extensions.server.app import make_app
from skillhouse.extensions.server.drain import (
    LOOK_SECONDS,
    NOTICE_SECONDS,
    PROBED_SECONDS,
    QUIET_SECONDS,
    READY_PATH,
    DrainControl,
    Readiness,
)
from skillhouse.floor.threads import in_thread
from skillhouse.house import LogAnswers, Skillhouse
from skillhouse.house.all_logs import AllLogs


class Desk:
    def __init__(self, base: Path) -> None:
        self.house = make_house(base)
        self.clock = Clock()
        servers = self.house.services.enforcement.connections.servers
        self.readiness = Readiness(self.house, servers, clock=self.clock)
        self.control = DrainControl(self.answer, self.readiness, clock=self.clock)
        self.media = b"application/json"
        self.go_on: anyio.Event | None = None
        self.sent: list[dict[str, Any]] = []

    async def answer(self, _: Any, __: Any, send: Any) -> None:
        headers = [(b"content-type", self.media)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if self.go_on is not None:
            await self.go_on.wait()
        await send({"type": "http.response.body", "body": b""})

    async def ask(self, path: str, method: str = "GET") -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            self.sent.append(dict(message))

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        await self.control({"type": "http", "path": path, "method": method}, receive, send)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_nothing_probes_ends_at_once(desk: Desk) -> None:
    desk.control.drain()
    assert desk.control.is_over(20)


def test_what_is_probed_goes_on_until_the_balancer_has_heard_of_it(desk: Desk) -> None:
    anyio.run(desk.ask, READY_PATH)
    desk.control.drain()
    assert anyio.run(desk.readiness.reasons) == ("draining",)
    desk.clock.now += QUIET_SECONDS
    assert not desk.control.is_over(20)
    anyio.run(desk.ask, READY_PATH)
    assert desk.control.is_over(20)
    # A request that comes late is answered, and its connection ends.
    anyio.run(desk.ask, "/api/v1/skills")
    assert (b"connection", b"close") in desk.sent[-2]["headers"]
    assert not desk.control.is_over(20)
    desk.clock.now += QUIET_SECONDS
    assert desk.control.is_over(20)


def test_probes_that_stop_with_the_signal_are_not_waited_for(desk: Desk) -> None:
    anyio.run(desk.ask, READY_PATH)
    desk.control.drain()
    desk.clock.now += NOTICE_SECONDS - 0.1
    assert not desk.control.is_over(20)
    desk.clock.now += 0.1
    assert desk.control.is_over(20)
    base = desk.house.project.parent / "old"
    base.mkdir()
    old = Desk(base)
    anyio.run(old.ask, READY_PATH)
    old.clock.now += PROBED_SECONDS + 1
    old.control.drain()
    assert old.control.is_over(20)


@pytest.mark.parametrize(
    ("method", "media", "waits"),
    [
        ("POST", b"text/event-stream", True),
        ("GET", b"text/event-stream", False),
        ("POST", b"application/json", False),
    ],
)
def test_a_call_that_is_answered_by_a_stream_is_waited_for_to_its_end(
    desk: Desk, method: str, media: bytes, waits: bool
) -> None:
    async def scene() -> None:
        desk.media, desk.go_on = media, anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.ask, "/mcp", method)
            await anyio.wait_all_tasks_blocked()
            desk.control.drain()
            assert desk.control.is_over(20) is not waits
            desk.clock.now += 20
            assert desk.control.is_over(20)
            desk.go_on.set()

    anyio.run(scene)


async def test_a_server_is_ready_once_it_has_ever_taken_its_bundle(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    with Skillhouse(place.config) as house:
        servers, clock = house.services.enforcement.connections.servers, Clock()
        ready = Readiness(house, servers, clock=clock)
        assert await ready.reasons() == ("skills",)
        place.push(1)
        place.look()
        clock.now += LOOK_SECONDS
        assert await ready.reasons() == ()
        # What is wrong later keeps the last good one, and the server its work.
        (place.store / "current.json").write_text("{}")
        assert place.look().status == "refused"
        clock.now += LOOK_SECONDS
        assert await ready.reasons() == ()


async def test_what_ends_beside_requests_is_a_reason_with_its_name(tmp_path: Path) -> None:
    house = make_house(tmp_path)
    fault, begun = anyio.Event(), anyio.Event()

    async def fail() -> None:
        await fault.wait()
        raise RuntimeError("a fault of the bot")

    @asynccontextmanager
    async def bot() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            yield

    app = make_app(house, token=TOKEN, port=PORT, beside=bot)

    async def receive() -> dict[str, Any]:
        if begun.is_set():
            await anyio.sleep_forever()
        return {"type": "lifespan.startup"}

    async def send(message: MutableMapping[str, Any]) -> None:
        assert message["type"] in ("lifespan.startup.complete", "lifespan.shutdown.failed")
        begun.set()

    async def serve() -> None:
        with pytest.raises(ExceptionGroup):
            await app({"type": "lifespan", "asgi": {}, "state": {}}, receive, send)

    def ready() -> tuple[int, Any]:
        found = TestClient(app, BASE).get(READY_PATH)
        return found.status_code, found.json()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await begun.wait()
            assert await in_thread(ready) == (200, {"status": "ready", "reasons": []})
            fault.set()
    assert await in_thread(ready) == (503, {"status": "not-ready", "reasons": ["bot-ended"]})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("fault", "reasons"), [(RuntimeError, ()), (SystemExit, ("log-answers-ended",))]
)
def test_a_thread_that_ended_is_a_reason_and_a_fault_ends_none(
    desk: Desk, fault: type[BaseException], reasons: tuple[str, ...]
) -> None:
    looks: list[int] = []

    class Faulty(AllLogs):
        is_shared = True

        @property
        def state_path(self) -> Path:
            looks.append(1)
            raise fault

        @state_path.setter
        def state_path(self, _: Path) -> None: ...

    enforcement = desk.house.services.enforcement
    servers = enforcement.connections.servers
    answers = LogAnswers(Faulty(desk.house.config, desk.house.audit_log, servers))
    desk.readiness.needs("log-answers-ended", lambda: answers.is_running)
    assert anyio.run(desk.readiness.reasons) == ()
    answers.begin()
    assert until(lambda: len(looks) == 2 or not answers.is_running)
    assert anyio.run(desk.readiness.reasons) == reasons
    answers.close()
    assert anyio.run(desk.readiness.reasons) == ()
