"""A server on a port, which a signal ends.

The time for requests' headers is limited, since anyone who reaches the port can open connections
before a key is required. Each costs a descriptor, and without any the audit log cannot be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from skillhouse.floor.machine import signals_to

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp, Receive, Scope, Send

    from skillhouse.extensions.server.drain import DrainControl

HOST = "127.0.0.1"
BACKLOG = 128
HEAD_MAX = 16 * 1024
"""Bytes of a request's line and headers together; longer ones are answered with 400 by uvicorn."""
GRACE_SECONDS = 0.5
"""How long a client may take to read its answer after the end was requested."""

CUT_SECONDS = 2
"""How long a call that outlasts a drain may take to end once it is cancelled."""


class Certificate(NamedTuple):
    """The files in PEM with which a server has TLS."""

    file: Path
    """The certificate, then those of its issuers."""
    key: Path

    def check(self) -> None:
        """Raise OSError where the files cannot be used; else a server would say so too late."""
        for path in self:
            path.stat()  # An error of OpenSSL does not name the file.
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.file,
                self.key,
                # Without this OpenSSL asks at the terminal, and waits.
                password=lambda: b"",
            )
        except ssl.SSLError as error:
            text = "no certificate with the key that belongs to it and has no password"
            raise OSError(errno.EINVAL, text, str(self.file)) from error


def make_server(
    app: ASGIApp,
    *,
    lifespan: Literal["on", "off"],
    certificate: Certificate | None = None,
    drain: DrainControl | None = None,
    drain_seconds: float = 0,
) -> Server:
    """Return a server of an application, with our limits. With `drain`, SIGTERM lets requests that
    run go on for so many seconds."""
    return Server(
        uvicorn.Config(
            refuse_two_lengths(app),
            http=header_timeout_protocol(),
            loop="asyncio",
            ws="none",
            lifespan=lifespan,
            ssl_certfile=certificate and certificate.file,
            ssl_keyfile=certificate and str(certificate.key),
            # No access log, since requests have the token.
            access_log=False,
            log_config=None,
            log_level="error",
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEAD_MAX,
        ),
        drain if drain_seconds > 0 else None,
        drain_seconds,
    )


def refuse_two_lengths(app: ASGIApp) -> ASGIApp:
    """Return an application that refuses requests of two lengths, and ends their connections.

    A proxy in front may go by `Content-Length` where we go by `Transfer-Encoding`, and then takes
    a part of one client's body for the request of another (RFC 9112, 6.1: "ought to be handled as
    an error").
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return answer


def bound(port: int, host: str = HOST) -> socket.socket:
    """Return a socket that listens on `port`, 0 for any free one.

    Raises:
        OSError: the port cannot be bound; the text has the remedy.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, error.strerror or str(error))
        raise OSError(error.errno, advice, f"{host}:{port}") from error
    # Connections inherit it. asyncio leaves it out where the socket does not name its protocol, and
    # the body of each answer then waits 40 ms for the client to acknowledge the head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


_ADVICE = {
    errno.EADDRINUSE: "port taken, choose another with --port, or --port 0 for any free one",
    errno.EADDRNOTAVAIL: "no address of this machine, choose another with --host",
    errno.EACCES: "port reserved for the system, choose one from 1024 with --port",
}


class Server(uvicorn.Server):
    """A server for which a signal is a regular end."""

    def __init__(
        self,
        config: uvicorn.Config,
        drain: DrainControl | None = None,
        drain_seconds: float = 0,
    ) -> None:
        """With `drain`, SIGTERM is one that waits for what runs."""
        super().__init__(config)
        self._drain = drain
        self._drain_seconds = drain_seconds
        self._has_begun = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the end; a second signal, and SIGINT, wait for nothing."""
        if sig == signal.SIGTERM and self._drain is not None and not self._drain.is_draining:
            self._drain.drain()
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Return whether it ends now."""
        is_ended = await super().on_tick(counter)
        if self._drain is None or not self._drain.is_draining:
            return is_ended
        if not self._has_begun:
            self._has_begun = True
            self._drain.begin()
        is_over = self._drain.is_over(self._drain_seconds)
        if is_over:
            # What has not ended by now is cut off, and has its record.
            self.config.timeout_graceful_shutdown = CUT_SECONDS
        return is_ended or is_over

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, without waiting for clients that do not read."""
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cut_off)
        await super().shutdown(sockets)

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone, since uvicorn raises them again at the end."""
        yield

    def ended_by_signals(self) -> AbstractContextManager[None]:
        """End on SIGINT and SIGTERM, from the announcement on."""
        return signals_to(self.handle_exit)


HEAD_SECONDS = 10.0
"""Limit from the connection, or the last answer, to the whole head of the next request."""
WAITING_MAX = 256
"""Connections without a running request; beyond that, the one that waits longest is closed."""


def header_timeout_protocol(
    *, seconds: float = HEAD_SECONDS, most: int = WAITING_MAX
) -> type[H11Protocol]:
    """Return uvicorn's protocol for one listener, with these limits."""
    waiting: dict[H11Protocol, asyncio.TimerHandle] = {}

    class HeaderTimeoutProtocol(H11Protocol):
        def connection_made(
            self,
            transport: asyncio.Transport,  # type: ignore[override] # Narrower, as uvicorn's is.
        ) -> None:
            super().connection_made(transport)
            # asyncio does so only for sockets that were made with the protocol's number. Without,
            # the second half of each answer waits 40 ms for the client's delayed ACK (RFC 9293,
            # 3.8.6.3).
            connected = transport.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_busy():
                self._wait_no_more()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self._is_busy() and not self.transport.is_closing():
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def _is_busy(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is not None and not cycle.response_complete

        def _wait(self) -> None:
            self._wait_no_more()
            # Data that arrives meanwhile does not extend the time.
            waiting[self] = self.loop.call_later(seconds, self.transport.abort)
            if len(waiting) > most:
                longest = next(iter(waiting))
                waiting.pop(longest).cancel()
                longest.transport.abort()

        def _wait_no_more(self) -> None:
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

    return HeaderTimeoutProtocol
