"""One connection: to a checked origin, and HTTP/1.1 over it by `h11`, from either side."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream
from msgspec import Struct

from skillhouse.net.net_errors import NetError
from skillhouse.net.policy import DEFAULT_PORTS, NetLimits, NetPolicy, Target
from skillhouse.net.proxy_settings import CA_VARIABLE, Proxy, proxy_of

ATTEMPTS = 4
"""Addresses of one name that are tried (as `ssrfguard`); who runs a name chooses their number."""
PROXIED_LOOK_SECONDS = 1.0
"""For the addresses of a name that a proxy looks up itself; those that come are judged."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Takes a name and a port and returns addresses as texts. Raises `OSError` when there are none."""


async def system_resolve(host: str, port: int) -> Sequence[str]:
    answers = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in answers))


class Route:
    """Makes connections, through the proxy that its environment names."""

    def __init__(
        self,
        *,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take what looks names up, and the trusted certificates; the system's by default.

        Args:
            environment: Where `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` are
                looked up; without one there is no proxy.
        """
        self._resolve = resolve
        self._tls = tls
        self._environment = environment or {}

    def proxy(self, target: Target) -> Proxy | None:
        """Return the proxy that is asked for a target; NetError where the variable names none."""
        return proxy_of(target, self._environment)

    async def addresses(self, target: Target, policy: NetPolicy) -> tuple[str, ...]:
        """Look the host up, once, and return its addresses when each may be reached.

        INVARIANT: whoever calls this has checked the origin before: a look-up alone already
        reveals the name to a server of its owner.
        """
        if self.proxy(target) is None:
            addresses = await self._looked_up(target, policy.limits.connect_seconds)
        else:
            try:
                addresses = await self._looked_up(target, PROXIED_LOOK_SECONDS)
            except NetError:
                # Behind a proxy few names have an address: the proxy looks them up.
                return ()
        policy.check_addresses(target.host, addresses)
        return tuple(addresses)

    async def _looked_up(self, target: Target, seconds: float) -> Sequence[str]:
        if target.is_address:
            return (target.host,)
        try:
            with anyio.fail_after(seconds):
                found = await self._resolve(target.host, target.port)
        except TimeoutError as error:
            raise NetError("timeout", f"no answer about the name {target.host}") from error
        except (OSError, UnicodeError) as error:
            raise NetError("resolve-failed", f"no address for {target.host}") from error
        if not found:
            raise NetError("resolve-failed", f"no address for {target.host}")
        return found

    async def connect(
        self, target: Target, addresses: Sequence[str], limits: NetLimits, *, encrypted: bool
    ) -> ByteStream:
        """Connect to one of the addresses that `addresses` returned.

        Args:
            encrypted: Speak TLS, with a certificate of the target's host.
        """
        proxy = self.proxy(target)
        try:
            with anyio.fail_after(limits.connect_seconds):
                if proxy is None:
                    stream: ByteStream = await _first(target, addresses[:ATTEMPTS])
                else:
                    stream = await self._through(proxy, target, limits)
                if not encrypted:
                    return stream
                return await self._encrypt(stream, target)
        except TimeoutError as error:
            way = f" through the proxy {proxy.target.authority}" if proxy else ""
            message = f"no connection to {target.authority}{way} in {limits.connect_seconds:g} s"
            raise NetError("timeout", message) from error

    async def _through(self, proxy: Proxy, target: Target, limits: NetLimits) -> ByteStream:
        """Return a stream to the proxy, and for https one to the target behind it."""
        there = proxy.target
        addresses = await self._looked_up(there, limits.connect_seconds)
        stream: ByteStream = await _first(there, addresses[:ATTEMPTS])
        if there.scheme == "https":
            stream = await self._encrypt(stream, there)
        if target.scheme != "https":
            return stream
        try:
            await Exchange(stream, limits, proxy=proxy).tunnel(target)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        return stream

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        file = self._environment.get(CA_VARIABLE, "")
        if file:
            try:
                context.load_verify_locations(cafile=file)
            except (OSError, ssl.SSLError) as error:
                message = f"no certificates in the file of `{CA_VARIABLE}`: {file}"
                raise NetError("connect-failed", message) from error
        return context

    async def _encrypt(self, stream: ByteStream, target: Target) -> ByteStream:
        try:
            if self._tls is None:
                self._tls = self._context()
            return await TLSStream.wrap(stream, hostname=target.host, ssl_context=self._tls)
        except (ssl.SSLError, OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            await anyio.aclose_forcefully(stream)
            said = getattr(error, "verify_message", "") or getattr(error, "reason", "") or "closed"
            message = f"no secure connection to {target.authority}: {said}"
            raise NetError("connect-failed", message) from error
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise


async def _first(target: Target, addresses: Sequence[str]) -> SocketStream:
    reason = "no address"
    for address in addresses:
        try:
            # An address and no name, so nothing is looked up again.
            stream = await anyio.connect_tcp(address, target.port)
        except OSError as error:
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            reason = (cause.strerror or "refused").lower()
            continue
        peer = str(stream.extra(SocketAttribute.remote_address)[0])  # noqa: S610 - no Django
        if ip_address(peer) != ip_address(address):
            await anyio.aclose_forcefully(stream)
            raise NetError("connect-failed", f"reached {peer} instead of {address}")
        return stream
    raise NetError("connect-failed", f"no connection to {target.authority}: {reason}")


Headers = tuple[tuple[str, str], ...]
CHUNK = 65_536
_INTERIM_MAX = 8
"""Interim answers (1xx) before the real one."""

# Of one connection and not of the request (RFC 9110 7.6.1), or set by us.
HOP_HEADERS = frozenset(
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization "
    "te trailer transfer-encoding upgrade".split()
)


class ResponseHead(Struct, frozen=True, kw_only=True):
    """The first lines of an HTTP response."""

    status: int
    headers: Headers

    def get(self, name: str) -> str:
        """Return all values of a header, joined by commas."""
        return ", ".join(value for key, value in self.headers if key.lower() == name)


class Exchange:
    """A request and its answer; each method is called once, in their order."""

    def __init__(
        self, stream: ByteStream, limits: NetLimits, *, proxy: Proxy | None = None
    ) -> None:
        """Take a stream to the server, or to a proxy that is asked in its place."""
        self._stream = stream
        self._limits = limits
        self._proxy = proxy
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_bytes)

    async def tunnel(self, target: Target) -> None:
        """Ask the proxy for a stream to an origin; NetError where it gives none."""
        place = target.authority if target.port != DEFAULT_PORTS[target.scheme] else ""
        place = place or f"{target.authority}:{target.port}"
        request = h11.Request(method="CONNECT", target=place, headers=[("Host", place), *self._own])
        data = (self._h11.send(request) or b"") + (self._h11.send(h11.EndOfMessage()) or b"")
        await self._stream.send(data)
        head = await self.head()
        if not 200 <= head.status < 300:
            name = self._proxy.target.authority if self._proxy else ""
            message = f"the proxy {name} gives no way to {target.authority}: status {head.status}"
            raise NetError("connect-failed", message)
        if self._h11.trailing_data[0]:
            raise NetError("protocol-error", "the proxy sent bytes before the server was asked")

    @property
    def _own(self) -> Headers:
        value = self._proxy.authorization if self._proxy else ""
        return (("Proxy-Authorization", value),) if value else ()

    async def send(self, method: str, target: Target, headers: Headers, body: bytes) -> None:
        """Send a request; Host, Content-Length and Connection are set here.

        Raises:
            NetError: "request-refused", a header is invalid.
        """
        # A proxy gets the whole address; what goes through a tunnel is for the server alone.
        is_proxied = self._proxy is not None and target.scheme == "http"
        own = self._own if is_proxied else ()
        fields: list[tuple[str, str]] = [("Host", target.authority), *headers, *own]
        if body or method in ("POST", "PUT", "PATCH"):
            fields.append(("Content-Length", str(len(body))))
        fields.append(("Connection", "close"))
        data = b""
        try:
            request = h11.Request(
                method=method, target=target.url if is_proxied else target.path, headers=fields
            )
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
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise NetError("protocol-error", "the answer ends too early")

    async def _next(self) -> h11.Event | None:
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


_NOT_ON = frozenset({"host", "content-length", "expect"})
"""Headers of a request that are set again on the way out."""


class Incoming:
    """One request; each method is called once, in their order."""

    def __init__(self, stream: ByteStream, limits: NetLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)

    async def request(self) -> h11.Request:
        try:
            with anyio.fail_after(self._limits.head_seconds):
                event = await self._next()
        except TimeoutError as error:
            raise NetError("timeout", "no request began") from error
        if not isinstance(event, h11.Request):
            raise NetError("protocol-error", "expected a request")
        return event

    async def body(self) -> bytes:
        """Return the request's whole body: it is searched for secrets before it goes out."""
        if self._h11.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        try:
            with anyio.fail_after(self._limits.seconds):
                while isinstance(event := await self._next(), h11.Data):
                    body += event.data
                    if len(body) > self._limits.request_bytes:
                        most = self._limits.request_bytes
                        raise NetError("request-refused", f"a body of more than {most} bytes")
        except TimeoutError as error:
            raise NetError("timeout", "the request has no end") from error
        if not isinstance(event, h11.EndOfMessage):
            raise NetError("protocol-error", "the request ends too early")
        return bytes(body)

    @staticmethod
    def headers(request: h11.Request) -> Headers:
        raw = request.headers.raw_items()
        headers = tuple((k.decode("latin-1"), v.decode("latin-1")) for k, v in raw)
        return tuple(header for header in end_to_end(headers) if header[0].lower() not in _NOT_ON)

    @classmethod
    def fields(cls, request: h11.Request, body: bytes) -> tuple[bytes, ...]:
        """Return all that would go out besides the URL."""
        lines = (f"{name}: {value}".encode("latin-1") for name, value in cls.headers(request))
        return (*lines, body)

    def rest(self) -> bytes:
        """Return what came after a CONNECT already."""
        return self._h11.trailing_data[0]

    async def answer(self, status: int, headers: Headers, chunks: AsyncIterator[bytes]) -> None:
        """Forward a response; the connection ends with it."""
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


REASON_MAX = 200


def text_answer(status: int, text: str) -> bytes:
    body = f"skillhouse: {text}\n".encode()
    # All that a client shows of the answer to a CONNECT is often this line.
    reason = "".join(c for c in text if " " <= c <= "~")[:REASON_MAX] or "refused"
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
