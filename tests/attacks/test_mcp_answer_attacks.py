"""Attacks of an MCP server on its host's memory: answers that are too large, or never end."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.client import Client, advertise
from mcp_types import Request
from pydantic import TypeAdapter

from skillhouse.remote import McpCache, McpHost, McpServer, RemoteError, connected, mcp_source
from tests.remote.mcp_liar import EXTENSION, Liar, serving_app

pytestmark = pytest.mark.slow

CHUNK = b" " * 65_536
BOUND = 8 * len(CHUNK)
"""For these tests; a server sends a few chunks more before it learns that nobody listens."""
LARGE = 64 * len(CHUNK)
ON_THE_WAY = 128 * len(CHUNK)
"""What the buffers of two sockets may hold."""

WHY = {
    "json": f"larger than {BOUND} bytes",
    # The SDK keeps the reason to itself.
    "events": "ended without a response",
    "packed": "got one in 'gzip'",
}


class Flood:
    """A server that begins well, and answers `skills/list` with as much as it likes."""

    def __init__(self, kind: str, size: int | None) -> None:
        """Take the kind of body, and its bytes; None for one without end."""
        self._app = Liar().sdk.streamable_http_app()
        self._kind = kind
        self._size = size
        self.sent = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = (await receive()).get("body", b"")
        asked = json.loads(body) if body else {}
        if asked.get("method") == "skills/list":
            await self._flood(asked["id"], receive, send)
            return
        again = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replayed() -> Any:
            return next(again, None) or await receive()

        await self._app(scope, replayed, send)

    async def _flood(self, number: object, receive: Any, send: Any) -> None:
        kind = b"text/event-stream" if self._kind == "events" else b"application/json"
        headers = [(b"content-type", kind)]
        if self._kind == "packed":
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = anyio.Event()

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            for part in self._parts(number):
                if gone.is_set():
                    break
                self.sent += len(part)
                await send({"type": "http.response.body", "body": part, "more_body": True})
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})

    def _parts(self, number: object) -> Iterator[bytes]:
        answer = {"jsonrpc": "2.0", "id": number, "result": {"skills": []}}
        end = json.dumps(answer).encode()
        if self._kind == "packed":
            yield gzip.compress(b" " * (self._size or 0) + end)
            return
        note = {"jsonrpc": "2.0", "method": "notifications/message"}
        params = {"level": "info", "data": CHUNK.decode()}
        event = b"data: " + json.dumps({**note, "params": params}).encode() + b"\n\n"
        part = event if self._kind == "events" else CHUNK
        while self._size is None or self.sent < self._size:
            yield part
        yield b"data: " + end + b"\n\n" if self._kind == "events" else end


def flooding(flood: Flood) -> AbstractContextManager[McpServer]:
    # Uvicorn calls it an error that a client leaves.
    return serving_app(flood, log_level="critical")


async def naive_list(server: McpServer) -> dict[str, Any]:
    """Return what a client gets that takes what comes."""
    async with Client(server.url, extensions=[advertise(EXTENSION)]) as client:
        request = Request[dict[str, Any], str](method="skills/list", params={})
        answer: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
        found: dict[str, Any] = await client.session.send_request(request, answer)
        return found


def refused(server: McpServer, cache: Path) -> str:
    """Return why our host does not take the answer."""
    host = McpHost([server], McpCache(cache), dial=connected)
    with pytest.raises(RemoteError) as caught:
        anyio.run(host.refresh, "docs")
    return str(caught.value)


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_source, "ANSWER_MAX", BOUND)


@pytest.mark.parametrize("kind", ["json", "events", "packed"])
def test_an_answer_that_is_too_large_is_not_read(tmp_path: Path, kind: str) -> None:
    with flooding(Flood(kind, LARGE)) as server:
        assert anyio.run(naive_list, server)["skills"] == []
    with flooding(Flood(kind, LARGE)) as server:
        why = refused(server, tmp_path)
    assert WHY[kind] in why
    assert not list(tmp_path.rglob("listing"))


@pytest.mark.parametrize("kind", ["json", "events"])
def test_an_answer_without_end_is_left(tmp_path: Path, kind: str) -> None:
    flood = Flood(kind, None)
    with flooding(flood) as server:
        assert WHY[kind] in refused(server, tmp_path)
    assert flood.sent < ON_THE_WAY


def test_an_answer_within_the_bound_is_read(tmp_path: Path) -> None:
    with flooding(Flood("json", BOUND - len(CHUNK))) as server:
        host = McpHost([server], McpCache(tmp_path))
        assert anyio.run(host.refresh, "docs").problems == ()
