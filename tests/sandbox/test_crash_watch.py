"""Tests of the process that cleans up when this one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
]

PROGRAM = """
import os, sys, time
from pathlib import Path
from skillhouse.floor.crash_cleanup import owner_name
from skillhouse.sandbox import watch_for_crashes
from skillhouse.sandbox.mountpoints import KeptPlaceholders

state, work = map(Path, sys.argv[1:3])
stash = KeptPlaceholders(state)
stash.record(str(work), [str(work / ".git")])
stash.place(str(work / ".git"))
watch = watch_for_crashes()
watch.note(f"copies:{state.parent}")
(state.parent / f"cell-{owner_name()}-a").mkdir()
if sys.argv[3] == "again":
    os.kill(watch._watcher, 9)
    while watch._is_watching():
        time.sleep(0.001)
    watch.start()
if sys.argv[3] == "fork" and os.fork() == 0:
    sys.exit()
print(watch._watcher, flush=True)
sys.stdin.read()
"""
GONE_SECONDS = 5.0


def started(tmp_path: Path, how: str) -> tuple[subprocess.Popen[str], int]:
    (tmp_path / "work").mkdir()
    process = subprocess.Popen(
        (sys.executable, "-c", PROGRAM, tmp_path / "state", tmp_path / "work", how),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def left(tmp_path: Path) -> list[str]:
    places = (tmp_path, tmp_path / "state", tmp_path / "work")
    names = {path.name for place in places for path in place.iterdir()}
    return sorted(names - {"state", "work"})


def gone(find: Callable[[], object]) -> bool:
    until = time.monotonic() + GONE_SECONDS
    while find() and time.monotonic() < until:
        time.sleep(0.01)
    return not find()


@pytest.mark.parametrize("how", ["once", "again"])
def test_nothing_is_left_of_a_killed_process(tmp_path: Path, how: str) -> None:
    process, watcher = started(tmp_path, how)
    assert [name.partition("-")[0] for name in left(tmp_path)] == [
        ".git",
        "cell",
        "placeholders",
        "running",
    ]
    process.kill()
    process.communicate()
    assert gone(lambda: left(tmp_path)), left(tmp_path)
    assert gone(lambda: os.path.exists(f"/proc/{watcher}"))


def test_signals_to_the_group_of_a_process_do_not_end_its_watch(tmp_path: Path) -> None:
    process, watcher = started(tmp_path, "once")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(watcher, number)
    process.kill()
    process.communicate()
    assert gone(lambda: left(tmp_path)), left(tmp_path)


@pytest.mark.parametrize("how", ["once", "fork"])
def test_a_process_that_ends_by_itself_cleans_up_and_ends_its_watch(
    tmp_path: Path, how: str
) -> None:
    process, watcher = started(tmp_path, how)
    assert os.path.exists(f"/proc/{watcher}")
    (tmp_path / "work/.git").rmdir()
    process.communicate("")
    assert process.returncode == 0
    assert [name.partition("-")[0] for name in left(tmp_path)] == ["cell"]
    assert gone(lambda: os.path.exists(f"/proc/{watcher}"))
