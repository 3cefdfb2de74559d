"""Tests of tools/workspace_lock.py."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from skillhouse.tools import WorkspaceBusyError, WorkspaceLock
from skillhouse.tools.workspace_lock import WorkspaceLockError

HOLD = """
import sys, anyio
from pathlib import Path
from skillhouse.tools import WorkspaceLock

async def main():
    lock = WorkspaceLock(Path(sys.argv[1]), Path(sys.argv[2]))
    async with lock.hold(exclusive=True, title="npm test"):
        print("held", flush=True)
        await anyio.sleep(60)

anyio.run(main)
"""


def can_hold(lock: WorkspaceLock, *, exclusive: bool, timeout_seconds: float = 0) -> bool:
    async def attempt() -> bool:
        try:
            async with lock.hold(exclusive=exclusive, title="x", timeout_seconds=timeout_seconds):
                return True
        except WorkspaceBusyError:
            return False

    return anyio.run(attempt)


@contextmanager
def held(lock: WorkspaceLock, *, exclusive: bool) -> Iterator[None]:
    """Hold the workspace on another thread during the block."""
    ready, done = threading.Event(), threading.Event()

    async def hold() -> None:
        async with lock.hold(exclusive=exclusive, title="make"):
            ready.set()
            await anyio.to_thread.run_sync(done.wait)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(anyio.run, hold)
        assert ready.wait(30)
        try:
            yield
        finally:
            done.set()
            holding.result()


@pytest.mark.parametrize(
    ("is_held", "wanted", "works"),
    [(False, False, True), (False, True, False), (True, False, False), (True, True, False)],
)
@pytest.mark.parametrize("other", ["p", "p/sub", "."])
def test_an_exclusive_hold_excludes_every_overlapping_one(
    tmp_path: Path, is_held: bool, wanted: bool, works: bool, other: str
) -> None:
    (tmp_path / "p/sub").mkdir(parents=True)
    locks = tmp_path / "locks"
    with held(WorkspaceLock(locks, tmp_path / "p"), exclusive=is_held):
        assert can_hold(WorkspaceLock(locks, tmp_path / other), exclusive=wanted) is works
    assert can_hold(WorkspaceLock(locks, tmp_path), exclusive=True)
    assert [path.name for path in locks.iterdir()] == ["mutex"]


def test_workspaces_side_by_side_do_not_exclude_each_other(tmp_path: Path) -> None:
    lock, other = (WorkspaceLock(tmp_path / "locks", tmp_path / name) for name in ("a", "ab"))
    with held(lock, exclusive=True):
        assert can_hold(other, exclusive=True)


def test_a_call_inside_a_call_runs_under_its_hold(tmp_path: Path) -> None:
    lock = WorkspaceLock(tmp_path / "locks", tmp_path)

    async def outer() -> None:
        async with lock.hold(exclusive=True, title="outer"):
            async with lock.hold(exclusive=True, title="inner", timeout_seconds=0):
                pass
            with ThreadPoolExecutor(1) as pool:
                assert not pool.submit(can_hold, lock, exclusive=False).result()

    anyio.run(outer)
    assert can_hold(lock, exclusive=True)


def test_a_call_that_waits_to_hold_alone_comes_before_those_that_share(tmp_path: Path) -> None:
    lock = WorkspaceLock(tmp_path / "locks", tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with held(lock, exclusive=False):
            waiting = pool.submit(can_hold, lock, exclusive=True, timeout_seconds=30)
            while can_hold(lock, exclusive=False):
                pass
        assert waiting.result()
    assert can_hold(lock, exclusive=False)


@pytest.mark.slow
def test_the_hold_of_a_killed_process_ends_with_it(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", HOLD, str(tmp_path / "locks"), str(tmp_path)]
    lock = WorkspaceLock(tmp_path / "locks", tmp_path)

    async def hold() -> None:
        async with lock.hold(exclusive=False, title="x", timeout_seconds=0.05):
            pass

    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(WorkspaceBusyError, match="`npm test` is running there"):
            anyio.run(hold)
        process.kill()
    anyio.run(hold)
    assert [path.name for path in (tmp_path / "locks").iterdir()] == ["mutex"]


async def test_a_lock_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with pytest.raises(WorkspaceLockError, match="the workspace cannot be locked"):
        async with WorkspaceLock(tmp_path / "locks", tmp_path).hold(exclusive=False, title="x"):
            pass
