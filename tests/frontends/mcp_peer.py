"""The other side of `skillhouse mcp`: the SDK's client, and a plain pipe, over a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from skillhouse.extensions.cells import self_test
from skillhouse.house import Locations
from skillhouse.sandbox import SandboxLevel
from tests.balanced import balanced, free_port, is_replicated
from tests.harness import ran
from tests.house.places import environment_under, make_places

LEGACY, MODERN = "legacy", "2026-07-28"
NO_AUTH = (
    "/mcp needs no token: every program of this machine can call tools here. Questions are "
    "answered on the page or the command line only\n"
)
PATIENCE_SECONDS = 30
"""After which a test that waits for another process fails."""


def has_sandbox() -> bool:
    """Whether commands can be run here at all."""
    return anyio.run(self_test).level is not SandboxLevel.NONE


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of a process whose home is `home`, and that finds this package."""
    return {
        **environment_under(),
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


class Peer:
    """A place with a home and a project, and the servers started there."""

    def __init__(self, base: Path) -> None:
        self.places: Locations = make_places(base)
        self.home, self.project = base / "home", base / "project"
        self.environment = environment_of(self.home)
        self.log = self.home / ".local/state/skillhouse/audit.jsonl"

    def configure(self, text: str) -> None:
        """Write the user's configuration."""
        directory = self.home / ".config/skillhouse"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.toml").write_text(text, encoding="utf-8")

    def skillhouse(self, *arguments: str) -> str:
        """Run a command in the project, at another terminal, and return its output."""
        done = ran(
            [sys.executable, "-m", "skillhouse", *arguments],
            env=self.environment,
            cwd=self.project,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout

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


@contextmanager
def up(peer: Peer, *options: str) -> Iterator[tuple[str, str]]:
    """Start `skillhouse up` and give its address and token."""
    with running_up(peer, *options) as (process, address, token):
        yield address, token
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        said = errors.replace(NO_AUTH, "") if "--no-auth" in options else errors
        # What a service notes without worry is a line of JSON each.
        worse = [line for line in said.splitlines() if json.loads(line)["level"] != "info"]
        assert (process.returncode, worse) == (0, []), said


@contextmanager
def running_up(peer: Peer, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start `skillhouse up` and give its process, address and token; it is killed at the end.

    With `--replicas` the address is of HAProxy, which has another server of the same state too.
    """
    command = [sys.executable, "-m", "skillhouse", "up", "--port", "0", "-C", str(peer.project)]
    if not is_replicated():
        with announced(peer, [*command, *options]) as found:
            yield found
        return
    front = free_port()
    command += ["--allow-host", f"127.0.0.1:{front}", *options]
    with (
        announced(peer, command) as (process, first, token),
        announced(peer, command) as (beside, second, _),
        balanced(peer.home, front, (first, second)) as address,
    ):
        yield process, address, token
        beside.terminate()
        _, errors = beside.communicate(timeout=PATIENCE_SECONDS)
        assert beside.returncode == 0, errors


@contextmanager
def announced(peer: Peer, command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start what prints its address with a token; give both with its process, killed at the end."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=peer.environment,
        cwd=peer.project,
    )
    try:
        assert process.stdout is not None
        address, _, token = process.stdout.readline().strip().partition("/?token=")
        yield process, address[address.index("http") :], token
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)


@asynccontextmanager
async def http_client(address: str, token: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    """Connect the SDK's client to the server of an address; without a token it sends none."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with anyio.fail_after(PATIENCE_SECONDS):
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as http:
            transport = streamable_http_client(f"{address}/mcp", http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                yield client


@contextmanager
def place_of(peer: Peer, transport: str) -> Iterator[tuple[str, str]]:
    """Give address and token of a server over HTTP; nothing for stdio."""
    if transport == "stdio":
        yield "", ""
        return
    with up(peer) as found:
        yield found


@asynccontextmanager
async def connected(
    peer: Peer, place: tuple[str, str], mode: str, **options: Any
) -> AsyncIterator[Client]:
    """Connect a client to the server at a place of `place_of`, or to one that it starts."""
    found = http_client(*place, mode, **options) if place[0] else peer.client(mode, **options)
    async with found as client:
        yield client


def running(marked: str) -> bool:
    """Whether a `sleep` has that word in its command line."""
    # A look for `cmdline` by a pattern fails where a process ends meanwhile.
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:1] == [b"sleep"] and marked.encode() in words:
            return True
    return False


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
