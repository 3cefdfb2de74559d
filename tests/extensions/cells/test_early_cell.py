"""A cell's process that starts before its call is allowed: it has no skill, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.cells.lab import Lab, lab, make, until
from tests.sandbox.places import copied_python, running

from skillhouse.extensions.cells import CellResult, Executor
from skillhouse.floor import structs
from skillhouse.floor.crash_cleanup import owner_name
from skillhouse.sandbox import SandboxError, SandboxLevel

pytestmark = pytest.mark.slow

__all__ = ["lab"]

PLACE = """
    import os

    def tool(params, context):
        return [sorted(os.listdir("/skill")), os.getppid()]

    tools = {"tool": tool}
"""
ECHO = "tools = {'tool': lambda params, context: params}\n"


def sandboxes() -> list[int]:
    """Return our processes of bubblewrap."""
    return running(f"skillhouse-sandbox-{owner_name()}")


async def steady(look: Callable[[], list[int]]) -> list[int]:
    """Return what stays the same for half a second."""
    seen, since = look(), anyio.current_time()
    while anyio.current_time() - since < 0.5:
        await anyio.sleep(0.05)
        if (now := look()) != seen:
            seen, since = now, anyio.current_time()
    return seen


def copies(lab: Lab) -> list[Path]:
    return sorted((lab.place / "state" / "cells").iterdir())


def files(lab: Lab) -> list[str]:
    return [path.name for copy in copies(lab) for path in (copy / "skill").iterdir()]


@pytest.fixture
def early(lab: Lab) -> Lab:
    if lab.status.level in (SandboxLevel.CONTAINER, SandboxLevel.LANDLOCK):
        pytest.skip("a cell without namespaces is not started early")
    return lab


def test_nothing_of_a_skill_is_in_what_starts_early_until_its_call(early: Lab) -> None:
    spec = make(early.place, PLACE)

    async def scene(executor: Executor) -> CellResult:
        await executor.start_early()
        await until(sandboxes)
        assert [len(copies(early)), files(early)] == [1, []]
        # Bubblewrap's processes of a moment are gone once the cell has answered.
        before = await steady(sandboxes)
        result = await early.ask(executor, spec)
        # The call runs in that very process's cell, from the copy that is made now.
        assert set(before) <= set(sandboxes())
        assert [len(copies(early)), files(early)] == [1, ["main.py"]]
        return result

    assert early.run(scene).value == [["main.py"], 0]
    assert (sandboxes(), copies(early)) == ([], [])


def test_calls_one_after_another_and_at_once_share_an_early_cell(early: Lab) -> None:
    spec = make(early.place, ECHO)

    async def scene(executor: Executor) -> list[object]:
        await executor.start_early()
        await executor.start_early()
        found: list[object] = []

        async def ask(number: int) -> None:
            found.append((await early.ask(executor, spec, arguments={"n": number})).value)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(ask, number)
        await ask(4)
        return [sorted(map(str, found)), executor.health()["cells"], len(copies(early))]

    assert early.run(scene) == [[str({"n": number}) for number in range(5)], 1, 1]


def test_a_skill_that_has_changed_ends_what_was_started_early(early: Lab) -> None:
    spec = make(early.place, ECHO)
    (spec.directory / "main.py").write_text("tools = {}\n")

    async def scene(executor: Executor) -> None:
        await executor.start_early()
        with pytest.raises(SandboxError, match="is not as it was"):
            await early.ask(executor, spec)
        await until(lambda: not sandboxes() and not copies(early))

    early.run(scene)


@pytest.mark.parametrize("other", ["packages", "python"])
def test_a_skill_that_it_does_not_fit_gets_a_cell_of_its_own(
    early: Lab, other: str, need: Any
) -> None:
    packages = early.place / "packages"
    packages.mkdir()
    spec = make(early.place, PLACE)
    if other == "packages":
        spec = structs.replace(spec, dependencies=packages)
    else:
        python = copied_python(early.place / "uv/cpython", need)
        spec = structs.replace(spec, python=python)

    async def scene(executor: Executor) -> CellResult:
        await executor.start_early()
        result = await early.ask(executor, spec)
        assert len(copies(early)) == 2
        return result

    assert early.run(scene).value == [["main.py"], 0]
    assert (sandboxes(), copies(early)) == ([], [])


def test_a_call_runs_where_what_was_started_early_has_died(early: Lab) -> None:
    spec = make(early.place, PLACE)

    async def scene(executor: Executor) -> CellResult:
        await executor.start_early()
        await until(sandboxes)
        for pid in sandboxes():
            # One dies with the other.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await until(lambda: not sandboxes())
        return await early.ask(executor, spec)

    assert early.run(scene).value == [["main.py"], 0]
    assert (sandboxes(), copies(early)) == ([], [])


def test_what_no_call_took_is_gone_after_a_stop_and_after_the_executor(early: Lab) -> None:
    async def scene(executor: Executor) -> None:
        await executor.start_early()
        await until(sandboxes)
        await executor.end()
        assert (sandboxes(), copies(early)) == ([], [])
        await executor.start_early()

    early.run(scene)
    assert (sandboxes(), copies(early)) == ([], [])


def test_cells_without_namespaces_are_not_started_early(lab: Lab) -> None:
    async def scene(executor: Executor) -> int:
        await executor.start_early()
        return len(copies(lab))

    is_contained = lab.status.level in (SandboxLevel.CONTAINER, SandboxLevel.LANDLOCK)
    assert lab.run(scene) == (0 if is_contained else 1)
