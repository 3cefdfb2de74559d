"""Several `skillhouse up` on one state, and a round-robin in front of them that obeys `/readyz`.

`python -m tests.replicas DIRECTORY` starts two of them to look at: it prints the addresses and a
token, and ends with Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from skillhouse.house import AccessScope
from skillhouse.house.access_tokens import AccessTokens
from tests.house.places import make_places

ADDRESS = re.compile(r"(http://127\.0\.0\.1:(\d+))/\?token=([\w-]{43})\n")
HEALTH_SECONDS = 0.1
HEAD_MAX = 65_536
READY = b"GET /readyz HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\n\r\n"


class Replica:
    """One `skillhouse up` as a process."""

    def __init__(
        self, base: Path, *options: str, prefix: Sequence[str] = (), **environment: str
    ) -> None:
        """Start it; `prefix` is a command that runs the one that follows."""
        places = make_places(base)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
        self.environment = {**kept, "HOME": str(places.home), **environment}
        self.start = places.start
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "skillhouse", "up", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=places.start,
            env=self.environment,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = ADDRESS.fullmatch(line)
        if found is None:
            raise RuntimeError(f"{line}{self.process.communicate()[1]}")
        self.address, self.port, self.token = found[1], int(found[2]), found[3]

    def end(self, seconds: float = 30) -> tuple[int, str]:
        """Send SIGTERM, wait for the end, and return the exit code and what it said."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=seconds)
        return self.process.returncode, said

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def replicas(
    base: Path, count: int = 2, *options: str, **environment: str
) -> Iterator[list[Replica]]:
    """Run servers of one home while the block lasts."""
    running: list[Replica] = []
    try:
        for _ in range(count):
            running.append(Replica(base, *options, **environment))  # noqa: PERF401 - each is ended.
        yield running
    finally:
        for one in running:
            one.kill()


class HttpReply(NamedTuple):
    status: int
    value: Any
    headers: dict[str, str]


def http(
    address: str,
    path: str,
    token: str = "",
    body: object = None,
    *,
    method: str = "",
    seconds: float = 30,
    **headers: str,
) -> HttpReply:
    """Make one request; an answer that is JSON comes as its value, another as text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data=data, method=method or None)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    if data is not None:
        request.add_header("Content-Type", "application/json")
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            status, text, given = answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            status, text, given = error.code, error.read(), dict(error.headers)
    given = {name.lower(): value for name, value in given.items()}
    kind = given.get("content-type", "")
    return HttpReply(status, json.loads(text) if "json" in kind else text.decode(), given)


def named_token(home: Path, name: str, *scopes: AccessScope, agent: str = "default") -> str:
    """Return a new token that each server of a state knows."""
    tokens = AccessTokens(home / ".local/state/skillhouse")
    return tokens.new(name, scopes, agent=agent)[1]


class RoundRobin:
    """A balancer on loopback: each request to the next server that is ready, without affinity.

    As HAProxy with `http-server-close`: one connection a request, which is sent to one server and
    never again; only a connection that was refused goes to another one (`option redispatch`).
    """

    def __init__(self, addresses: Sequence[str], *, sticks: bool = False) -> None:
        self.backends = [int(address.rpartition(":")[2]) for address in addresses]
        self.ready: set[int] = set()
        self.sticks = sticks
        """Whether a request goes where its `Mcp-Session-Id` came from."""
        self.extra = b""
        """Headers added to each request, as `X-Forwarded-For: 1.2.3.4\\r\\n`."""
        self.sent: list[int] = []
        self._sessions: dict[bytes, int] = {}
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def __enter__(self) -> RoundRobin:
        self._thread.start()
        self._started.wait()
        deadline = time.monotonic() + 20
        while len(self.ready) < len(self.backends) and time.monotonic() < deadline:
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def replace(self, old: str, new: str) -> None:
        """Take another server in the place of one."""
        at = self.backends.index(int(old.rpartition(":")[2]))
        self.backends[at] = int(new.rpartition(":")[2])

    def add(self, address: str) -> None:
        self.backends.append(int(address.rpartition(":")[2]))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def begin() -> asyncio.Server:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            return server

        server = self._loop.run_until_complete(begin())
        self._loop.create_task(self._look())
        self._started.set()
        self._loop.run_forever()
        server.close()
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _look(self) -> None:
        while True:
            for port in tuple(self.backends):
                (self.ready.add if await self._is_ready(port) else self.ready.discard)(port)
            self.ready &= set(self.backends)
            await asyncio.sleep(HEALTH_SECONDS)

    async def _is_ready(self, port: int) -> bool:
        try:
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(READY)
                    line = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in line

    def _choice(self, head: bytes) -> list[int]:
        """Return the servers to try, the next one first."""
        ready = [port for port in self.backends if port in self.ready] or list(self.backends)
        self._next += 1
        at = self._next % len(ready)
        ready = ready[at:] + ready[:at]
        session = _header(head, b"mcp-session-id")
        if self.sticks and session in self._sessions:
            ready.insert(0, self._sessions[session])
        return ready

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)  # Nothing else holds one that waits for its client.
        try:
            await self._passed_on(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            line, _, rest = head.partition(b"\r\n")
            kept = [
                one for one in rest.split(b"\r\n") if not one.lower().startswith(b"connection:")
            ]
            for port in self._choice(head):
                try:
                    back, out = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    self.ready.discard(port)
                    continue
                self.sent.append(port)
                out.write(line + b"\r\nConnection: close\r\n" + self.extra + b"\r\n".join(kept))
                forward = asyncio.ensure_future(_copied(reader, out))
                try:
                    await self._answered(port, back, writer)
                finally:
                    forward.cancel()
                    out.close()
                break
            else:
                writer.write(b"HTTP/1.1 503 no server\r\nContent-Length: 0\r\n\r\n")
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()

    async def _answered(
        self, port: int, back: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await back.readuntil(b"\r\n\r\n")
        if session := _header(head, b"mcp-session-id"):
            self._sessions[session] = port
        writer.write(head)
        await writer.drain()
        await _copied(back, writer)


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(HEAD_MAX):
        writer.write(data)
        await writer.drain()


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


def _main(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    with RoundRobin([]) as balancer:
        hosts = ("--allow-host", f"127.0.0.1:{balancer.port}")
        with replicas(base, 2, *hosts) as (first, second):
            for one in (first, second):
                balancer.add(one.address)
                print(f"server    {one.address}/?token={one.token}")
            token = named_token(base / "home", f"caller-{os.getpid()}", AccessScope.CALL)
            print(f"balancer  {balancer.address}\ntoken     {token}", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
