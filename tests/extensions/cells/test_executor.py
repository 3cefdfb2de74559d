"""Cells over their lives: who shares one, reloading, crashes, turns, idleness."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.extensions.cells.lab import Core, Lab, lab, make, until
from tests.sandbox.places import children, copied_python, launcher_at, own, running

from skillhouse.extensions.cells import CellResult, Executor, RpcError, wrap_failure, wrap_result
from skillhouse.extensions.cells.cell import CALLS_PER_CELL, CELL_LIMITS
from skillhouse.extensions.cells.cell_environment import cell_environment_for
from skillhouse.extensions.cells.cell_process import BubblewrapCell
from skillhouse.floor import tree_digest
from skillhouse.sandbox import (
    SandboxError,
    SandboxLevel,
    SandboxStatus,
    SandboxUnavailableError,
    default_python,
)

pytestmark = pytest.mark.slow

__all__ = ["lab"]

ECHO = "tools = {'tool': lambda params, context: params}\n"
WAITS = """
    def tool(params, context):
        context.log("began")
        while context.read_file("go") != "go":
            pass
        import other
        return other.NAME

    tools = {"tool": tool}
"""


VERSION = """
    import sys

    def tool(params, context):
        return [list(sys.version_info[:3]), sys.prefix]

    tools = {"tool": tool}
"""


def waiting_core(lab: Lab) -> anyio.Event:
    """Give the lab a core whose `read_file` answers once the event is set, and return that."""
    go = anyio.Event()

    class Waiting(Core):
        async def read_file(self, path: str) -> str:
            await go.wait()
            return "go"

    lab.core = Waiting()
    return go


def cells_below(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "state" / "cells").iterdir())


def test_loading_code_leaves_no_cell_and_takes_none_from_a_call(lab: Lab) -> None:
    spec = make(lab.place, ECHO)

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for ask in (executor.tool_names, lambda spec: lab.ask(executor, spec)) * 2:
            await ask(spec)
            found.append(executor.health()["cells"])
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(executor.tool_names, spec)
                tasks.start_soon(lab.ask, executor, spec)
        return [*found, executor.health()["cells"]]

    assert lab.run(scene) == [0, 1, 1, 1, 1]


def test_a_cell_is_shared_only_by_calls_of_one_skill_tree_permission_and_user(lab: Lab):
    async def scene(executor: Executor) -> list[int]:
        found = []
        for options in (
            {},
            {},
            {"user": "b"},
            {"permissions": "net"},
            {"skill": "user:skill"},
            {"env": {"A": "b"}},
        ):
            await lab.ask(executor, make(lab.place, ECHO, **options))
            found.append(int(executor.health()["cells"]))
        changed = make(lab.place, ECHO + "\n")
        await lab.ask(executor, changed)
        return [*found, int(executor.health()["cells"])]

    assert lab.run(scene) == [1, 1, 2, 3, 4, 4, 5]
    assert cells_below(lab.place) == []


@pytest.mark.req("S002-59", "S002-56")
def test_calls_in_flight_finish_on_the_old_code(lab: Lab):
    go = waiting_core(lab)
    old = make(lab.place, WAITS, files={"other.py": "NAME = 'old'\n"})
    found: dict[str, Any] = {}

    async def ask(name: str, executor: Executor, spec: Any) -> None:
        found[name] = (await lab.ask(executor, spec)).value

    async def scene(executor: Executor) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "first", executor, old)
            await until(lambda: lab.core.logged)
            new = make(lab.place, WAITS, files={"other.py": "NAME = 'new'\n"})
            await executor.reload("project:skill")
            tasks.start_soon(ask, "second", executor, new)
            await until(lambda: len(lab.core.logged) == 2)
            go.set()
        await until(lambda: executor.health()["cells"] == 1)

    lab.run(scene)
    assert found == {"first": "old", "second": "new"}


def test_a_tree_that_is_not_as_it_was_is_not_run(lab: Lab):
    spec = make(lab.place, ECHO)
    (spec.directory / "main.py").write_text("tools = {}\n")

    async def scene(executor: Executor) -> str:
        with pytest.raises(SandboxError, match="not as it was") as caught:
            await lab.ask(executor, spec)
        return caught.value.code

    assert lab.run(scene) == "skill-changed"
    assert cells_below(lab.place) == []


@pytest.mark.parametrize("level", [SandboxLevel.LANDLOCK, SandboxLevel.CGROUP])
def test_a_cell_that_finds_no_descriptor_leaves_no_process(
    level: SandboxLevel, tmp_path: Path, need: Any, monkeypatch: pytest.MonkeyPatch
):
    launcher_at(level, need, tmp_path / "launcher")
    lab = Lab(SandboxStatus(level=level), tmp_path)
    spec, before = make(tmp_path, ECHO), children()

    def refused(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refused)

    async def scene(executor: Executor) -> str:
        return (await lab.ask(executor, spec)).error

    assert "Too many open files" in lab.run(scene)
    assert children() <= before


def test_a_cell_that_died_while_nobody_called_is_made_anew(lab: Lab):
    async def scene(executor: Executor) -> list[str]:
        spec = make(lab.place, ECHO)
        found: list[str] = [(await lab.ask(executor, spec)).kind]
        for pid in bubblewraps():
            os.kill(pid, signal.SIGKILL)
        found.append((await lab.ask(executor, spec)).kind)
        return found

    first, second = lab.run(scene)
    # If the core has not heard of it yet, the call meets it; a call with an effect is not repeated.
    assert (first, second in ("ok", "crashed")) == ("ok", True)


def bubblewraps() -> list[int]:
    """Return the bubblewraps that this process started."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        # A thread or a child may end while it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for pid in (task / "children").read_text().split():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if Path("/proc", pid, "comm").read_text().strip() == "bwrap":
                        found.append(int(pid))
    return found


def test_a_cell_that_dies_in_a_call_is_told_and_the_call_is_not_repeated(lab: Lab):
    source = """
        import time

        def tool(params, context):
            context.read_file("effect")
            time.sleep(60)

        tools = {"tool": tool, "echo": lambda params, context: params}
    """

    async def scene(executor: Executor) -> list[CellResult]:
        spec = make(lab.place, source)
        found: list[CellResult] = []

        async def ask() -> None:
            found.append(await lab.ask(executor, spec))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await until(lambda: lab.core.asked)
            for pid in bubblewraps():
                os.kill(pid, signal.SIGKILL)
        found.append(await lab.ask(executor, spec, "echo"))
        return found

    first, second = lab.run(scene)
    assert (first.kind, second.kind) == ("crashed", "ok")
    assert lab.core.asked == [("read_file", "effect")]


def test_a_call_that_is_cancelled_is_killed(lab: Lab):
    source = f"""
        import subprocess

        def tool(params, context):
            child = subprocess.Popen(["sleep", "{own(608)}"], start_new_session=True)
            context.log("began")
            child.wait()

        tools = {{"tool": tool}}
    """

    async def scene(executor: Executor) -> list[int]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lab.ask, executor, make(lab.place, source))
            await until(lambda: lab.core.logged)
            await until(lambda: running(own(608)))
            tasks.cancel_scope.cancel()
        return running(own(608))

    assert lab.run(scene) == []


def test_many_calls_at_once_all_end_well(lab: Lab):
    async def scene(executor: Executor) -> set[str]:
        kinds: set[str] = set()

        async def ask(number: int) -> None:
            spec = make(lab.place, ECHO, user=str(number % 5))
            kinds.add((await lab.ask(executor, spec, timeout=30.0)).kind)

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(ask, number)
        return kinds

    assert lab.run(scene, max_cells=3) == {"ok"}


def test_calls_that_wait_for_their_turn_are_bounded(lab: Lab):
    go = waiting_core(lab)
    source = "tools = {'tool': lambda params, context: context.read_file('go')}\n"

    async def scene(executor: Executor) -> tuple[list[str], str, str]:
        spec = make(lab.place, source)
        kinds: list[str] = []

        async def ask() -> None:
            kinds.append((await lab.ask(executor, spec)).kind)

        async with anyio.create_task_group() as tasks:
            for _ in range(CALLS_PER_CELL + 3):
                tasks.start_soon(ask)
            await until(lambda: executor.health()["calls"] == CALLS_PER_CELL + 3)
            with pytest.raises(RpcError, match="3 calls of `project:skill` wait already") as caught:
                await lab.ask(executor, spec)
            # Another user's calls are of another cell, whose queue is empty.
            other = make(lab.place, ECHO, name="other")
            free = (await lab.ask(executor, other)).kind
            go.set()
        kinds.append((await lab.ask(executor, spec)).kind)
        return kinds, caught.value.reason, free

    kinds, reason, free = lab.run(scene, max_waiting=3)
    assert (kinds, reason, free) == (["ok"] * (CALLS_PER_CELL + 4), "too_many_calls", "ok")


def test_no_more_cells_than_the_bound_are_there_at_one_time(lab: Lab):
    async def scene(executor: Executor) -> tuple[set[str], int]:
        kinds: set[str] = set()
        most = 0

        async def ask(number: int) -> None:
            nonlocal most
            spec = make(lab.place, ECHO, user=str(number))
            kinds.add((await lab.ask(executor, spec)).kind)
            most = max(most, int(executor.health()["cells"]), len(bubblewraps()))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(ask, number)
        return kinds, most

    kinds, most = lab.run(scene, max_cells=2)
    # One that is being closed may still be there beside the two.
    assert (kinds, most <= 3) == ({"ok"}, True)


def test_idle_cells_are_closed(lab: Lab):
    async def scene(executor: Executor) -> None:
        await lab.ask(executor, make(lab.place, ECHO))
        await until(lambda: not executor.health()["cells"])

    lab.run(scene, idle_seconds=0.1)


def test_ending_twice_at_once_leaves_nothing_either(lab: Lab):
    async def scene(executor: Executor) -> None:
        await lab.ask(executor, make(lab.place, ECHO))
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(executor.close)
        assert bubblewraps() == []

    lab.run(scene)


def test_ending_a_process_that_ends_by_itself_leaves_nothing(lab: Lab):
    async def scene(steps: int) -> None:
        spec = make(lab.place, ECHO)
        environment = cell_environment_for(lab.status, CELL_LIMITS)
        process = BubblewrapCell(environment, spec, tree=lab.place / "skill", forks=True)
        control = process.start(socket.SOCK_SEQPACKET)
        await until(bubblewraps)
        [number] = bubblewraps()
        control.close()
        await until(lambda: _has_ended(number))
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        await process.end()
        assert bubblewraps() == []

    for steps in range(8):
        anyio.run(scene, steps)


def _has_ended(number: int) -> bool:
    """Whether it is a zombie, or was waited for already."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{number}/stat").read_text(encoding="ascii")
        return stat.rpartition(")")[2].split()[0] == "Z"
    return True


def test_after_closing_nothing_is_left(lab: Lab):
    async def scene(executor: Executor) -> None:
        await lab.ask(executor, make(lab.place, ECHO))
        await executor.close()
        assert bubblewraps() == []
        with pytest.raises(RpcError, match="closed"):
            await lab.ask(executor, make(lab.place, ECHO))

    lab.run(scene)
    assert cells_below(lab.place) == []


def test_arguments_that_are_no_json_are_the_callers_error(lab: Lab):
    with pytest.raises(RpcError, match="not JSON"):
        lab.call(make(lab.place, ECHO), arguments={"x": {1}})


def test_without_a_sandbox_no_code_is_run(tmp_path: Path):
    status = SandboxStatus(level=SandboxLevel.NONE, reasons=("none",), hint="install it")
    with pytest.raises(SandboxUnavailableError, match="install it"):
        Executor(status, state=tmp_path)


@pytest.mark.req("S002-76", "S002-77", "S002-80", "S002-81")
@pytest.mark.parametrize(
    ("value", "wrapped"),
    [
        ({"a": 1}, {"success": True, "data": {"a": 1}}),
        ({"success": False, "error": "e"}, {"success": False, "error": "e"}),
        ({}, {"success": True, "data": {}}),
        ("text", {"success": True, "data": "text"}),
        ([1], {"success": True, "data": [1]}),
        (None, {"success": True, "data": None}),
    ],
)
def test_results_are_wrapped_as_the_design_says(value: Any, wrapped: Any):
    assert wrap_result(value) == wrapped


@pytest.mark.req("S002-75", "S002-78")
def test_failures_are_wrapped_as_the_design_says():
    failed = CellResult(kind="timeout", error="Skill execution timeout (30000ms)", seconds=30.0)
    expected = {"success": False, "error": "Skill execution timeout (30000ms)"}
    assert wrap_failure(failed) == expected


def test_the_digest_is_that_of_the_tree(tmp_path: Path):
    spec = make(tmp_path, ECHO)
    assert spec.digest == tree_digest(spec.directory)


def test_each_interpreter_has_cells_of_its_own(lab: Lab, tmp_path: Path, need: Any) -> None:
    other = copied_python(tmp_path / "uv/cpython", need)
    default = make(tmp_path / "place", VERSION)
    chosen = make(tmp_path / "place", VERSION, python=other)

    async def work(executor: Executor) -> list[Any]:
        found = [(await lab.ask(executor, spec)).value for spec in (default, chosen, default)]
        return [*found, executor.health()["cells"]]

    prefix = str(Path(other.inside).parent.parent)
    ours = [list(default_python().version), str(Path(default_python().inside).parent.parent)]
    assert lab.run(work) == [ours, [list(other.version), prefix], ours, 2]
