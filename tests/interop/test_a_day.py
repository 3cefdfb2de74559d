"""A day's work under the developer policy leads to the same questions wherever in a repository.

The MCP SDK's client always does it. The coding agents need to be installed by npm (README.md, "Real
coding agents"): their folder of commands is in SKILLHOUSE_TEST_AGENTS, whose first one is used. The
questions and a transcript are in docs/guides/approvals.md.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.frontends.mcp_peer import LEGACY, has_sandbox, text_of
from tests.harness import ran
from tests.interop.agents import scenes
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.day import PLACES, QUESTIONS_MAX, Person, Steps, expected, spend

AGENTS = os.environ.get("SKILLHOUSE_TEST_AGENTS", "").partition(os.pathsep)[0]
LEAST = 2
"""Clients with which the day has to be spent."""


@pytest.mark.heavy
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [client.name for client in CLIENTS])
@pytest.mark.skipif(not AGENTS, reason="SKILLHOUSE_TEST_AGENTS names no folder of clients")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: clients run offline")
def test_agents_do_a_days_work_with_the_same_few_questions(name: str, place: str) -> None:
    found = [client.name for client in CLIENTS if Path(AGENTS, client.words[0]).exists()]
    assert len(found) >= LEAST, f"expected two clients in {AGENTS}"
    if name not in found:
        pytest.skip(f"no {name} in {AGENTS}")
    words = ["--agents", AGENTS, "--only", name, "--places", place]
    done = ran([sys.executable, "-m", "tests.interop.agents.day", *words])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("\nquestion: ") == len(expected(name, PLACES[place])) <= QUESTIONS_MAX
    assert done.stdout.endswith("days: 1, faults: 0\n")


async def take(house: scenes.House, person: Person, steps: Steps) -> Sequence[str]:
    """Take the steps over the SDK's client."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "skillhouse", "mcp"],
        env=house.environment,
        cwd=house.project,
    )
    results: list[str] = []

    async def answer() -> None:
        while True:
            await anyio.to_thread.run_sync(person.look)
            await anyio.sleep(scenes.LOOK_SECONDS)

    with tempfile.TemporaryFile("w+") as errors:
        async with (
            Client(stdio_client(parameters, errlog=errors), mode=LEGACY) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(answer)
            for tool, given in steps:
                arguments = given(results) if callable(given) else given
                results.append(text_of(await client.call_tool(tool, dict(arguments))))
            tasks.cancel_scope.cancel()
    return results


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.usefixtures("git")
@pytest.mark.parametrize("place", ["plain", "agent-worktree", "worktree-below"])
def test_a_client_of_the_sdk_does_the_same_day(
    tmp_path: Path, place: str, need: Callable[[object, str], None]
) -> None:
    need(has_sandbox(), "bubblewrap that can make namespaces")
    day = spend("SDK", tmp_path / "day", PLACES[place], lambda *given: anyio.run(take, *given))
    assert day.faults == []
    assert day.questions == expected("", PLACES[place])
