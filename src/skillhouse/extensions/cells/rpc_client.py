"""JSON-RPC 2.0 over HTTP, the caller: one request a connection, and whether it may have begun."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import anyio.to_thread
import h11
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from msgspec import Struct

from skillhouse.extensions.cells.rpc import (
    BATCH,
    FRAME_BYTES,
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcResponse,
    message,
    packed,
    parse,
    request_value,
)
from skillhouse.extensions.cells.rpc_http import (
    BROKEN,
    CALL_HEADER,
    CHUNK,
    HEAD_BYTES,
    MESSAGE_HEADER,
    NOT_BEGUN_HEADER,
    packet,
)
from skillhouse.extensions.cells.tls_files import TlsFiles
from skillhouse.sandbox.code_call import UNAVAILABLE, RpcError

CONNECT_SECONDS = 5.0
INVITE_SECONDS = 1.0
"""How long a server may take to say that it wants the body (RFC 9110, section 10.1.1)."""
WAIT_MAX = 5.0
"""Longest wait that a server's Retry-After gets."""
_NOT_RUN = frozenset({401, 404, 405, 408, 413, 415})
"""What an executor answers before it begins a request. Any other status, and a 503 without our own
mark, may come from a balancer that has passed the request on already."""


class NoAnswerError(RpcError):
    """The server did not answer; `is_sent` is True if it may have begun the call."""

    def __init__(
        self,
        message: str,
        *,
        is_sent: bool,
        may_retry: bool = False,
        retry_after: float = 0.0,
        reason: str = "",
    ) -> None:
        super().__init__(UNAVAILABLE, message, reason=reason)
        self.is_sent = is_sent
        self.may_retry = may_retry
        """True: nothing was begun, and another server, or this one later, may take the call."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait; 0 where it does not."""


class SentArchives(Struct, frozen=True):
    """Archives that are sent after a message."""

    size: int
    parts: Callable[[], Iterator[bytes]]
    """Yields the bytes, `size` in all; called for each attempt."""
    sent: Callable[[], None] = lambda: None
    """Called when all of them are on their way, long before the answer may come."""


class _Reply(Struct):
    status: int = 0
    body: bytes = b""
    not_begun: bytes = b""
    retry_after: float = 0.0


class RpcClient:
    def __init__(
        self,
        url: str,
        token: str | Callable[[], str],
        *,
        tls: TlsFiles | None = None,
        former: Callable[[], str] = lambda: "",
    ) -> None:
        """Use the server at `url` (http[s]://HOST[:PORT]/rpc) with its bearer token.

        The operator configures both, so addresses that `net` would refuse are allowed, for
        example in a container's network.

        Args:
            token: What is shown; a function is asked for each request.
            tls: What https uses; None takes the system's certificates.
            former: The token before, which a server gets that does not take the new one yet; ""
                where there is none.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError("expected an address as http://HOST:PORT/rpc")
        if parts.username or not url.isascii() or not url.isprintable() or " " in url:
            # The address may contain a password, so the message does not show it.
            raise ValueError("expected an address as http://HOST:PORT/rpc")
        self._host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path or "/rpc"
        self._is_tls = parts.scheme == "https"
        self._token = token
        self._tls = tls
        self._former = former
        self._own: ssl.SSLContext | None = None

    @property
    def host(self) -> str:
        return self._host

    @property
    def place(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self.port}"

    async def addresses(self) -> Sequence[str]:
        """Return every IP address of the host's name; none where it has none, or none was found.

        Those of version 4 where there are both: one executor may have an address of each.
        """
        with contextlib.suppress(ValueError):
            return (str(ipaddress.ip_address(self._host)),)
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                found = await anyio.getaddrinfo(self._host, self.port, type=1)
        except (OSError, TimeoutError):
            return ()
        every = tuple(dict.fromkeys(str(where[0]) for *_, where in found))
        if set(every) <= {"127.0.0.1", "::1"}:
            # A server of this machine may listen at one of them only.
            return (self._host,)
        return tuple(one for one in every if ":" not in one) or every

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        address: str = "",
        attachment: SentArchives | None = None,
    ) -> Any:
        """Return the result of a request; the server's own error is raised.

        Args:
            address: Which of the `addresses` to use; "" takes any.
            attachment: Archives to send with it.

        Raises:
            NoAnswerError: there is no answer to this very request.
        """
        # INVARIANT: an answer to another request, of this core or of another one, is no answer:
        # the id cannot be guessed, and no two requests have one.
        number = secrets.token_hex(16)
        try:
            body = packed(request_value(method, dict(params), id=number))
        except RpcError as error:
            # Not by its own code, which in an answer means that the call may have run.
            raise RpcError(UNAVAILABLE, str(error)) from error
        data = await self._posted(body, address, attachment)
        try:
            answer = message(parse(data))
        except RpcError as error:
            if error.code not in (PARSE_ERROR, INVALID_REQUEST):
                raise
            answer = None
        if not isinstance(answer, RpcResponse) or answer.id != number:
            said = f"the server at {self.place} answered something else"
            raise NoAnswerError(said, is_sent=True)
        if answer.error is not None:
            raise answer.error
        return answer.result

    async def tell(self, method: str, notifications: Sequence[Mapping[str, Any]]) -> None:
        """Send notifications, by the params of each."""
        for start in range(0, len(notifications), BATCH):
            part = notifications[start : start + BATCH]
            body = packed([request_value(method, dict(params)) for params in part])
            await self._posted(body, "", None)

    async def _posted(self, body: bytes, address: str, attachment: SentArchives | None) -> bytes:
        place = self.place if address in ("", self._host) else f"{self.place} ({address})"
        call = secrets.token_hex(16).encode()
        token = self._token if isinstance(self._token, str) else self._token()
        reply = await self._replied(place, address, token, body, call, attachment)
        former = self._former()
        if reply.status == 401 and former and former != token:
            # Both sides read the new one from files of their own, which change one by one.
            reply = await self._replied(place, address, former, body, call, attachment)
        if reply.status in (200, 204):
            return reply.body
        if reply.status == 401:
            message = f"the server at {place} does not take our token"
            raise NoAnswerError(message, is_sent=False, may_retry=True)
        if reply.status == 503 and secrets.compare_digest(reply.not_begun, call):
            said, reason = _said(reply.body)
            raise NoAnswerError(
                f"the server at {place} takes no call: {said}",
                is_sent=False,
                may_retry=True,
                retry_after=reply.retry_after,
                reason=reason,
            )
        message = f"the server at {place} answered with status {reply.status}"
        raise NoAnswerError(message, is_sent=reply.status not in _NOT_RUN)

    async def _replied(
        self,
        place: str,
        address: str,
        token: str,
        body: bytes,
        call: bytes,
        attachment: SentArchives | None,
    ) -> _Reply:
        stream = await self._connected(place, address)
        try:
            return await self._post(stream, token, body, call, attachment)
        except (OSError, h11.ProtocolError, TimeoutError, *BROKEN) as error:
            message = f"the server at {place} did not answer: {type(error).__name__}"
            raise NoAnswerError(message, is_sent=True) from error

    async def _connected(self, place: str, address: str) -> ByteStream:
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await anyio.connect_tcp(address or self._host, self.port)
                if not self._is_tls:
                    return stream
                # Nothing is sent before the server has shown a certificate for its name.
                try:
                    return await TLSStream.wrap(
                        stream,
                        hostname=self._host,
                        ssl_context=self._context(),
                        standard_compatible=False,
                    )
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await anyio.aclose_forcefully(stream)
                    raise
        except (OSError, TimeoutError, *BROKEN) as error:
            why = error.__cause__ or error
            said = getattr(why, "verify_message", "") or type(why).__name__
            message = f"no server answers at {place}: {said}"
            raise NoAnswerError(message, is_sent=False, may_retry=True) from error

    def _context(self) -> ssl.SSLContext:
        if self._tls is not None:
            return self._tls.context()
        if self._own is None:
            self._own = ssl.create_default_context()
        return self._own

    async def _post(
        self,
        stream: ByteStream,
        token: str,
        body: bytes,
        call: bytes,
        attachment: SentArchives | None,
    ) -> _Reply:
        link = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        more = 0 if attachment is None else attachment.size
        headers = [
            (b"Host", self.place.encode()),
            (b"Authorization", f"Bearer {token}".encode()),
            (b"Content-Type", b"application/json"),
            (b"Content-Length", str(len(body) + more).encode()),
            (b"Connection", b"close"),
            (CALL_HEADER, call),
        ]
        if attachment is not None:
            headers.append((MESSAGE_HEADER, str(len(body)).encode()))
        if self._is_tls:
            headers.append((b"Expect", b"100-continue"))
        parts = iter(()) if attachment is None else attachment.parts()
        async with stream:
            request = h11.Request(method="POST", target=self._path, headers=headers)
            if not self._is_tls and attachment is None:
                # A server that refuses early answers before it has read all.
                with contextlib.suppress(anyio.BrokenResourceError):
                    await stream.send(packet(link, request, body))
                return await self._answer(link, stream)
            early = None
            head = link.send(request) or b""
            if self._is_tls:
                early = await self._invited(link, stream, head)
                head = b""
            if early is None or not isinstance(early, h11.Response):
                with contextlib.suppress(anyio.BrokenResourceError):
                    await _send_all(link, stream, head, body, parts)
                if attachment is not None:
                    attachment.sent()
            return await self._answer(link, stream, early)

    async def _invited(
        self, link: h11.Connection, stream: ByteStream, head: bytes
    ) -> h11.Event | None:
        """Send a request's head, and wait until the server wants the body or answers without it.

        Since TLS 1.3 a server looks at a caller's certificate after the caller's own handshake, so
        a call that was sent with the head would be lost without saying whether it had begun.
        """
        try:
            await stream.send(head)
            with anyio.move_on_after(INVITE_SECONDS):
                while True:
                    event = link.next_event()
                    if event is h11.NEED_DATA:
                        link.receive_data(await stream.receive(CHUNK))
                    elif isinstance(event, h11.Event):
                        return event
        except (OSError, h11.ProtocolError, *BROKEN) as error:
            why = (
                "ended the connection before it got the call; it may want a certificate of its own"
            )
            if _is_unwelcome(error):
                why = "does not take our certificate"
            message = f"the server at {self.place} {why}"
            raise NoAnswerError(message, is_sent=False, may_retry=True) from error
        # It may not know the header; most wait no longer.
        return None

    async def _answer(
        self, link: h11.Connection, stream: ByteStream, early: h11.Event | None = None
    ) -> _Reply:
        reply, body = _Reply(), bytearray()
        while True:
            event, early = early or link.next_event(), None
            if event is h11.NEED_DATA:
                try:
                    link.receive_data(await stream.receive(CHUNK))
                except anyio.EndOfStream:
                    link.receive_data(b"")
            elif isinstance(event, h11.Response):
                reply.status = event.status_code
                headers = dict(event.headers)
                reply.not_begun = headers.get(NOT_BEGUN_HEADER, b"")
                wait = headers.get(b"retry-after", b"")
                if wait.isdigit() and len(wait) < 4:
                    reply.retry_after = min(float(wait), WAIT_MAX)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > FRAME_BYTES:
                    raise OSError("the answer is too long")
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                reply.body = bytes(body)
                return reply


def at_port(url: str, port: int) -> str:
    """Return the core's address with another port; 0 leaves it as it is.

    >>> at_port("http://core:8701/rpc", 9000)
    'http://core:9000/rpc'

    Raises:
        ValueError: it is no such address.
    """
    RpcClient(url, "")
    if not port:
        return url
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return urlunsplit(parts._replace(netloc=f"{host}:{port}"))


async def _send_all(
    link: h11.Connection,
    stream: ByteStream,
    head: bytes,
    body: bytes,
    parts: Iterable[bytes],
) -> None:
    await stream.send(head + (link.send(h11.Data(data=body)) or b""))
    left = iter(parts)
    while data := await anyio.to_thread.run_sync(next, left, b""):
        await stream.send(link.send(h11.Data(data=data)) or b"")
    try:
        link.send(h11.EndOfMessage())
    except h11.LocalProtocolError as error:
        # The body was not whole, so the server has begun nothing.
        raise NoAnswerError("the code changed while it was sent", is_sent=False) from error


def _is_unwelcome(error: BaseException) -> bool:
    """Whether the server ended the handshake for our certificate, or for want of one.

    Since TLS 1.3 a caller learns it after its own handshake.
    """
    why = error.__cause__ or error.__context__
    reason = str(getattr(why, "reason", "")) if isinstance(why, ssl.SSLError) else ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _said(body: bytes) -> tuple[str, str]:
    """Return why nothing was begun, as the server says it, and its reason as one word."""
    with contextlib.suppress(RpcError):
        answer = message(parse(body))
        if isinstance(answer, RpcResponse) and answer.error is not None:
            return str(answer.error)[:200], answer.error.reason
    return "it does not say why", ""
