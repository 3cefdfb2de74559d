"""Ordinary concurrency of a tool's code: tasks, threads, event loops and cancelled requests."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.extensions.cells.lab import Core, Lab, lab, language, make, until

from skillhouse.extensions.cells import Executor
from skillhouse.extensions.cells.call_channel import ASKED_AT_ONCE

pytestmark = pytest.mark.slow

__all__ = ["lab", "language"]

MANY = 40
SOURCES = {
    "python": """
        import datetime, decimal, uuid

        async def many(params, context):
            import asyncio
            urls = [f"https://a.test/{n}" for n in range(params["count"])]
            return [got.status for got in await asyncio.gather(*map(context.fetch, urls))]

        async def cancels(params, context):
            import asyncio
            slow = asyncio.ensure_future(context.fetch("https://a.test/slow"))
            await context.read_file("when it is open")
            slow.cancel()
            try:
                await slow
            except asyncio.CancelledError:
                return await context.read_file("after")

        def values(params, context):
            moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
            return {
                "moment": moment, "day": moment.date(), "time": moment.time(),
                "amount": decimal.Decimal("1.10"), "id": uuid.UUID(int=1), moment.date(): [moment],
            }

        async def left(params, context):
            import asyncio, threading, time
            asyncio.ensure_future(context.fetch("https://a.test/slow"))
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
            threading.Thread(target=lambda: [context.log("x") for _ in range(500)]).start()
            await asyncio.sleep(0.05)
            return "answered"
    """,
    "javascript": """
        export const tools = {
          many: async (params, context) => {
            const one = (_, n) => context.fetch(`https://a.test/${n}`);
            const found = await Promise.all(Array.from({ length: params.count }, one));
            return found.map((answer) => answer.status);
          },
          cancels: async (params, context) => {
            const abort = new AbortController();
            const slow = context.fetch('https://a.test/slow', { signal: abort.signal });
            await context.readFile('when it is open');
            abort.abort();
            try { await slow; } catch { return context.readFile('after'); }
          },
          values: () => ({ moment: new Date(Date.UTC(2026, 0, 2, 3, 4, 5)) }),
          left: async (params, context) => {
            context.fetch('https://a.test/slow');
            setInterval(() => context.log('x'), 0);
            await new Promise((resolve) => setTimeout(resolve, 50));
            return 'answered';
          },
        };
    """,
}
TOOLS = "\ntools = {name: tool for name, tool in globals().items() if callable(tool)}\n"


class Gathering(Core):
    """Answers fetches when as many have come as are answered at once, and those of "slow" never."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self.together = together
        self.open = self.most = 0
        self.cancelled: list[str] = []

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if request["url"].endswith("slow"):
                await anyio.sleep_forever()
            await until(lambda: self.most >= self.together)
        except BaseException:
            self.cancelled.append(request["url"])
            raise
        finally:
            self.open -= 1
        return await super().fetch(request)

    async def read_file(self, path: str) -> str:
        if path == "when it is open":
            await until(lambda: self.open)
        return await super().read_file(path)


def spec(lab: Lab, language: str) -> Any:
    tail = TOOLS if language == "python" else ""
    return make(lab.place, textwrap.dedent(SOURCES[language]) + tail, language=language)


def python(lab: Lab, source: str) -> Any:
    done = lab.call(make(lab.place, source))
    assert (done.kind, done.error) == ("ok", "")
    return done.value


def test_requests_of_several_tasks_run_at_once_up_to_the_bound(lab: Lab, language: str):
    lab.core = core = Gathering(ASKED_AT_ONCE)
    done = lab.call(spec(lab, language), "many", arguments={"count": MANY})
    assert (done.kind, done.value, done.error) == ("ok", [200] * MANY, "")
    assert core.most == ASKED_AT_ONCE


def test_a_cancelled_request_ends_in_the_core_and_the_tool_goes_on(lab: Lab, language: str):
    lab.core = core = Gathering(1)

    async def scene(executor: Executor) -> Any:
        done = await lab.ask(executor, spec(lab, language), "cancels")
        return done.kind, done.value, core.asked[1:]

    assert lab.run(scene) == ("ok", "text of after", [("read_file", "after")])
    assert core.cancelled == ["https://a.test/slow"]


def test_dates_times_and_exact_numbers_become_text(lab: Lab, language: str):
    moment = "2026-01-02T03:04:05"
    in_python = {
        "moment": f"{moment}+00:00",
        "day": "2026-01-02",
        "time": "03:04:05",
        "amount": "1.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "2026-01-02": [f"{moment}+00:00"],
    }
    expected = in_python if language == "python" else {"moment": f"{moment}.000Z"}
    done = lab.call(spec(lab, language), "values")
    assert (done.kind, done.value, done.error) == ("ok", expected, "")


def test_what_a_tool_leaves_running_ends_with_its_answer(lab: Lab, language: str):
    lab.core = core = Gathering(1)
    done = lab.call(spec(lab, language), "left")
    assert (done.kind, done.value, done.error) == ("ok", "answered", "")
    assert core.open == 0


def test_threads_use_the_context_at_once(lab: Lab):
    source = """
        import threading
        from concurrent.futures import ThreadPoolExecutor

        def tool(params, context):
            found = []
            def read():
                found.append(context.read_file("a"))
            threads = [threading.Thread(target=read) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with ThreadPoolExecutor(30) as pool:
                return found, list(pool.map(context.read_file, map(str, range(100))))

        tools = {"tool": tool}
    """
    texts = [f"text of {n}" for n in range(100)]
    assert python(lab, source) == [["text of a"] * 8, texts]


def test_threads_and_tasks_of_one_tool_use_the_context_at_once(lab: Lab):
    source = """
        import asyncio

        async def tool(params, context):
            return await asyncio.gather(
                asyncio.to_thread(context.read_file, "in a thread"),
                context.read_file("in a task"),
                asyncio.get_running_loop().run_in_executor(None, context.read_file, "in a pool"),
            )

        tools = {"tool": tool}
    """
    assert python(lab, source) == [f"text of in a {place}" for place in ("thread", "task", "pool")]


def test_asyncio_may_be_imported_inside_an_async_tool(lab: Lab):
    source = """
        async def tool(params, context):
            import contextvars
            name = contextvars.ContextVar("name")
            name.set("set before")
            import asyncio
            task = asyncio.current_task()
            async with asyncio.timeout(5), asyncio.TaskGroup() as group:
                read = group.create_task(context.read_file("a"))
                await asyncio.sleep(0)
            return [read.result(), name.get(), asyncio.current_task() is task]

        tools = {"tool": tool}
    """
    assert python(lab, source) == ["text of a", "set before", True]


def test_a_sync_tool_may_run_loops_of_its_own(lab: Lab):
    source = """
        def tool(params, context):
            import asyncio, threading
            async def both():
                return await asyncio.gather(context.read_file("a"), context.read_file("b"))
            found = [asyncio.run(both())]
            thread = threading.Thread(target=lambda: found.append(asyncio.run(both())))
            thread.start()
            thread.join()
            return found + [context.read_file("c")]

        tools = {"tool": tool}
    """
    both = ["text of a", "text of b"]
    assert python(lab, source) == [both, both, "text of c"]


def test_without_asyncio_the_context_may_be_used_with_and_without_await(lab: Lab):
    source = """
        import sys

        async def tool(params, context):
            answer = context.fetch("https://a.test/x")
            text = await context.read_file("a")
            return [answer.status, text, "asyncio" in sys.modules]

        tools = {"tool": tool}
    """
    assert python(lab, source) == [200, "text of a", False]


def test_an_exception_that_ends_a_thread_or_a_wait_leaves_the_context_usable(lab: Lab):
    source = """
        import signal, sys, threading

        def tool(params, context):
            thread = threading.Thread(target=lambda: sys.exit(3))
            thread.start()
            thread.join()

            def late(number, frame):
                context.log("late")
                raise TimeoutError
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                context.fetch("https://a.test/slow")
            except TimeoutError:
                return context.read_file("after")

        tools = {"tool": tool}
    """
    lab.core = core = Gathering(1)
    assert python(lab, source) == "text of after"
    assert (core.open, core.logged) == (0, ["late"])


def test_an_error_of_a_task_group_names_its_first_errors(lab: Lab):
    source = """
        import asyncio

        async def tool(params, context):
            async with asyncio.TaskGroup() as group:
                group.create_task(context.read_file("../secret"))

        tools = {"tool": tool}
    """
    done = lab.call(make(lab.place, source))
    assert done.kind == "error"
    assert done.error.endswith(": CapabilityError: outside the workspace")


def test_a_child_process_is_refused_the_context_with_the_reason(lab: Lab):
    source = """
        import os

        def tool(params, context):
            reading, writing = os.pipe()
            if os.fork() == 0:
                try:
                    context.read_file("a")
                except RuntimeError as error:
                    os.write(writing, str(error).encode())
                os._exit(0)
            return [os.read(reading, 1000).decode(), context.read_file("b")]

        tools = {"tool": tool}
    """
    refusal = "`context` works only in the tool's own process: use threads"
    assert python(lab, source) == [refusal, "text of b"]


def test_a_coroutine_that_nothing_awaits_has_no_effect_and_is_named_in_the_output(lab: Lab):
    source = """
        import asyncio

        async def tool(params, context):
            context.fetch("https://a.test/x")

        tools = {"tool": tool}
    """
    done = lab.call(make(lab.place, source))
    assert (done.kind, lab.core.asked) == ("ok", [])
    assert "coroutine 'context.fetch' was never awaited" in done.stdout_tail


def test_who_waits_for_a_start_that_is_cancelled_starts_another(lab: Lab) -> None:
    spec = make(lab.place, "tools = {'tool': lambda params, context: params}\n")

    async def scene(executor: Executor) -> list[str]:
        found: list[str] = []

        async def waits() -> None:
            found.append((await lab.ask(executor, spec)).kind)

        async with anyio.create_task_group() as tasks, anyio.create_task_group() as first:
            first.start_soon(lab.ask, executor, spec)
            await until(lambda: executor.health()["cells"])
            for _ in range(3):
                tasks.start_soon(waits)
            await anyio.lowlevel.checkpoint()
            first.cancel_scope.cancel()
        return found

    assert lab.run(scene) == ["ok"] * 3
