"""One request and its answer over one connection, in HTTP/1.1 as `h11` speaks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import anyio
import h11
from anyio.abc import ByteStream

from skillhouse.net.errors import NetError
from skillhouse.net.policy import NetLimits
from skillhouse.net.url import Target

Headers = tuple[tuple[str, str], ...]
CHUNK = 65_536
_INTERIM_MAX = 8
"""Interim answers (1xx) before the real one."""

# Of one connection and not of the request (RFC 9110 7.6.1), or ours to say.
HOP_HEADERS = frozenset(
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization "
    "te trailer transfer-encoding upgrade".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """The beginning of an answer."""

    status: int
    headers: Headers

    def get(self, name: str) -> str:
        """Return all values of a header, joined by commas; "" when there is none."""
        return ", ".join(value for key, value in self.headers if key.lower() == name)


class Exchange:
    """A request and its answer; each method is called once, in their order."""

    def __init__(self, stream: ByteStream, limits: NetLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_bytes)

    async def send(self, method: str, target: Target, headers: Headers, body: bytes) -> None:
        """Send a request; Host, Content-Length and Connection are said here.

        Raises:
            NetError: "request-refused", a header is none; "connect-failed".
        """
        fields: list[tuple[str, str]] = [("Host", target.authority), *headers]
        if body or method in ("POST", "PUT", "PATCH"):
            fields.append(("Content-Length", str(len(body))))
        fields.append(("Connection", "close"))
        data = b""
        try:
            request = h11.Request(method=method, target=target.path, headers=fields)
            events: list[h11.Event] = [request, h11.EndOfMessage()]
            if body:
                events.insert(1, h11.Data(data=body))
            for event in events:
                data += self._h11.send(event) or b""
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise NetError("request-refused", f"not a header of HTTP: {error}") from error
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # A server may answer, and close, before it has read all; its answer says why.
            return

    async def head(self) -> ResponseHead:
        """Return the beginning of the answer.

        Raises:
            NetError: "timeout" or "protocol-error".
        """
        try:
            with anyio.fail_after(self._limits.head_seconds):
                for _ in range(_INTERIM_MAX):
                    event = await self._next()
                    if isinstance(event, h11.Response):
                        return self._head(event)
                    if not isinstance(event, h11.InformationalResponse):
                        break
        except TimeoutError as error:
            message = f"no answer began in {self._limits.head_seconds:g} s"
            raise NetError("timeout", message) from error
        raise NetError("protocol-error", "expected an answer, got none")

    def _head(self, event: h11.Response) -> ResponseHead:
        raw = event.headers.raw_items()
        if sum(len(name) + len(value) + 4 for name, value in raw) > self._limits.head_bytes:
            message = f"the answer's headers are larger than {self._limits.head_bytes} bytes"
            raise NetError("too-large", message)
        return ResponseHead(
            status=event.status_code,
            headers=tuple((k.decode("latin-1"), v.decode("latin-1")) for k, v in raw),
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the answer's body as it comes.

        Raises:
            NetError: "protocol-error", also when it ends before its end.
        """
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise NetError("protocol-error", "the answer ends too early")

    async def _next(self) -> h11.Event | None:
        """Return the next event; None at the end of the connection."""
        try:
            while True:
                event = self._h11.next_event()
                if isinstance(event, h11.ConnectionClosed):
                    return None
                if isinstance(event, h11.Event):
                    return event
                self._h11.receive_data(await received(self._stream))
        except h11.RemoteProtocolError as error:
            code = "too-large" if error.error_status_hint == 431 else "protocol-error"
            raise NetError(code, f"the answer is no HTTP/1.1: {error}") from error


async def received(stream: ByteStream) -> bytes:
    """Return what comes next; b"" at the end, also a sudden one, which h11 then judges."""
    try:
        return await stream.receive(CHUNK)
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return b""


def end_to_end(headers: Sequence[tuple[str, str]]) -> Headers:
    """Return the headers without those of one connection only."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for word in value.split(",")
    }
    return tuple((k, v) for k, v in headers if k.lower() not in HOP_HEADERS | named)
