"""JSON-RPC 2.0 over HTTP, server and client: `POST /rpc` with a bearer token, and nothing else.

The executor serves `executor_methods`, and the core, for the requests of skills, `core_methods`.
Each request has a connection of its own; closing it before the answer cancels the call. Built on
h11, since the core needs both ends without the `server` extra.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup

from skillhouse.extensions.cells.rpc import (
    BATCH,
    FRAME_BYTES,
    Method,
    RpcResponse,
    message,
    packed,
    parse,
    request_value,
    respond,
)
from skillhouse.sandbox.code_call import UNAVAILABLE, RpcError

TOKEN_MIN = 16
"""Fewest characters of a token."""
RPC_PATH = "/rpc"
CONNECTIONS = 1_200
"""Most concurrent connections: as many calls as may wait (executor.WAITING), and some more."""
HEAD_BYTES = 16_384
HEAD_SECONDS = 10.0
BODY_SECONDS = 30.0
"""Time to send a request; the call itself is not bounded here."""
SEND_SECONDS = 30.0
REST_SECONDS = 1.0
"""How long a refused caller may go on sending: closed at once, it would not read the answer."""
PAUSE_SECONDS = 0.1
CHUNK = 65_536


class RpcServer:
    def __init__(self, methods: Mapping[str, Method], *, token: str) -> None:
        """Serve `methods` to callers with `token`."""
        check_token(token)
        self._methods = methods
        self._expected = f"Bearer {token}".encode()
        self._count = 0
        # Connections that have not shown the token yet, oldest first.
        self._strangers: dict[anyio.CancelScope, None] = {}

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Yield the port that the server listens on while the context lasts; 0 takes a free one.

        At its end running calls are cancelled.
        """
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(self._accept, listener, tasks)
            yield listener.extra(SocketAttribute.local_port)  # noqa: S610 - no database.
            tasks.cancel_scope.cancel()

    async def _accept(self, listener: Listener[SocketStream], tasks: TaskGroup) -> None:
        while True:
            try:
                await listener.serve(self._served, tasks)
            except* OSError:
                # No descriptor is left for one more connection; the existing ones go on.
                pass
            await anyio.sleep(PAUSE_SECONDS)

    async def _served(self, stream: SocketStream) -> None:
        async with stream:
            if self._count >= CONNECTIONS and not self._has_made_room():
                return
            scope = anyio.CancelScope()
            self._strangers[scope] = None
            self._count += 1
            try:
                with scope:
                    await self._exchange(stream, scope)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # The caller has gone, so there is no one to answer.
            finally:
                self._count -= 1
                self._strangers.pop(scope, None)

    def _has_made_room(self) -> bool:
        """End the oldest connection without a token, so that such cannot block callers with one."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        del self._strangers[oldest]
        oldest.cancel()
        return True

    async def _exchange(self, stream: SocketStream, scope: anyio.CancelScope) -> None:
        link = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        try:
            with anyio.fail_after(HEAD_SECONDS):
                head = await _event(link, stream)
            status = self._status(head)
            data = b""
            if status == 200:
                self._strangers.pop(scope, None)
                with anyio.fail_after(BODY_SECONDS):
                    body = await _body(link, stream)
                status, data = (413, b"") if body is None else (200, body)
        except TimeoutError:
            status = 408
        except (h11.RemoteProtocolError, anyio.EndOfStream):
            status = 400
        answer: bytes | None = b""
        if status == 200:
            answer = await self._answered(data, stream)
            status = 204 if answer is None else 200
        with anyio.move_on_after(SEND_SECONDS):
            await _send(link, stream, status, answer or b"")
            await stream.send_eof()
        with contextlib.suppress(anyio.EndOfStream), anyio.move_on_after(REST_SECONDS):
            while True:
                await stream.receive(CHUNK)

    def _status(self, head: h11.Event) -> int:
        """Return the status for a request's head; without the token only 401 is ever returned."""
        if not isinstance(head, h11.Request):
            return 400
        headers = list(head.headers)
        given = [value for name, value in headers if name == b"authorization"]
        names = {name for name, _ in headers}
        # A browser sends an Origin; no caller of ours is one.
        is_ours = len(given) == 1 and hmac.compare_digest(given[0], self._expected)
        if not is_ours or b"origin" in names:
            return 401
        if head.target != RPC_PATH.encode():
            return 404
        if head.method != b"POST":
            return 405
        kinds = [value for name, value in headers if name == b"content-type"]
        kind = kinds[0].partition(b";")[0].strip().lower() if len(kinds) == 1 else b""
        return 200 if kind == b"application/json" else 415

    async def _answered(self, data: bytes, stream: SocketStream) -> bytes | None:
        """Return the answer; when the caller disconnects meanwhile, cancel its call."""
        answer: bytes | None = None
        is_left = False
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                nonlocal is_left
                with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive(1)
                # The end, or a second request: in both cases the caller does not wait.
                is_left = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            answer = await respond(data, self._methods)
            tasks.cancel_scope.cancel()
        if is_left:
            raise ConnectionResetError("the caller went away")
        return answer


def check_token(token: str) -> None:
    """Raise `ValueError` for a token that is too short, or not valid in a header."""
    if len(token) < TOKEN_MIN or not token.isascii() or not token.isprintable() or " " in token:
        message = f"expected a token of at least {TOKEN_MIN} printable ASCII characters"
        raise ValueError(f"{message} without blanks")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _event(link: h11.Connection, stream: SocketStream) -> h11.Event:
    while True:
        event = link.next_event()
        if isinstance(event, h11.Event):
            return event
        if event is h11.PAUSED:
            raise h11.RemoteProtocolError("expected one request")
        link.receive_data(await stream.receive(CHUNK))


async def _body(link: h11.Connection, stream: SocketStream) -> bytes | None:
    if link.they_are_waiting_for_100_continue:
        go_on = h11.InformationalResponse(status_code=100, headers=[])
        await stream.send(link.send(go_on) or b"")
    body = bytearray()
    while isinstance(event := await _event(link, stream), h11.Data):
        body += event.data
        if len(body) > FRAME_BYTES:
            return None
    return bytes(body)


async def _send(link: h11.Connection, stream: SocketStream, status: int, body: bytes) -> None:
    headers = [("Content-Length", str(len(body))), ("Connection", "close")]
    if status == 200:
        headers.append(("Content-Type", "application/json"))
    if status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    if status == 405:
        headers.append(("Allow", "POST"))
    if status == 204:
        headers = headers[1:]
    if link.our_state is h11.ERROR:
        return
    await stream.send(_packet(link, h11.Response(status_code=status, headers=headers), body))


def _packet(link: h11.Connection, head: h11.Event, body: bytes) -> bytes:
    events = (head, h11.Data(data=body), h11.EndOfMessage())
    return b"".join(link.send(event) or b"" for event in events)


CONNECT_SECONDS = 5.0
_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class NoAnswerError(RpcError):
    """The server did not answer; `is_sent` is True if it may have begun the call."""

    def __init__(self, message: str, *, is_sent: bool) -> None:
        super().__init__(UNAVAILABLE, message)
        self.is_sent = is_sent


class RpcClient:
    def __init__(self, url: str, token: str) -> None:
        """Use the server at `url` (http://HOST[:PORT]/rpc) with its bearer token.

        The operator configures both, so addresses that `net` would refuse are allowed, for
        example in a container's network.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.query or parts.username:
            # The address may contain a password, so the message does not show it.
            raise ValueError("expected an address as http://HOST:PORT/rpc")
        self._host = parts.hostname
        self._port = parts.port or 80
        self._path = parts.path or "/rpc"
        self._token = token
        self._numbers = itertools.count(1)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the result of a request; the server's own error, or UNAVAILABLE, is raised."""
        number = next(self._numbers)
        data = await self._posted(packed(request_value(method, dict(params), id=number)))
        answer = message(parse(data))
        if not isinstance(answer, RpcResponse) or answer.id != number:
            raise RpcError(UNAVAILABLE, f"the server at {self._host} answered something else")
        if answer.error is not None:
            raise answer.error
        return answer.result

    async def tell(self, method: str, notifications: Sequence[Mapping[str, Any]]) -> None:
        """Send notifications, by the params of each."""
        for start in range(0, len(notifications), BATCH):
            part = notifications[start : start + BATCH]
            await self._posted(packed([request_value(method, dict(params)) for params in part]))

    async def _posted(self, body: bytes) -> bytes:
        place = f"{self._host}:{self._port}"
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await anyio.connect_tcp(self._host, self._port)
        except (OSError, TimeoutError) as error:
            message = f"no server answers at {place}: {type(error.__cause__ or error).__name__}"
            raise NoAnswerError(message, is_sent=False) from error
        try:
            status, data = await self._post(stream, body)
        except (OSError, h11.ProtocolError, TimeoutError, *_BROKEN) as error:
            message = f"the server at {place} did not answer: {type(error).__name__}"
            raise NoAnswerError(message, is_sent=True) from error
        if status == 401:
            raise NoAnswerError(f"the server at {place} does not take our token", is_sent=False)
        if status not in (200, 204):
            message = f"the server at {place} answered with status {status}"
            raise NoAnswerError(message, is_sent=status == 0)
        return data

    async def _post(self, stream: SocketStream, body: bytes) -> tuple[int, bytes]:
        link = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        headers = [
            ("Host", f"{self._host}:{self._port}"),
            ("Authorization", f"Bearer {self._token}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        async with stream:
            request = h11.Request(method="POST", target=self._path, headers=headers)
            data = _packet(link, request, body)
            # A server that refuses early answers before it has read all.
            with contextlib.suppress(anyio.BrokenResourceError):
                await stream.send(data)
            return await self._answer(link, stream)

    async def _answer(self, link: h11.Connection, stream: Any) -> tuple[int, bytes]:
        status, body = 0, bytearray()
        while True:
            event = link.next_event()
            if event is h11.NEED_DATA:
                try:
                    link.receive_data(await stream.receive(CHUNK))
                except anyio.EndOfStream:
                    link.receive_data(b"")
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > FRAME_BYTES:
                    raise OSError("the answer is too long")
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return status, bytes(body)
