"""Attacks of those who open connections and then say little or nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from skillhouse.extensions.cells import Capabilities, RpcClient, RpcError, RpcServer, core_methods
from skillhouse.extensions.server.tcp_server import header_timeout_protocol, make_server
from tests.extensions.cells.lab import Core
from tests.extensions.cells.test_rpc_http import TOKEN, ping, raw, request

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
"""The beginning of one: the end never comes."""
PATIENCE_SECONDS = 0.3


async def test_strangers_do_not_keep_out_who_has_the_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("skillhouse.extensions.cells.rpc_http.CONNECTIONS", 3)
    working, go_on = anyio.Event(), anyio.Event()

    async def long(_: Any) -> str:
        working.set()
        await go_on.wait()
        return "done"

    found: list[int] = []
    server = RpcServer({"health": ping, "long": long}, token=TOKEN)
    async with (
        server.listening("127.0.0.1", 0) as port,
        contextlib.AsyncExitStack() as stack,
        anyio.create_task_group() as tasks,
    ):

        async def ask() -> None:
            body = b'{"jsonrpc": "2.0", "method": "long", "id": 1}'
            found.append((await raw(port, request(body)))[0])

        tasks.start_soon(ask)
        await working.wait()
        for _ in range(6):
            stranger = await anyio.connect_tcp("127.0.0.1", port)
            await stack.enter_async_context(stranger)
            await stranger.send(b"POST /rpc HTTP/1.1\r\nHost: a")
        await anyio.sleep(0.05)
        status = (await raw(port, request()))[0]
        # A call under way is no stranger's.
        go_on.set()
    assert (status, found[0]) == (200, 200)


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """Answer as the guard does: without the key, and without a look at the body."""
    await send(
        {"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def served(protocol: type[H11Protocol]) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(answers, http=protocol, log_level="critical", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def is_ended(stream: socket.socket) -> bool:
    """Whether the server has ended a connection within some time of its patience."""
    stream.settimeout(3 * PATIENCE_SECONDS)
    try:
        while stream.recv(4_096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def trickled(stream: socket.socket) -> None:
    """Send the body of a request, that was refused, in drops, so that no pause is long."""
    with contextlib.suppress(OSError):
        stream.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(12):
            time.sleep(PATIENCE_SECONDS / 6)
            stream.sendall(b"x")


@pytest.mark.parametrize("kind", ["silent", "head", "body"])
def test_who_never_ends_a_request_is_not_waited_for(kind: str):
    for protocol, ends in (
        (H11Protocol, False),
        (header_timeout_protocol(seconds=PATIENCE_SECONDS), True),
    ):
        with served(protocol) as port, socket.create_connection(("127.0.0.1", port)) as stream:
            if kind == "head":
                stream.sendall(HEAD)
            if kind == "body":
                trickled(stream)
            assert is_ended(stream) is ends, protocol


SMUGGLED = (
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
)
"""One request for a proxy that goes by the length, and two for a server that goes by chunks."""


def test_a_request_of_two_lengths_is_refused_and_nothing_behind_it_is_answered():
    def said(server: uvicorn.Server) -> list[bytes]:
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            with socket.create_connection(listener.getsockname()) as stream:
                stream.settimeout(1)
                stream.sendall(SMUGGLED)
                text = b""
                with contextlib.suppress(TimeoutError):
                    while data := stream.recv(4_096):
                        text += data
            return [line for line in text.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
        finally:
            server.should_exit = True
            thread.join()
            listener.close()

    naive = uvicorn.Config(answers, log_level="critical", ws="none", lifespan="off", http="h11")
    assert said(uvicorn.Server(naive)) == [b"HTTP/1.1 401 Unauthorized"] * 2
    assert said(make_server(answers, lifespan="off")) == [b"HTTP/1.1 400 Bad Request"]


def test_many_that_wait_do_not_hold_all_descriptors():
    with (
        served(header_timeout_protocol(seconds=60, most=4)) as port,
        contextlib.ExitStack() as stack,
    ):
        held = []
        for _ in range(8):
            held.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            time.sleep(0.02)
        assert [is_ended(stream) for stream in held[:4]] == [True] * 4
        newest = held[-1]
        newest.settimeout(5)
        newest.sendall(HEAD + b"\r\n")
        assert newest.recv(100).startswith(b"HTTP/1.1 401")


class Slow(Core):
    """A core whose person takes their time."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = anyio.Event(), anyio.Event()

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.begun.set()
        await self.go_on.wait()
        return await super().fetch(request)


async def test_what_an_executor_asked_for_ends_with_its_call():
    """A hostile one lets a call end, and keeps the connection on which it asked."""
    found: list[str] = []
    core, capabilities = Slow(), Capabilities()
    server = RpcServer(core_methods(capabilities), token=TOKEN)
    async with server.listening("127.0.0.1", 0) as port, anyio.create_task_group() as tasks:
        client = RpcClient(f"http://127.0.0.1:{port}/rpc", TOKEN)

        async def ask(token: str) -> None:
            params = {"url": "https://a.test", "method": "POST", "capability": token}
            with pytest.raises(RpcError) as caught:
                await client.ask("core.fetch", params)
            found.append(caught.value.reason)

        with capabilities.of(core) as token:
            tasks.start_soon(ask, token)
            await core.begun.wait()
        await anyio.sleep(0.05)
        # Now the person says yes.
        core.go_on.set()
    assert core.asked == []
    assert found == ["stale_capability"]
