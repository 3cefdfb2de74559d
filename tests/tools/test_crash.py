"""Tests of calls whose process is killed or stopped, and of processes that share a house."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.audit import read_records, verify_log
from skillhouse.sandbox import SandboxLevel, detect
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.slow

RULES = """
[[rules]]
effect = "allow"
action = "exec"
pattern = "*"

[[rules]]
effect = "allow"
action = "write"
pattern = "*"
"""


class Place:
    """A project and a home with a configuration, for processes of the command line."""

    def __init__(self, base: Path) -> None:
        self.project = make_places(base).start
        self.environment = {
            "HOME": str(base / "home"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self.log = base / "home/.local/state/skillhouse/audit.jsonl"
        file = base / "home/.config/skillhouse/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text(RULES)
        write_skill(base / "home/.agents/skills/pdf")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            (sys.executable, *words),
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def call(self, tool: str, **arguments: Any) -> subprocess.Popen[bytes]:
        return self.start("-m", "skillhouse", "call", tool, "--args", json.dumps(arguments))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def sandboxed(need: Any) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no usable sandbox")


def running(seconds: str) -> list[bytes]:
    """Return the command lines of this machine that name this duration."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path("/proc", name, "cmdline").read_bytes())
        except OSError:
            continue
    return [line for line in found if seconds.encode() in line]


def sleepers(seconds: str) -> int:
    return sum(line == f"sleep\0{seconds}\0".encode() for line in running(seconds))


def until(holds: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for what the kernel tells nobody about; at most half a minute."""
    for _ in range(600):
        if holds():
            return
        if process is not None and process.poll() is not None:
            _, said = process.communicate()
            pytest.fail(f"ended with {process.returncode}: {said.decode()}")
        time.sleep(0.05)
    pytest.fail("waited for too long")


def unique_seconds() -> str:
    return f"6{secrets.randbelow(10**9):09}"


def sleeping(place: Place) -> tuple[subprocess.Popen[bytes], str]:
    """Return a process in the middle of a call to `exec`, and how long that would sleep."""
    seconds = unique_seconds()
    script = f"sleep {seconds} & setsid sleep {seconds} & exec sleep {seconds}"
    process = place.call("exec", command="sh", params=["-c", script])
    until(lambda: sleepers(seconds) == 3, process)
    return process, seconds


@pytest.mark.usefixtures("sandboxed")
def test_killing_the_house_leaves_no_process_and_an_unknown_outcome(place: Place) -> None:
    process, seconds = sleeping(place)
    process.kill()
    process.communicate()
    until(lambda: not running(seconds))
    found = verify_log(place.log)
    assert (found.problems, [record.tool for record in found.unknown]) == ((), ["exec"])
    assert read_records(place.log, limit=1)[0].status == "unknown"
    # The next call goes on as if nothing had been.
    after = place.call("exec", command="true")
    assert (after.wait(), verify_log(place.log).problems) == (0, ())
    after.communicate()
    assert [record.tool for record in verify_log(place.log).unknown] == ["exec"]


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_stopping_the_house_leaves_no_process(place: Place, number: int, code: int) -> None:
    process, seconds = sleeping(place)
    process.send_signal(number)
    _, said = process.communicate()
    assert (process.returncode, b"Traceback" in said) == (code, False)
    until(lambda: not running(seconds))
    found = verify_log(place.log)
    assert found.problems == ()
    if number == signal.SIGINT:
        assert found.unknown == ()
        entry = read_records(place.log, limit=1)[0]
        assert entry.outcome is not None
        assert (entry.status, entry.outcome.reason) == ("error", "cancelled")
        assert os.listdir(place.project) == [".git"]


@pytest.mark.usefixtures("sandboxed")
def test_a_second_ctrl_c_leaves_no_process_either(place: Place) -> None:
    process, seconds = sleeping(place)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode in (130, -signal.SIGINT)
    until(lambda: not running(seconds))
    assert verify_log(place.log).problems == ()


TEN_CALLS = """
import sys
import anyio
from skillhouse.house import Skillhouse

async def main(house, name):
    async def call(tool, arguments):
        results.append((await house.call(tool, arguments)).status)

    results = []
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            path = f"{name}-{number}.txt"
            tasks.start_soon(call, "write", {"path": path, "content": name * 100})
            tasks.start_soon(call, "read", {"path": "shared.txt"})
        tasks.start_soon(call, "write", {"path": "shared.txt", "content": "shared"})
        tasks.start_soon(call, "skill", {"name": "pdf"})
    print(len(results), *set(results))

with Skillhouse() as house:
    print("ready", flush=True)
    sys.stdin.readline()
    anyio.run(main, house, sys.argv[1])
"""


def test_ten_parallel_calls_of_four_processes_share_one_log(place: Place) -> None:
    (place.project / "shared.txt").write_text("shared")
    processes = [
        subprocess.Popen(
            (sys.executable, "-c", TEN_CALLS, name),
            cwd=place.project,
            env=place.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name in "abcd"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert [out for out, _ in said] == [b"10 ok\n"] * 4
    found = verify_log(place.log)
    assert (found.records, found.problems, found.unknown) == (80, (), ())
    written = sorted(path.name for path in place.project.glob("?-?.txt"))
    assert written == [f"{name}-{number}.txt" for name in "abcd" for number in range(4)]
    assert all((place.project / name).read_text() == name[0] * 100 for name in written)
