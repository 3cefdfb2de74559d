"""Servers on loopback that answer as a test says, and remember what they were sent."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener, TLSStream

from skillhouse.net import NetLimits, NetPolicy, SecretBinding, host_rule

Answer = bytes | Callable[[SocketStream], Awaitable[None]]

LOOPBACK = ("127.0.0.1/32",)


@dataclass(slots=True)
class Server:
    """One server: where it is, what it says, what it heard."""

    host: str
    port: int
    answers: list[Answer]
    """In their order; the last is given again and again."""
    seen: list[bytes] = field(default_factory=list)
    """Each request, head and body."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                self.seen.append(await request_on(stream))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if isinstance(answer, bytes):
                    await stream.send(answer)
                else:
                    await answer(stream)


async def request_on(stream: ByteStream) -> bytes:
    """Read one request with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += await stream.receive()
    return head + b"\r\n\r\n" + body


@asynccontextmanager
async def serving(*answers: Answer, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    """Serve each connection with the next of `answers`."""
    listener = await anyio.create_tcp_listener(local_host=host)
    port = listener.extra(SocketAttribute.local_port)
    server = Server(host, port, list(answers) or [ok(b"hello")])
    async with _serving(listener, server.serve):
        yield server


@asynccontextmanager
async def secure(context: ssl.SSLContext, answer: bytes) -> AsyncIterator[Server]:
    """Serve over TLS."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Server("127.0.0.1", listener.extra(SocketAttribute.local_port), [answer])
    wrapped = TLSListener(listener, context, standard_compatible=False)

    async def serve(stream: TLSStream) -> None:
        async with stream:
            server.seen.append(await request_on(stream))
            await stream.send(answer)

    async with _serving(wrapped, serve):
        yield server


@asynccontextmanager
async def _serving(listener: Any, serve: Callable[[Any], Awaitable[None]]) -> AsyncIterator[None]:
    """Serve while the block runs; what it raises comes out as it is, and not in a group."""
    failure: BaseException | None = None
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again below.
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def ok(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    """Return an ordinary answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def redirect(location: str, status: int = 302) -> bytes:
    """Return an answer that leads on."""
    return ok(b"moved", f"Location: {location}", status=f"{status} moved")


def policy_for(
    *servers: Server,
    methods: str = "*",
    private: tuple[str, ...] = LOOPBACK,
    secrets: tuple[SecretBinding, ...] = (),
    limits: NetLimits | None = None,
) -> NetPolicy:
    """Return a policy that allows these servers, which are on loopback."""
    return NetPolicy(
        hosts=tuple(host_rule(f"{methods} {server.url}") for server in servers),
        private=private,
        secrets=secrets,
        limits=limits or NetLimits(),
    )


def fixed(*rounds: list[str]) -> Callable[[str, int], Awaitable[list[str]]]:
    """Return a resolver that gives these answers, one after the other, the last for ever."""
    left = list(rounds)

    async def resolve(host: str, port: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve
