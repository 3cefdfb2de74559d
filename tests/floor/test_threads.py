"""Tests of floor/threads.py and floor/lock.py."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from skillhouse.floor.lock import once
from skillhouse.floor.threads import THREADS_MAX, finish_in_thread, in_thread


async def test_work_is_done_on_another_thread_and_its_error_is_raised_here() -> None:
    def wrong() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_thread(wrong)
    assert await in_thread(threading.get_ident) != threading.get_ident()


@pytest.mark.parametrize("native", [False, True], ids=["of anyio", "of asyncio"])
def test_work_that_was_begun_has_ended_when_a_cancelled_caller_goes_on(*, native: bool) -> None:
    begun, may_end = threading.Event(), threading.Event()
    steps: list[str] = []

    def slow() -> None:
        begun.set()
        may_end.wait(10)
        steps.append("work ended")

    async def caller(scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await in_thread(slow)
                await anyio.lowlevel.checkpoint()
            finally:
                steps.append("caller goes on")

    async def work() -> None:
        scope = anyio.CancelScope()
        task = asyncio.create_task(caller(scope))
        while not begun.is_set():  # noqa: ASYNC110 - set by a thread.
            await asyncio.sleep(0.001)
        if native:
            task.cancel()
        else:
            scope.cancel()
        await asyncio.sleep(0.02)
        assert steps == []
        may_end.set()
        await asyncio.wait([task])

    asyncio.run(work())
    assert steps == ["work ended", "caller goes on"]


def test_a_value_is_made_once_however_many_threads_ask() -> None:
    together = threading.Barrier(8)
    made: list[int] = []

    class Owner:
        @once
        def value(self) -> object:
            """A value."""
            made.append(1)
            return (self.other, object())

        @once
        def other(self) -> object:
            return object()

    owner = Owner()

    def ask(_: int) -> object:
        together.wait()
        return owner.value

    with ThreadPoolExecutor(8) as threads:
        assert len(set(map(id, threads.map(ask, range(8))))) == 1
    assert (len(made), Owner.value.__doc__, isinstance(Owner.value, once)) == (1, "A value.", True)


@pytest.mark.parametrize("native", [False, True], ids=["of anyio", "of asyncio"])
def test_what_is_to_be_done_in_any_case_is_done_once_though_no_thread_is_free(
    *, native: bool
) -> None:
    may_end = threading.Event()
    done: list[str] = []

    async def caller(scope: anyio.CancelScope) -> None:
        with scope:
            await finish_in_thread(lambda: done.append("done"))

    async def work() -> None:
        waits = [asyncio.create_task(in_thread(may_end.wait)) for _ in range(THREADS_MAX)]
        await asyncio.sleep(0.05)
        scope = anyio.CancelScope()
        task = asyncio.create_task(caller(scope))
        await asyncio.sleep(0.02)
        assert done == []
        if native:
            task.cancel()
            await asyncio.wait([task])
            assert done == ["done"]
        else:
            scope.cancel()
        may_end.set()
        await asyncio.wait([task, *waits])

    asyncio.run(work())
    assert done == ["done"]


async def test_the_error_of_what_is_done_in_any_case_is_raised() -> None:
    def wrong() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await finish_in_thread(wrong)
