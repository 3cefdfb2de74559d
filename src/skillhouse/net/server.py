"""The proxy's own side of HTTP: one request of a confined command, and the answer to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import h11
from anyio.abc import ByteStream

from skillhouse.net.errors import NetError
from skillhouse.net.exchange import Headers, end_to_end, received
from skillhouse.net.policy import NetLimits

_NOT_ON = frozenset({"host", "content-length", "expect"})
"""Headers of a request that are said anew on the way out."""


class Incoming:
    """One request; each method is called once, in their order."""

    def __init__(self, stream: ByteStream, limits: NetLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)

    async def request(self) -> h11.Request:
        """Return the head of the request.

        Raises:
            NetError: "protocol-error" or "timeout".
        """
        try:
            with anyio.fail_after(self._limits.head_seconds):
                event = await self._next()
        except TimeoutError as error:
            raise NetError("timeout", "no request began") from error
        if not isinstance(event, h11.Request):
            raise NetError("protocol-error", "expected a request")
        return event

    async def body(self) -> bytes:
        """Return the request's whole body: it is searched for secrets before it goes out.

        Raises:
            NetError: "request-refused", it is too large; "protocol-error"; "timeout".
        """
        if self._h11.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        found = bytearray()
        try:
            with anyio.fail_after(self._limits.seconds):
                while isinstance(event := await self._next(), h11.Data):
                    found += event.data
                    if len(found) > self._limits.request_bytes:
                        most = self._limits.request_bytes
                        raise NetError("request-refused", f"a body of more than {most} bytes")
        except TimeoutError as error:
            raise NetError("timeout", "the request has no end") from error
        if not isinstance(event, h11.EndOfMessage):
            raise NetError("protocol-error", "the request ends too early")
        return bytes(found)

    @staticmethod
    def headers(request: h11.Request) -> Headers:
        """Return the headers that go on."""
        raw = request.headers.raw_items()
        found = tuple((k.decode("latin-1"), v.decode("latin-1")) for k, v in raw)
        return tuple(header for header in end_to_end(found) if header[0].lower() not in _NOT_ON)

    @classmethod
    def fields(cls, request: h11.Request, body: bytes) -> tuple[bytes, ...]:
        """Return all that would go out besides the URL."""
        lines = (f"{name}: {value}".encode("latin-1") for name, value in cls.headers(request))
        return (*lines, body)

    def rest(self) -> bytes:
        """Return what came after a CONNECT already."""
        return self._h11.trailing_data[0]

    async def answer(self, status: int, headers: Headers, chunks: AsyncIterator[bytes]) -> None:
        """Pass an answer on; the connection ends with it."""
        fields = [*headers, ("Connection", "close")]
        await self._send(h11.Response(status_code=status, headers=fields))
        async for chunk in chunks:
            await self._send(h11.Data(data=chunk))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        try:
            data = self._h11.send(event)
        except h11.LocalProtocolError as error:
            raise NetError("protocol-error", f"the answer cannot be passed on: {error}") from error
        with anyio.fail_after(self._limits.seconds):
            await self._stream.send(data or b"")

    async def _next(self) -> h11.Event | None:
        try:
            while True:
                event = self._h11.next_event()
                if isinstance(event, h11.Event):
                    return event
                if event is h11.PAUSED:
                    return None
                self._h11.receive_data(await received(self._stream))
        except h11.RemoteProtocolError as error:
            raise NetError("protocol-error", f"the request is no HTTP/1.1: {error}") from error


def text_answer(status: int, text: str) -> bytes:
    """Return a whole answer that says what went wrong."""
    body = f"skillhouse: {text}\n".encode()
    head = (
        f"HTTP/1.1 {status} refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
