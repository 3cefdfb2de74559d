"""openapi-python-client makes a client from the document without a warning, and the console of the
guide, which is written with that client, prints what the guide shows."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import pytest
from mcp_types import Implementation
from tests.extensions.server.api.test_events import started
from tests.frontends.mcp_peer import LEGACY, http_client
from tests.guides.pages import Block, Names, blocks, steps
from tests.harness import ran
from tests.own_environments import own_python

ROOT = Path(__file__).resolve().parents[4]
GUIDE = "docs/guides/build-your-own-console.md"
MAKES = "SKILLHOUSE_OPENAPI_CLIENT"
SECONDS = 300
pytestmark = [pytest.mark.slow, pytest.mark.heavy]


@pytest.fixture(scope="module")
def generator() -> Path:
    python = own_python("openapi-client", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for openapi_client: {MAKES}=1 makes one, with a network")
    return python.parent


class Reader:
    """Follows the guide in a folder, beside a service that was started."""

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self.place = place
        self.environment = dict(environment)
        self.names = Names()

    def run(self, command: str) -> str:
        # What a line exports is there for the next one.
        kept = self.place / "variables"
        script = f"set -e\n{command}\nexport -p >{shlex.quote(str(kept))}"
        before = f". {shlex.quote(str(kept))}\n" if kept.exists() else ""
        done = ran(
            ("bash", "-c", before + script), timeout=SECONDS, cwd=self.place, env=self.environment
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def take(self, block: Block) -> list[str]:
        """Do what a block says, and return what its commands printed."""
        if block.language == "python":
            (self.place / "console.py").write_text(block.text)
            return []
        if block.language == "bash":
            return [self.run(block.text)]
        printed = []
        for command, shown in steps(block.text):
            found = self.run(self.names.put(command))
            printed.append(found.replace(str(self.place), "/home/me/work"))
            assert self.names.match(shown, printed[-1]), f"$ {command}\n{printed[-1]}\n{shown}"
        return printed


def ask(address: str, token: str) -> None:
    """Ask for what waits for a person, as Codex does."""

    async def call() -> None:
        info = Implementation(name="codex", version="1.2")
        async with http_client(address, token, LEGACY, client_info=info) as client:
            await client.call_tool("skill", {"name": "weather"})
            await client.call_tool("write", {"path": "a.txt", "content": "b"})

    anyio.run(call)


def programs(place: Path, generator: Path) -> str:
    """Return a PATH with skillhouse and the generator, whose Python has what its clients need."""
    place.mkdir()
    ours = place / "skillhouse"
    ours.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m skillhouse "$@"\n')
    ours.chmod(0o755)
    return os.pathsep.join((str(place), str(generator), os.environ["PATH"]))


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip("\n")


def test_a_generated_client_runs_the_console_of_the_guide(generator: Path, tmp_path: Path) -> None:
    begin, tried, made, program, shown = (one for one in blocks(GUIDE) if one.mark == "run by")
    up, *keys = begin.text.splitlines(keepends=True)
    assert up.startswith("skillhouse up ")
    with started(tmp_path) as (address, token, environment):
        path = programs(tmp_path / "bin", generator)
        reader = Reader(tmp_path / "project", {**environment, "PATH": path})
        reader.run("".join(keys).replace("http://127.0.0.1:8600", address))
        ask(address, token)
        reader.take(tried)
        (said,) = reader.take(made)
        assert "warning" not in said.lower(), said
        assert "unable" not in said.lower(), said
        reader.take(program)
        command = [*("bash", "-c"), ". ./variables; exec python console.py follow"]
        with subprocess.Popen(
            command, cwd=reader.place, env=reader.environment, stdout=subprocess.PIPE, text=True
        ) as follower:
            watchdog = threading.Timer(SECONDS, follower.kill)
            watchdog.start()
            try:
                lines = lines_of(follower)
                assert next(lines) == "read everything again"
                reader.take(shown)
                assert "answer write approved" in lines
            finally:
                watchdog.cancel()
                follower.kill()


def test_what_the_guide_says_of_lines_is_true() -> None:
    text = (ROOT / GUIDE).read_text()
    (program,) = [one.text for one in blocks(GUIDE) if one.language == "python"]
    assert f"a program of {len(program.splitlines()) // 10 * 10} lines" in text
    assert len(text.splitlines()) <= 150
