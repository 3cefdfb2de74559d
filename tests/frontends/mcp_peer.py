"""The other side of `skillhouse mcp`: the SDK's client, and a plain pipe, over a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

from skillhouse.runtime import Places
from skillhouse.sandbox import Level, self_test
from tests.runtime.places import make_places

LEGACY, MODERN = "legacy", "2026-07-28"
PATIENCE_SECONDS = 30
"""After which a test that waits for another process fails."""


def has_sandbox() -> bool:
    """Whether commands can be run here at all."""
    return anyio.run(self_test).level is not Level.NONE


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of a process whose home is `home`, and that finds this package."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


class Peer:
    """A place with a home and a project, and the servers started there."""

    def __init__(self, base: Path) -> None:
        self.places: Places = make_places(base)
        self.home, self.project = base / "home", base / "project"
        self.environment = environment_of(self.home)
        self.log = self.home / ".local/state/skillhouse/audit.jsonl"

    def configure(self, text: str) -> None:
        """Write the user's configuration."""
        directory = self.home / ".config/skillhouse"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.toml").write_text(text, encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a server in the project."""
        return [sys.executable, "-m", "skillhouse", "mcp", "-C", str(self.project), *arguments]

    @asynccontextmanager
    async def client(self, mode: str = LEGACY, **options: Any) -> AsyncIterator[Client]:
        """Start a server and connect the SDK's client to it."""
        program, *arguments = self.command()
        parameters = StdioServerParameters(
            command=program, args=arguments, env=self.environment, cwd=self.project
        )
        # The SDK hands stderr on, and pytest's replacement is no file.
        with tempfile.TemporaryFile("w+") as errors, anyio.fail_after(PATIENCE_SECONDS):
            transport = stdio_client(parameters, errlog=errors)
            async with Client(transport, mode=mode, **options) as client:
                yield client
            errors.seek(0)
            assert errors.read() == ""


class Pipe:
    """A server to which a test writes lines by itself."""

    def __init__(self, peer: Peer, *arguments: str) -> None:
        self.process = subprocess.Popen(
            peer.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=peer.environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def write(self, line: bytes) -> None:
        """Send a line as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, request_id: int | None = None, **params: Any) -> None:
        """Send a request, or a notification when there is no id."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        self.write(json.dumps(message).encode())

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def shake_hands(self, version: str = "2025-06-18") -> dict[str, Any]:
        """Initialize, and return what the server said."""
        self.send("initialize", 0, **handshake(version))
        answer = self.receive()
        self.send("notifications/initialized")
        return answer


def handshake(version: str) -> Mapping[str, Any]:
    """Return the parameters of `initialize`."""
    return {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }


def text_of(result: CallToolResult) -> str:
    """Return the one text of a result, which has nothing else."""
    assert result.structured_content is None
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text
