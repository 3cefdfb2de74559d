"""JSON-RPC 2.0 over HTTP, the server: `POST /rpc` with a bearer token, and two probes.

The executor serves `executor_methods`, and the core, for the requests of skills, `core_methods`.
Each request has a connection of its own; closing it before the answer cancels the call. Built on
h11, since the core needs both ends without the `server` extra.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

import anyio
import h11
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream, TaskGroup
from anyio.streams.tls import TLSStream
from msgspec import Struct

from skillhouse.extensions.cells.rpc import (
    FRAME_BYTES,
    Method,
    NotBegunError,
    error_value,
    packed,
    respond,
)
from skillhouse.extensions.cells.rpc_tokens import FixedTokens, TokenCaller, TokenCheck
from skillhouse.extensions.cells.tls_files import TlsFiles
from skillhouse.extensions.cells.uploads import Uploads
from skillhouse.sandbox.code_call import UNAVAILABLE

RPC_PATH = "/rpc"
CALL_HEADER = b"skillhouse-call"
"""A random word of the caller for one request."""
NOT_BEGUN_HEADER = b"skillhouse-not-begun"
"""That word again, in a 503 of ours: nothing was begun. A 503 of a balancer has none."""
MESSAGE_HEADER = b"skillhouse-message"
"""Bytes of the message, where archives follow it in the body."""
ARCHIVE_BYTES = 600 << 20
"""Most bytes of the archives of one request."""
RETRY_AFTER = 1
"""Seconds after which a refused caller may try again."""
CONNECTIONS = 1_200
"""Most concurrent connections: as many calls as may wait (executor.WAITING), and some more."""
HEAD_BYTES = 16_384
HEAD_SECONDS = 10.0
BODY_SECONDS = 30.0
"""Time to send a message; the call itself is not bounded here."""
ARCHIVE_SECONDS = 300.0
"""Time to send archives."""
SEND_SECONDS = 30.0
REST_SECONDS = 1.0
"""How long a refused caller may go on sending: closed at once, it would not read the answer."""
PAUSE_SECONDS = 0.1
CHUNK = 65_536
PROBES = ("/healthz", "/readyz")


class RpcExchange(Struct, frozen=True, kw_only=True):
    """What a method may know of the request that it answers."""

    caller: TokenCaller
    archives: Path | None = None
    """The archives that came with it, one after the other; gone when they are taken."""
    taken: Callable[[], None] = lambda: None
    """Says that the archives were read: others may come, and calls for this code may go on."""


CURRENT: ContextVar[RpcExchange | None] = ContextVar("CURRENT", default=None)
"""The exchange that is answered; None outside of one."""

Probe = Callable[[str], tuple[int, str]]
"""Takes `/healthz` or `/readyz`; gives a status, 200 or 503, and one word."""


class RpcServer:
    def __init__(
        self,
        methods: Mapping[str, Method],
        *,
        token: str | TokenCheck,
        tls: TlsFiles | None = None,
        probe: Probe | None = None,
        uploads: Uploads | None = None,
    ) -> None:
        """Serve `methods` to callers with `token`.

        Args:
            token: The only one, or what says whose token one is.
            tls: None serves without it.
            probe: Answers `GET /healthz` and `GET /readyz`, for which no token is needed.
            uploads: Takes the archives that come with requests; None takes none.
        """
        self._methods = methods
        self._tokens = FixedTokens(token) if isinstance(token, str) else token
        self._tls = tls
        self._probe = probe
        self._uploads = uploads
        self._count = 0
        self._answering: set[anyio.CancelScope] = set()
        self._answered_one = anyio.Event()
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

    async def wait_answered(self) -> None:
        """Return when every request with a token has its answer, which a caller has read."""
        while self._answering:
            await self._answered_one.wait()

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
                    await self._exchange(await self._secured(stream), scope)
            except (OSError, TimeoutError, *BROKEN):
                return  # The caller has gone, or shows no certificate: there is no one to answer.
            finally:
                self._count -= 1
                self._answering.discard(scope)
                self._answered_one.set()
                self._answered_one = anyio.Event()
                self._strangers.pop(scope, None)

    async def _secured(self, stream: SocketStream) -> ByteStream:
        if self._tls is None:
            return stream
        with anyio.fail_after(HEAD_SECONDS):
            return await TLSStream.wrap(
                stream,
                server_side=True,
                ssl_context=self._tls.context(),
                standard_compatible=False,
            )

    def _has_made_room(self) -> bool:
        """End the oldest connection without a token, so that such cannot block callers with one."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        del self._strangers[oldest]
        oldest.cancel()
        return True

    async def _exchange(self, stream: ByteStream, scope: anyio.CancelScope) -> None:
        link = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        answer = _Answer(400)
        try:
            with anyio.fail_after(HEAD_SECONDS):
                head = await event_of(link, stream)
            if isinstance(head, h11.Request):
                answer = await self._replied(head, link, stream, scope)
        except TimeoutError:
            answer = _Answer(408)
        except (h11.RemoteProtocolError, anyio.EndOfStream):
            answer = _Answer(400)
        with anyio.move_on_after(SEND_SECONDS):
            await _send(link, stream, answer)
            if isinstance(stream, SocketStream):
                await stream.send_eof()
        with contextlib.suppress(*BROKEN), anyio.move_on_after(REST_SECONDS):
            while True:
                await stream.receive(CHUNK)

    async def _replied(
        self, head: h11.Request, link: h11.Connection, stream: ByteStream, scope: anyio.CancelScope
    ) -> _Answer:
        target = head.target.decode("ascii", "replace")
        if self._probe is not None and target in PROBES and head.method == b"GET":
            status, word = self._probe(target)
            return _Answer(status, f"{word}\n".encode(), kind="text/plain")
        status, caller = self._status(head)
        if status != 200 or caller is None:
            return _Answer(status)
        self._strangers.pop(scope, None)
        self._answering.add(scope)
        async with contextlib.AsyncExitStack() as kept:
            try:
                message, exchange = await self._taken(head, link, stream, caller, kept)
                if message is None:
                    return _Answer(413)
                CURRENT.set(exchange)
                data = await self._answered(message, stream)
            except NotBegunError as error:
                said = packed(error_value(None, error))
                return _Answer(503, said, call=_header(head, CALL_HEADER))
        return _Answer(204) if data is None else _Answer(200, data)

    def _status(self, head: h11.Request) -> tuple[int, TokenCaller | None]:
        """Return the status for a request's head; without a token only 401 is ever returned."""
        headers = list(head.headers)
        given = [value for name, value in headers if name == b"authorization"]
        names = {name for name, _ in headers}
        caller = None
        # A browser sends an Origin; no caller of ours is one. What a balancer adds, as
        # X-Forwarded-For or a client's certificate, is never read: any caller can write it too.
        if len(given) == 1 and given[0].startswith(b"Bearer ") and b"origin" not in names:
            caller = self._tokens.caller(given[0][7:].decode("latin-1"))
        if caller is None:
            return 401, None
        if head.target != RPC_PATH.encode():
            return 404, caller
        if head.method != b"POST":
            return 405, caller
        kind = _header(head, b"content-type").partition(b";")[0].strip().lower()
        return (200 if kind == b"application/json" else 415), caller

    async def _taken(
        self,
        head: h11.Request,
        link: h11.Connection,
        stream: ByteStream,
        caller: TokenCaller,
        kept: contextlib.AsyncExitStack,
    ) -> tuple[bytes | None, RpcExchange]:
        """Return the message, None for one that is too long, and what may be known of it."""
        plain = RpcExchange(caller=caller)
        length = _header(head, MESSAGE_HEADER)
        if not length:
            with anyio.fail_after(BODY_SECONDS):
                return await _body(link, stream), plain
        if not length.isdigit() or len(length) > 9 or int(length) > FRAME_BYTES:
            return None, plain
        if self._uploads is None:
            return None, plain
        with _room():
            upload = await kept.enter_async_context(self._uploads.place(caller.name))
        with anyio.fail_after(ARCHIVE_SECONDS):
            message, rest = bytearray(), int(length)
            async for data in _parts(link, stream):
                begin = data[:rest]
                message += begin
                rest -= len(begin)
                if begin and not rest:
                    self._uploads.announce(upload, caller.name, bytes(message))
                with _room():
                    upload.file.write(data[len(begin) :])
                if upload.file.tell() > ARCHIVE_BYTES:
                    return None, plain
        with _room():
            upload.file.flush()
        archives = Path(upload.file.name)
        exchange = RpcExchange(caller=caller, archives=archives, taken=upload.end)
        return bytes(message), exchange

    async def _answered(self, data: bytes, stream: ByteStream) -> bytes | None:
        """Return the answer; when the caller disconnects meanwhile, cancel its call."""
        answer: bytes | None = None
        refused: NotBegunError | None = None
        is_left = False
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                nonlocal is_left
                with contextlib.suppress(*BROKEN):
                    await stream.receive(1)
                # The end, or a second request: in both cases the caller does not wait.
                is_left = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                answer = await respond(data, self._methods)
            except NotBegunError as error:
                refused = error
            tasks.cancel_scope.cancel()
        if is_left:
            raise ConnectionResetError("the caller went away")
        if refused is not None:
            raise refused
        return answer


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Refuse what the disk has no room for before anything of it is begun."""
    try:
        yield
    except OSError as error:
        message = f"no room for the code: {error.strerror}"
        raise NotBegunError(UNAVAILABLE, message, reason="no-room") from error


class _Answer(Struct, frozen=True):
    status: int
    body: bytes = b""
    kind: str = "application/json"
    call: bytes = b""
    """What a 503 answers to."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _header(head: h11.Request, name: bytes) -> bytes:
    """Return the value of a header that is there once; else nothing."""
    found = [value for one, value in head.headers if one == name]
    return found[0] if len(found) == 1 else b""


BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""How the other side ends a connection."""


async def event_of(link: h11.Connection, stream: ByteStream) -> h11.Event:
    while True:
        event = link.next_event()
        if isinstance(event, h11.Event):
            return event
        if event is h11.PAUSED:
            raise h11.RemoteProtocolError("expected one request")
        link.receive_data(await stream.receive(CHUNK))


async def _parts(link: h11.Connection, stream: ByteStream) -> AsyncIterator[bytes]:
    if link.they_are_waiting_for_100_continue:
        go_on = h11.InformationalResponse(status_code=100, headers=[])
        await stream.send(link.send(go_on) or b"")
    while isinstance(event := await event_of(link, stream), h11.Data):
        yield bytes(event.data)


async def _body(link: h11.Connection, stream: ByteStream) -> bytes | None:
    body = bytearray()
    async for data in _parts(link, stream):
        body += data
        if len(body) > FRAME_BYTES:
            return None
    return bytes(body)


async def _send(link: h11.Connection, stream: ByteStream, answer: _Answer) -> None:
    status = answer.status
    headers = [("Connection", "close")]
    if status != 204:
        headers.append(("Content-Length", str(len(answer.body))))
    if answer.body:
        headers.append(("Content-Type", answer.kind))
    if status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    if status == 405:
        headers.append(("Allow", "POST"))
    if status == 503:
        headers.append(("Retry-After", str(RETRY_AFTER)))
    if answer.call:
        headers.append((NOT_BEGUN_HEADER.decode(), answer.call.decode("latin-1")))
    if link.our_state is h11.ERROR:
        return
    await stream.send(packet(link, h11.Response(status_code=status, headers=headers), answer.body))


def packet(link: h11.Connection, head: h11.Event, body: bytes) -> bytes:
    """Return a whole message as it is sent."""
    events = (head, h11.Data(data=body), h11.EndOfMessage())
    return b"".join(link.send(event) or b"" for event in events)
