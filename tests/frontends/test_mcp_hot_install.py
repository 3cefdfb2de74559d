"""Skills that are installed, updated and removed below a running server are seen by its client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.frontends.mcp_peer import (
    LEGACY,
    PATIENCE_SECONDS,
    Peer,
    connected,
    place_of,
    text_of,
)
from tests.harness import Need, ran
from tests.house.coded import best_sandbox, tool, write_code
from tests.registry.sources import make_skill

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

# No coding agent runs it, whoever runs the tests.
PERSON = """
import sys
import time
from pathlib import Path
from skillhouse.frontends.cli import main, person
person.PROC = Path("/no-processes")
sys.exit(main(sys.argv[1:]))
"""
SECONDS = f"600.{os.getpid()}"
AGREED = ("--yes", "--allow-unsigned")


def person(peer: Peer, *arguments: str) -> None:
    """Run a command as another process, at another terminal."""
    done = ran(
        [sys.executable, "-c", PERSON, *arguments],
        env=peer.environment,
        cwd=peer.project,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def aside(function: Callable[..., None], *arguments: Any) -> None:
    await anyio.to_thread.run_sync(lambda: function(*arguments))


def sleeper() -> int:
    """Wait for the `sleep` of the skill's tool, and return its process."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (place / "cmdline").read_bytes() == f"sleep\0{SECONDS}\0".encode():
                    return int(place.name)
    raise AssertionError("the tool does not run")


class Changes:
    """What the server announces without being asked."""

    def __init__(self) -> None:
        self._lists = anyio.Event()

    async def __call__(self, message: Any) -> None:
        if "list_changed" in getattr(getattr(message, "root", message), "method", ""):
            self._lists.set()

    async def next(self) -> None:
        await self._lists.wait()
        self._lists = anyio.Event()


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_an_install_an_update_and_a_removal_are_seen_without_a_restart(
    peer: Peer, tmp_path: Path, transport: str
) -> None:
    source = make_skill(tmp_path / "notes", "First.")

    async def main(place: tuple[str, str]) -> None:
        changes = Changes()
        async with connected(peer, place, LEGACY, message_handler=changes) as client:

            async def listed() -> bool:
                return "notes" in json.dumps((await client.list_tools()).model_dump(mode="json"))

            async def body() -> str:
                return text_of(await client.call_tool("skill", {"name": "notes"}))

            assert not await listed()
            await aside(person, peer, "install", str(source), *AGREED)
            while not await listed():
                await changes.next()
            assert "First." in await body()
            make_skill(source, "Second.")
            await aside(person, peer, "update", "notes", *AGREED)
            assert "Second." in await body()
            await aside(person, peer, "uninstall", "notes")
            while await listed():
                await changes.next()
            assert "Second." not in await body()

    with place_of(peer, transport) as place:
        anyio.run(main, place)


CODE = """
import subprocess


def slow(arguments, context):
    subprocess.run(["sleep", "SECONDS"], check=False)
    import helper

    return helper.WORD


tools = {"slow": slow}
"""
MANIFEST = """
[project]
name = "notes"
version = "0.1.0"
description = "Says a word"

[tool.skillhouse]
entry = "main.py"

[[tool.skillhouse.tools]]
name = "slow"
description = "Says a word after a while"
security = { level = "read" }
[tool.skillhouse.tools.parameters]
type = "object"
"""
ALLOWED = """
[skill_code]
enabled = true

[[rules]]
effect = "allow"
action = "skill_tool"
pattern = "notes:slow"
"""


def test_a_call_that_runs_ends_on_the_version_that_it_began_with(
    peer: Peer, tmp_path: Path, need: Need
) -> None:
    best_sandbox(need)
    source = make_skill(tmp_path / "notes")
    (source / "pyproject.toml").write_text(MANIFEST)
    (source / "main.py").write_text(CODE.replace("SECONDS", SECONDS))
    (source / "helper.py").write_text('WORD = "first"\n')
    peer.configure(ALLOWED)
    person(peer, "install", str(source), *AGREED)
    said: list[str] = []

    async def main() -> None:
        async with peer.client() as client:
            names = [one.name for one in (await client.list_tools()).tools]
            [tool] = [name for name in names if "slow" in name]

            async def call() -> None:
                said.append(text_of(await client.call_tool(tool, {})))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                process = await anyio.to_thread.run_sync(sleeper)
                (source / "helper.py").write_text('WORD = "second"\n')
                await aside(person, peer, "update", "notes", *AGREED)
                # Only now it goes on, and imports more of its files.
                os.kill(process, signal.SIGTERM)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                os.kill(await anyio.to_thread.run_sync(sleeper), signal.SIGTERM)

    anyio.run(main)
    assert ["first" in said[0], "second" in said[1]] == [True, True], said


@pytest.mark.req("S002-52", "S002-54")
def test_a_reload_in_another_process_is_what_a_client_of_mcp_sees(peer: Peer, need: Need) -> None:
    best_sandbox(need)
    peer.configure('profile = "owliabot-js"\n')
    root = peer.project / "workspace/skills"
    gives = "tools = {'tool': lambda params, context: {'gave': '%s'}}\n"
    write_code(root / "one", gives % "old")
    person(peer, "trust", "--yes")

    async def main() -> None:
        changes = Changes()
        async with peer.client(message_handler=changes) as client:

            async def listed() -> set[str]:
                found = (await client.list_tools()).tools
                return {tool.name for tool in found if "__" in tool.name}

            async def gave(name: str) -> str:
                return text_of(await client.call_tool(name, {}))

            assert await listed() == {"one__tool"}
            assert '"old"' in await gave("one__tool")
            write_code(root / "one", gives % "new")
            write_code(root / "two", gives % "two")
            write_code(root / "lacks", gives % "x", tool("absent"))
            await aside(person, peer, "trust", "--yes")
            done = await anyio.to_thread.run_sync(
                lambda: ran(
                    [sys.executable, "-m", "skillhouse", "reload"],
                    env=peer.environment,
                    cwd=peer.project,
                    timeout=PATIENCE_SECONDS,
                )
            )
            assert (done.returncode, "lacks:absent: failed" in done.stdout) == (1, True), done
            while await listed() != {"one__tool", "two__tool"}:
                await changes.next()
            assert '"new"' in await gave("one__tool")
            assert '"two"' in await gave("two__tool")

    anyio.run(main)
