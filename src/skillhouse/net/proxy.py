"""The way out for a confined command: an HTTP proxy on a Unix socket that keeps the policy."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import logging
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import h11
from anyio.abc import ByteStream, SocketListener, SocketStream, TaskGroup, TaskStatus
from msgspec import Struct

from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name
from skillhouse.floor.paths import unix_address
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.net.connection import (
    CHUNK,
    Exchange,
    Incoming,
    Route,
    end_to_end,
    received,
    text_answer,
)
from skillhouse.net.net_errors import NetError
from skillhouse.net.policy import NetPolicy, Target, parse_url

CONNECTIONS = 32
"""Connections at one time; a further one waits."""
IDLE_SECONDS = 60.0
"""Longest silence of both sides of a connection, where no run's limit says more."""

logger = logging.getLogger(__name__)

_AUTHORITY = regex(r"(?:\[[0-9a-fA-F:.]+\]|[^/?#@\[\]:]+):[0-9]{1,5}")
_STATUS = {"resolve-failed": 502, "connect-failed": 502, "protocol-error": 502, "timeout": 504}
"""Status of the response to a client for each failure; a refusal is 403."""


class EgressDecision(Struct, frozen=True, kw_only=True):
    """What the proxy answered to one request of a command."""

    allowed: bool
    method: str
    """`CONNECT` for https: what is said inside is not seen."""
    origin: str
    """Scheme, host and port; the text that the command sent where that cannot be read."""
    addresses: tuple[str, ...] = ()
    """Where the host may be, by the one look-up; empty when it came to none."""
    reason: str = ""


Report = Callable[[EgressDecision], None]
"""Called with each decision before anything is sent. An exception refuses the request; the command
gets the message of a `NetError`, and of any other exception only its type."""


class EgressConnection(Struct, frozen=True, kw_only=True):
    """One connection that the proxy made, at its end; for plain http that is one request."""

    method: str
    origin: str
    host: str
    port: int
    sent: int
    """Bytes that the server got."""
    received: int


Ended = Callable[[EgressConnection], None]


class _Counted(Struct):
    """Bytes of one connection, both ways."""

    sent: int = 0
    received: int = 0

    def ended(self, method: str, target: Target) -> EgressConnection:
        return EgressConnection(
            method=method,
            origin=target.origin,
            host=target.host,
            port=target.port,
            sent=self.sent,
            received=self.received,
        )


METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254")
"""Where clouds give their machines' own credentials: AWS, Azure, Google and others; AWS containers;
Alibaba; AWS by IPv6. The code of skills reaches them by no setting."""


class EgressProxy:
    """Lets through what a policy allows, for programs that know how to use an HTTP proxy.

    It takes `CONNECT host:port`, which a rule must allow by that method, and requests for http
    URLs. What goes through a tunnel must be TLS with the same host. Names are looked up here, once
    for each request, so the command needs no DNS.
    """

    def __init__(
        self,
        policy: NetPolicy,
        *,
        report: Report,
        route: Route | None = None,
        idle_seconds: float | None = None,
        ended: Ended = lambda _: None,
        never: tuple[str, ...] = (),
    ) -> None:
        """Make it; a connection may be silent for `idle_seconds`, such as the time of the run.

        Args:
            ended: Called with each connection that was made, at its end; it raises nothing.
            never: Addresses that are not connected to, whatever the policy says.
        """
        self._ended = ended
        self._never = frozenset(never)
        self._authorization = b""
        self._idle_seconds = IDLE_SECONDS if idle_seconds is None else idle_seconds
        self._answer_limits = policy.limits
        if idle_seconds is not None:
            self._answer_limits = replace(policy.limits, head_seconds=idle_seconds)
        self._policy = policy
        self._report = report
        self._route = route or Route()
        self._places = anyio.Semaphore(CONNECTIONS)

    @asynccontextmanager
    async def listening(self, path: Path | None = None) -> AsyncIterator[Path]:
        """Serve a new Unix socket for as long as the block lasts, and remove it.

        Args:
            path: Where; by default in a new directory of this user alone.
        """
        with tempfile.TemporaryDirectory(prefix=f"{COMMON_NAME}{owner_name()}-") as directory:
            path = path or Path(directory) / "proxy"
            async with _background() as tasks:
                await tasks.start(self.serve, path)
                yield path

    @asynccontextmanager
    async def serving(
        self, listener: socket.socket, *, credentials: str = ""
    ) -> AsyncIterator[None]:
        """Serve a bound TCP socket for as long as the block lasts, then end each connection.

        It may be of another network namespace, whose programs alone reach it then.

        Args:
            listener: Bound, and not listening yet, so that nothing waits on it before.
            credentials: `user:password` that each request has to give; "" for none.
        """
        self._authorization = _basic(credentials) if credentials else b""
        listener.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        listener.listen(CONNECTIONS)
        accepting = await SocketListener.from_socket(listener.dup())
        async with accepting, _background() as tasks:
            tasks.start_soon(self._accept, accepting)
            yield

    async def _accept(self, listener: SocketListener) -> None:
        """Accept connections as places are free, so that clients cannot use up our descriptors."""
        async with anyio.create_task_group() as tasks:
            while True:
                await self._places.acquire()
                try:
                    stream = await listener.accept()
                except BaseException:
                    self._places.release()
                    raise
                tasks.start_soon(self._held, stream)

    async def serve(
        self, path: Path, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve a new Unix socket until cancelled; only this user may connect to it."""
        with unix_address(path) as address:
            listener = await anyio.create_unix_listener(address, mode=0o600)
        try:
            async with listener:
                task_status.started()
                await listener.serve(self._take)
        finally:
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - one short call

    async def _take(self, stream: SocketStream) -> None:
        await self._places.acquire()
        await self._held(stream)

    async def _held(self, stream: SocketStream) -> None:
        """Serve one connection, whose place is taken; its errors affect no other."""
        try:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
                await self._serve_one(stream)
        except Exception:
            # Raised, it would end the task group, and with it the other connections.
            logger.exception("a connection of a command ended")
        finally:
            self._places.release()
            await anyio.aclose_forcefully(stream)

    async def _serve_one(self, stream: SocketStream) -> None:
        incoming = Incoming(stream, self._policy.limits)
        try:
            request = await incoming.request()
        except NetError as error:
            await stream.send(text_answer(400, str(error)))
            return
        method = request.method.decode("ascii")
        asked = request.target.decode("ascii")
        if self._authorization and not _is_given(request, self._authorization):
            await stream.send(text_answer(407, "this proxy is another call's"))
            return
        began = False
        try:
            target = await self._target(method, asked)
            body = b"" if method == "CONNECT" else await incoming.body()
            addresses = await self._allowed(method, target, incoming.fields(request, body))
            counted = _Counted()
            upstream = await self._route.connect(
                target, addresses, self._policy.limits, encrypted=False
            )
            try:
                if method == "CONNECT":
                    began = True
                    await stream.send(b"HTTP/1.1 200 connected\r\n\r\n")
                    greeting = await self._greeting(stream, incoming.rest(), target)
                    counted.sent += len(greeting)
                    await upstream.send(greeting)
                    await _relay(stream, upstream, self._idle_seconds, counted)
                    return
                exchange = Exchange(upstream, self._answer_limits, proxy=self._route.proxy(target))
                counted.sent += len(body)
                await exchange.send(method, target, incoming.headers(request), body)
                head = await exchange.head()
                began = True
                chunks = _counted_chunks(exchange.chunks(), counted)
                await incoming.answer(head.status, end_to_end(head.headers), chunks)
            finally:
                # First: where the whole proxy ends, no wait comes back.
                self._ended(counted.ended(method, target))
                await anyio.aclose_forcefully(upstream)
        except NetError as error:
            # Once a response has begun, the client sees the failure by its missing end.
            if not began:
                status = 403 if error.refused else _STATUS.get(error.code, 502)
                await stream.send(text_answer(status, f"{error}"))

    async def _greeting(self, stream: ByteStream, data: bytes, target: Target) -> bytes:
        """Return the first bytes of a tunnel, once they name the host it was opened for."""
        async with self._refusals("CONNECT", target.origin):
            with anyio.fail_after(self._policy.limits.head_seconds):
                while (hello := client_hello(data)) is None:
                    more = await received(stream)
                    if not more:
                        raise NetError("protocol-error", "the tunnel ended before its greeting")
                    data += more
            wanted = "" if target.is_address else target.host
            if hello.name != wanted or hello.hides_name:
                meant = "a hidden name" if hello.hides_name else f"`{hello.name[:255]}`"
                raise NetError("host-refused", f"a tunnel to {target.host} asks for {meant}")
        return data

    async def _target(self, method: str, asked: str) -> Target:
        async with self._refusals(method, asked[:200]):
            if method == "CONNECT":
                if not _AUTHORITY.fullmatch(asked):
                    raise NetError("url-refused", f"expected `CONNECT host:port`, got {asked!r}")
                return parse_url(f"https://{asked}/")
            target = parse_url(asked)
            if target.scheme != "http":
                raise NetError("url-refused", "https goes by CONNECT through this proxy")
            return target

    async def _allowed(
        self, method: str, target: Target, fields: tuple[bytes, ...]
    ) -> tuple[str, ...]:
        """Decide, report, and return the addresses that may be connected to."""
        async with self._refusals(method, target.origin) as refusal:
            self._policy.check_origin(target, method)
            self._policy.check_secrets(target, fields)
            self._check_never(target, (target.host,))
            addresses = await self._route.addresses(target, self._policy)
            self._check_never(target, addresses)
        # INVARIANT: reported before anything is sent, so that nothing leaves without a log entry.
        await self._tell(replace(refusal, allowed=True, addresses=addresses))
        return addresses

    def _check_never(self, target: Target, addresses: tuple[str, ...]) -> None:
        if self._never.intersection(map(_plain_address, addresses)):
            message = f"{target.host} leads to a cloud's own credentials"
            raise NetError("address-refused", message)

    @asynccontextmanager
    async def _refusals(self, method: str, origin: str) -> AsyncIterator[EgressDecision]:
        """Report an error of the block as a refusal."""
        decision = EgressDecision(allowed=False, method=method, origin=origin)
        try:
            yield decision
        except (NetError, TimeoutError) as error:
            reason = str(error) or "the tunnel did not begin"
            await self._tell(replace(decision, reason=reason))
            raise

    async def _tell(self, decision: EgressDecision) -> None:
        try:
            # It may wait for the log, which keeps no other connection.
            await in_thread(lambda: self._report(decision))
        except NetError:
            raise
        except Exception as error:
            message = f"the decision could not be recorded: {type(error).__name__}"
            raise NetError("host-refused", message) from error


@asynccontextmanager
async def _background() -> AsyncIterator[TaskGroup]:
    """Give a group of which the tasks end with the block, and raise what that does by itself."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 - raised again below, not in a group.
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _plain_address(text: str) -> str:
    """Return an IPv4 address for one that IPv6 carries, and any other text as it is."""
    mapped = ipaddress.IPv6Address(text).ipv4_mapped if ":" in text else None
    return text if mapped is None else str(mapped)


def _basic(credentials: str) -> bytes:
    return b"Basic " + base64.b64encode(credentials.encode())


def _is_given(request: h11.Request, authorization: bytes) -> bool:
    given = [value for name, value in request.headers if name == b"proxy-authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], authorization)


async def _counted_chunks(chunks: AsyncIterator[bytes], counted: _Counted) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        counted.received += len(chunk)
        yield chunk


async def _relay(
    client: ByteStream, upstream: ByteStream, idle_seconds: float, counted: _Counted
) -> None:
    """Copy bytes both ways until both sides have ended, or both were silent for too long."""

    async def carry(source: ByteStream, sink: ByteStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            with suppress(anyio.EndOfStream):
                while True:
                    data = await source.receive(CHUNK)
                    if source is client:
                        counted.sent += len(data)
                    else:
                        counted.received += len(data)
                    idle.deadline = anyio.current_time() + idle_seconds
                    await sink.send(data)
            await sink.send_eof()
            return
        # One direction is broken, so the other one has no peer.
        idle.cancel()

    with anyio.move_on_after(idle_seconds) as idle:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carry, client, upstream)
            tasks.start_soon(carry, upstream, client)


HELLO_MAX = 32_768
"""Bytes of a ClientHello; ordinary ones have under 2,000."""
_RECORD_MAX = 16_384
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D


class Hello(Struct, frozen=True, kw_only=True):
    """The server that a TLS client asks for (RFC 8446 4.1.2, RFC 6066 3).

    One address serves many names: without this check, a tunnel to an allowed name could be used to
    reach any other that the same provider serves.
    """

    name: str
    """The server's name, in lower case; "" when there is none."""
    hides_name: bool
    """Whether another name may be meant, which is encrypted (ECH)."""


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise NetError("protocol-error", "the greeting of the tunnel is cut")
        self._at += count
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """Take bytes that are preceded by their number."""
        return self.take(self.number(size))

    def __bool__(self) -> bool:
        return self._at < len(self._data)


def client_hello(data: bytes) -> Hello | None:
    """Return the greeting that `data` begins with; None when more of it must come."""
    body, at = b"", 0
    while True:
        head = data[at : at + 5]
        length = int.from_bytes(head[3:5], "big")
        if head[:1] not in (b"", b"\x16") or head[1:2] not in (b"", b"\x03"):
            raise NetError("protocol-error", "expected TLS in the tunnel, got something else")
        if len(head) < 5:
            return None
        if not 0 < length <= _RECORD_MAX:
            raise NetError("protocol-error", "expected TLS in the tunnel, got an odd record")
        body += data[at + 5 : at + 5 + length]
        wanted = 4 + int.from_bytes(body[1:4], "big")
        if body[:1] not in (b"", b"\x01") or (len(body) >= 4 and wanted > HELLO_MAX):
            raise NetError("protocol-error", "expected the greeting of a TLS client")
        if len(body) >= max(4, wanted):
            return _read(_Cursor(body[4:wanted]))
        at += 5 + length
        if len(data) < at:
            return None


def _read(cursor: _Cursor) -> Hello:
    cursor.take(2 + 32)  # Version and random number,
    for size in (1, 2, 1):  # session, ciphers, compressions.
        cursor.vector(size)
    names: list[bytes] = []
    hides_name = False
    extensions = _Cursor(cursor.vector(2) if cursor else b"")
    while extensions:
        kind, value = extensions.number(2), extensions.vector(2)
        hides_name |= kind == _ENCRYPTED_HELLO
        if kind == _SERVER_NAME:
            listed = _Cursor(_Cursor(value).vector(2))
            while listed:
                listed.take(1)
                names.append(listed.vector(2))
    if len(names) > 1:
        raise NetError("protocol-error", "the greeting of the tunnel names several servers")
    name = names[0].decode("ascii", "replace").lower() if names else ""
    return Hello(name=name, hides_name=hides_name)
