"""Attacks by a call's own messages: floods, forged and reused ids, and cancelled requests."""

from __future__ import annotations

import functools
import json
import socket
import struct
import textwrap
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import Capabilities, Executor
from skillhouse.extensions.cells.call_channel import (
    ASKED_AT_ONCE,
    ASKED_MAX,
    CANCELS_MAX,
    CallChannel,
    CallOutcome,
    attempt,
)
from tests.extensions.cells.lab import Core, Lab, lab, language, make, until

__all__ = ["lab", "language"]

HEAD = struct.Struct("!I")


class Stuck(Core):
    """Answers no fetch, and counts how each one ended."""

    def __init__(self, *, is_slow_to_end: bool = False) -> None:
        super().__init__()
        self.is_slow_to_end = is_slow_to_end
        self.began: list[str] = []
        self.ended: list[str] = []
        self.go = anyio.Event()

    def has_begun(self, count: int) -> bool:
        return len(self.began) >= count

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.began.append(request["url"])
        try:
            await self.go.wait()
        finally:
            if self.is_slow_to_end:
                with anyio.CancelScope(shield=True):
                    await self.go.wait()
            self.ended.append(request["url"])
        return {"status": 200, "headers": {}, "body": request["url"]}


class Hostile:
    """The cell's end of a channel, which writes what it likes."""

    def __init__(self, link: socket.socket, token: str) -> None:
        self.link = link
        self.token = token

    def send(self, **values: Any) -> None:
        data = json.dumps({"jsonrpc": "2.0", **values}).encode()
        self.link.sendall(HEAD.pack(len(data)) + data)

    def fetch(self, number: Any, url: str = "") -> None:
        params = {"url": url or f"https://a.test/{number}", "capability": self.token}
        self.send(method="core.fetch", params=params, id=number)

    def cancel(self, number: Any, **params: Any) -> None:
        given = {"id": number, "capability": self.token, **params}
        self.send(method="core.cancel", params=given)

    def finish(self) -> None:
        self.send(id="1", result="done")

    def answers(self) -> list[Any]:
        """Return what has come, after our own request."""
        self.link.setblocking(False)
        data = bytearray()
        while True:
            try:
                chunk = self.link.recv(1 << 20)
            except BlockingIOError:
                break
            if not chunk:
                break
            data += chunk
        found = []
        while data:
            (length,) = HEAD.unpack_from(data)
            found.append(json.loads(data[4 : 4 + length]))
            del data[: 4 + length]
        return found[1:]


def played(core: Core, scene: Any) -> CallOutcome:
    """Return how a call ends whose cell does what `scene` says."""

    async def main() -> CallOutcome:
        capabilities = Capabilities()
        ours, theirs = socket.socketpair()
        outcome: list[CallOutcome] = []
        with ours, theirs, capabilities.of(core) as token:
            ours.setblocking(False)
            channel = CallChannel(ours, capabilities=capabilities, token=token, number="1")
            channel.begin("tool.execute", {})

            async def call() -> None:
                outcome.append(await attempt(channel, seconds=20.0))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await scene(Hostile(theirs, token))
        return outcome[0]

    return anyio.run(main)


def test_a_flood_beyond_the_bound_ends_the_call_and_runs_no_more_than_the_bound_at_once() -> None:
    core = Stuck()

    async def scene(cell: Hostile) -> None:
        for number in range(ASKED_MAX + 2):
            cell.fetch(number)

    outcome = played(core, scene)
    assert outcome.kind == "resource-limit"
    assert len(core.began) == len(core.ended) == ASKED_AT_ONCE


def test_a_cell_that_cancels_what_is_slow_to_end_starts_no_more_than_the_bound() -> None:
    # Each cancelled request would make room for another if only open ones counted.
    core = Stuck(is_slow_to_end=True)

    async def scene(cell: Hostile) -> None:
        for number in range(2 * ASKED_AT_ONCE):
            cell.fetch(number)
            least = min(number + 1, ASKED_AT_ONCE)
            await until(functools.partial(core.has_begun, least))
            cell.cancel(number)
        await anyio.sleep(0.02)
        assert (len(core.began), core.ended) == (ASKED_AT_ONCE, [])
        core.go.set()
        cell.finish()

    assert played(core, scene).kind == "ok"
    assert len(core.began) == len(core.ended) == ASKED_AT_ONCE


def test_cancelling_and_asking_again_and_again_withdraws_a_bounded_number() -> None:
    core = Stuck()

    async def scene(cell: Hostile) -> None:
        for number in range(CANCELS_MAX + 20):
            cell.fetch(number)
            least = min(number + 1, CANCELS_MAX + ASKED_AT_ONCE)
            await until(functools.partial(core.has_begun, least))
            cell.cancel(number)
        await until(lambda: len(core.ended) >= CANCELS_MAX)
        await anyio.sleep(0.02)
        assert len(core.ended) == CANCELS_MAX
        cell.finish()

    assert played(core, scene).kind == "ok"


@pytest.mark.parametrize(
    "number", [7, "other", [], {}, None, True, 1e300, -1, "1", {"id": 1}], ids=repr
)
def test_a_forged_id_cancels_nothing(number: Any) -> None:
    core = Stuck()

    async def scene(cell: Hostile) -> None:
        cell.fetch(2)
        await until(lambda: core.began)
        cell.cancel(number)
        cell.send(method="core.cancel", params=[2])
        cell.send(method="core.cancel")
        cell.cancel(2, capability="forged")
        cell.cancel(2, capability=None)
        await anyio.sleep(0.02)
        assert core.ended == []
        core.go.set()
        await until(lambda: core.ended)
        await anyio.sleep(0.02)
        assert [answer["id"] for answer in cell.answers()] == [2]
        cell.finish()

    assert played(core, scene).kind == "ok"


async def test_a_call_cancels_none_of_another_calls_requests() -> None:
    core, other = Stuck(), Stuck()
    capabilities = Capabilities()
    pairs = [socket.socketpair() for _ in range(2)]
    with capabilities.of(core) as token, capabilities.of(other) as stolen:
        channels = []
        for (ours, _), own in zip(pairs, (token, stolen), strict=True):
            ours.setblocking(False)
            channels.append(CallChannel(ours, capabilities=capabilities, token=own, number="1"))
        mine, victim = Hostile(pairs[0][1], token), Hostile(pairs[1][1], stolen)
        async with anyio.create_task_group() as tasks:
            for channel in channels:
                tasks.start_soon(channel.answer)
            victim.fetch(5)
            await until(lambda: other.began)
            mine.cancel(5)
            mine.cancel(5, capability=stolen)
            await anyio.sleep(0.02)
            assert other.ended == []
            mine.finish()
            victim.finish()
    for pair in pairs:
        for end in pair:
            end.close()


def test_two_requests_of_one_id_are_answered_and_the_second_cancels_nothing_twice() -> None:
    core = Stuck()

    async def scene(cell: Hostile) -> None:
        cell.fetch(2, "https://a.test/first")
        cell.fetch(2, "https://a.test/second")
        await until(lambda: len(core.began) == 2)
        cell.cancel(2)
        cell.cancel(2)
        await until(lambda: core.ended)
        await anyio.sleep(0.02)
        assert core.ended == ["https://a.test/first"]
        core.go.set()
        await until(lambda: len(core.ended) == 2)
        await anyio.sleep(0.02)
        assert [answer["result"]["body"] for answer in cell.answers()] == ["https://a.test/second"]
        cell.finish()

    assert played(core, scene).kind == "ok"


def test_a_cancellation_never_cuts_an_answer_that_is_being_sent() -> None:
    # The answer is longer than the socket holds, so it is half sent when the cancellation comes.
    class Long(Core):
        async def read_file(self, path: str) -> str:
            return "x" * (4 << 20)

    async def scene(cell: Hostile) -> None:
        params = {"path": "long", "capability": cell.token}
        cell.send(method="core.readFile", params=params, id=2)
        await anyio.sleep(0.1)
        cell.cancel(2)
        await anyio.sleep(0.02)
        found: list[Any] = []

        def read() -> None:
            cell.link.setblocking(True)
            for _ in range(2):
                (length,) = HEAD.unpack(cell.link.recv(4, socket.MSG_WAITALL))
                found.append(json.loads(cell.link.recv(length, socket.MSG_WAITALL)))

        await anyio.to_thread.run_sync(read)
        assert len(found[1]["result"]["content"]) == 4 << 20
        cell.finish()

    assert played(Long(), scene).kind == "ok"


SLOW = {
    "python": """
        import asyncio

        async def tool(params, context):
            # The core is slow to end what is cancelled, and answers some of it. On a busy machine
            # an answer may come before the cancellation: that request was not late.
            found = []
            while len(found) < 20:
                try:
                    await asyncio.wait_for(context.read_file("late"), 0.01)
                except TimeoutError:
                    found.append(await context.read_file(str(len(found))))
            return found

        tools = {"tool": tool}
    """,
    "javascript": """
        export const tools = { tool: async (params, context) => {
          const found = [];
          while (found.length < 20) {
            const signal = AbortSignal.timeout(10);
            try { await context.readFile('late', { signal }); }
            catch { found.push(await context.readFile(String(found.length))); }
          }
          return found;
        } };
    """,
}


@pytest.mark.slow
def test_late_answers_of_cancelled_requests_reach_no_other(lab: Lab, language: str) -> None:
    class Late(Core):
        async def read_file(self, path: str) -> str:
            if path == "late":
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.05)
                return "forged"
            return path

    lab.core = Late()
    done = lab.call(make(lab.place, SLOW[language], language=language))
    assert (done.kind, done.value, done.error) == ("ok", [str(n) for n in range(20)], "")


@pytest.mark.slow
def test_answers_in_another_order_reach_those_who_asked(lab: Lab, language: str) -> None:
    class Backwards(Core):
        def __init__(self) -> None:
            super().__init__()
            self.last = 10

        async def read_file(self, path: str) -> str:
            await until(lambda: self.last == int(path))
            self.last -= 1
            return path

    sources = {
        "python": """
            from concurrent.futures import ThreadPoolExecutor

            def tool(params, context):
                with ThreadPoolExecutor(10) as pool:
                    return list(pool.map(context.read_file, map(str, range(1, 11))))

            tools = {"tool": tool}
        """,
        "javascript": """
            export const tools = { tool: (params, context) =>
              Promise.all(Array.from({ length: 10 }, (_, n) => context.readFile(String(n + 1)))) };
        """,
    }
    lab.core = Backwards()
    done = lab.call(make(lab.place, sources[language], language=language))
    assert (done.kind, done.value) == ("ok", [str(n) for n in range(1, 11)])


@pytest.mark.slow
def test_an_answer_to_a_loop_that_is_closed_harms_no_other(lab: Lab) -> None:
    source = textwrap.dedent("""
        import asyncio, threading

        def tool(params, context):
            async def abandoned():
                asyncio.ensure_future(context.read_file("late"))
                await asyncio.sleep(0.01)
            def run():
                loop = asyncio.new_event_loop()
                loop.run_until_complete(abandoned())
                loop.close()
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            return [context.read_file("a"), context.read_file("late")]

        tools = {"tool": tool}
    """)

    class Late(Core):
        async def read_file(self, path: str) -> str:
            await anyio.sleep(0.05 if path == "late" else 0)
            return path

    lab.core = Late()

    async def scene(executor: Executor) -> Any:
        done = await lab.ask(executor, make(lab.place, source))
        return done.kind, done.value

    assert lab.run(scene) == ("ok", ["a", "late"])
