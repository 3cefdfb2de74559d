"""Tests of floor/call_clock.py, with times far from each other: an hour, and none at all."""

from __future__ import annotations

import asyncio

import anyio

from skillhouse.floor.call_clock import CallClock, clock_stopped, current_clock, using

HOUR = 3_600.0


async def deadline_in(seconds: float) -> bool:
    """Return whether the current block ends in that time."""
    return abs(anyio.current_effective_deadline() - anyio.current_time() - seconds) < 60


async def test_a_stopped_clock_has_no_deadline_and_then_the_time_that_was_left() -> None:
    with CallClock(HOUR) as clock:
        assert await deadline_in(HOUR)
        with clock_stopped():
            assert anyio.current_effective_deadline() == float("inf")
            with clock_stopped():
                pass
            assert anyio.current_effective_deadline() == float("inf")
        assert await deadline_in(HOUR)
    assert (clock.is_over, current_clock()) == (False, None)


async def test_a_call_whose_time_is_over_ends_as_soon_as_its_question_is_answered() -> None:
    with CallClock(0) as clock:
        await anyio.sleep(HOUR)
    assert clock.is_over
    reached = []
    with CallClock(0.01) as clock:
        with clock_stopped():
            await anyio.sleep(0.05)
            reached.append("answered")
        # The hundredth of a second is still there.
        await anyio.sleep(HOUR)
    assert (clock.is_over, reached) == (True, ["answered"])


async def test_the_calls_around_it_stop_too_and_others_go_on() -> None:
    with CallClock(HOUR), CallClock(2 * HOUR):
        with clock_stopped():
            assert anyio.current_effective_deadline() == float("inf")
        assert await deadline_in(HOUR)
    with anyio.move_on_after(HOUR), CallClock(2 * HOUR), clock_stopped():
        # A limit that is no call's, such as the client's.
        assert await deadline_in(HOUR)


async def test_a_request_on_another_task_stops_the_clock_of_its_call() -> None:
    seen = []

    async def request() -> None:
        with using(clock), clock_stopped():
            asked.set()
            await answered.wait()

    async with asyncio.TaskGroup() as tasks:
        asked, answered = anyio.Event(), anyio.Event()
        with CallClock(HOUR) as clock:
            waiting = tasks.create_task(request())
            await asked.wait()
            seen.append(anyio.current_effective_deadline())
            answered.set()
            await waiting
            assert await deadline_in(HOUR)
    assert seen == [float("inf")]
    with clock_stopped():
        assert current_clock() is None
