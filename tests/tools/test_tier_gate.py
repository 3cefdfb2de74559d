"""Tests of tools/tier_gate.py: the calls of one process, and a stop that is given in it."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from skillhouse.floor import StateError
from skillhouse.tiers import TierEngine, tier_ledger
from skillhouse.tiers.emergency_stop import lines
from skillhouse.tools.tier_gate import Running, RunningCalls
from tests.extensions.cells.lab import until
from tests.tiers.engine import policy_of


class Cells:
    """Something in the background, whose first end fails."""

    def __init__(self) -> None:
        self.is_busy = True
        self.tries = 0

    async def end(self) -> None:
        self.tries += 1
        if self.tries == 1:
            raise OSError("not yet")
        self.is_busy = False


def tiers_at(base: Path) -> TierEngine:
    return TierEngine(policy_of(), base / "state.sqlite3")


async def hangs(calls: RunningCalls, told: list[str], begun: anyio.Event | None = None) -> None:
    with Running(calls) as running:
        if begun is not None:
            begun.set()
        await anyio.sleep_forever()
    told.append(running.reason)


async def test_without_tiers_nothing_is_ended() -> None:
    calls = RunningCalls(None)
    with Running(calls) as running:
        await anyio.lowlevel.checkpoint()
    assert (running.stopped(), running.is_ended, calls.end("a test")) == ("", False, ("", 0))


async def test_a_stop_on_the_loop_of_the_calls_does_not_wait_for_itself(tmp_path: Path) -> None:
    tiers, told = tiers_at(tmp_path), list[str]()
    calls = RunningCalls(tiers)
    async with anyio.create_task_group() as tasks:
        begun = anyio.Event()
        tasks.start_soon(hangs, calls, told, begun)
        await begun.wait()
        report = tiers.stop("mika", "a test")
        assert (report.ended, report.silent) == (1, ())
    calls.close()
    assert told == ["a test (by mika)"]


def test_a_stop_on_another_thread_counts_the_calls_of_each_loop(tmp_path: Path) -> None:
    tiers, told = tiers_at(tmp_path), list[str]()
    calls = RunningCalls(tiers)

    def other() -> None:
        asyncio.run(hangs(calls, told))

    threads = [threading.Thread(target=other) for _ in range(2)]
    for thread in threads:
        thread.start()
    while sum(line.running for line in lines(tiers.stop_directory)) < 2:
        threading.Event().wait(0.001)
    report = tiers.stop("mika", "a test")
    for thread in threads:
        thread.join()
    assert (report.ended, report.silent, told) == (2, (), ["a test (by mika)"] * 2)
    # Their loops are closed now, and the next stop passes them over.
    assert tiers.stop("mika", "again").ended == 0
    calls.close()


def test_a_stop_whose_file_cannot_be_written_ends_what_runs(tmp_path: Path) -> None:
    tiers, told = tiers_at(tmp_path), list[str]()
    calls = RunningCalls(tiers)

    async def scene() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hangs, calls, told)
            await anyio.lowlevel.checkpoint()
            (tmp_path / "stop").rename(tmp_path / "away")
            (tmp_path / "stop").write_text("in the way")
            report = await anyio.to_thread.run_sync(tiers.stop, "mika", "a test")
            assert [name for name, _ in report.failed] == ["write the file of the stop"]

    anyio.run(scene)
    calls.close()
    assert len(told) == 1


def test_a_stop_of_this_machine_ends_what_runs_while_the_state_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers, told = tiers_at(tmp_path), list[str]()
    calls = RunningCalls(tiers)
    asked = 0

    def away(path: Path) -> tuple[int, ...]:
        nonlocal asked
        asked += 1
        raise StateError("the server is away", path)

    monkeypatch.setattr(tier_ledger, "commit_stamp", away)

    async def scene() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hangs, calls, told)
            await until(lambda: asked > 1)
            # As from another process: this one hears of it by its looks alone.
            tiers_at(tmp_path).stop("mika", "a test")
            await until(lambda: told)

    anyio.run(scene)
    calls.close()
    assert told == ["a test (by mika)"]


def test_what_is_nested_ends_whole_and_what_is_cancelled_otherwise_is_not_stopped(
    tmp_path: Path,
) -> None:
    tiers, told = tiers_at(tmp_path), list[str]()
    calls = RunningCalls(tiers)

    async def nested() -> None:
        with Running(calls) as running:
            await hangs(calls, told)
        told.append(f"outer {running.is_ended}")

    async def scene() -> None:
        with anyio.move_on_after(0.001), Running(calls) as running:
            await anyio.sleep_forever()
        assert (running.reason, running.is_ended) == ("", False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(nested)
            await anyio.lowlevel.checkpoint()
            assert (await anyio.to_thread.run_sync(tiers.stop, "mika", "a test")).ended == 2

    anyio.run(scene)
    calls.close()
    assert told == ["outer True"]


def test_what_runs_beside_the_calls_is_ended_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiers, cells = tiers_at(tmp_path), Cells()
    calls = RunningCalls(tiers, lambda: cells)

    async def scene() -> None:
        with Running(calls):
            pass
        await anyio.to_thread.run_sync(tiers.stop, "mika", "a test")
        with anyio.fail_after(5):
            while cells.is_busy:  # noqa: ASYNC110 - nothing tells of it.
                await anyio.sleep(0.001)

    with caplog.at_level(logging.ERROR):
        anyio.run(scene)
    calls.close()
    assert (cells.tries, "could not be ended" in caplog.text) == (2, True)


def test_calls_that_cannot_be_shown_are_ended_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "stop").mkdir()
    (tmp_path / "stop/calls").write_text("in the way")
    tiers, told = tiers_at(tmp_path), list[str]()
    calls = RunningCalls(tiers)

    async def scene() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(hangs, calls, told)
            await anyio.lowlevel.checkpoint()
            assert (await anyio.to_thread.run_sync(tiers.stop, "mika", "a test")).ended == 0

    anyio.run(scene)
    calls.close()
    assert told == ["a test (by mika)"] * 2
    assert caplog.text.count("a stop will not wait for the calls of this process") == 1
