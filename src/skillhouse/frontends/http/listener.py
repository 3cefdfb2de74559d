"""Listens until a signal arrives: by default on this machine only.

The time for requests' headers is limited, since anyone who reaches the port can open connections
before a key is required. Each costs a descriptor, and without any the audit log cannot be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from skillhouse.floor import SkillError
from skillhouse.frontends.http.app import SECRET_BYTES, make_app
from skillhouse.runtime import Skillhouse
from skillhouse.runtime.desktop import open_on_desktop

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
BACKLOG = 128
HEAD_MAX = 16 * 1024
"""Bytes of a request's line and headers together; longer ones are answered with 400 by uvicorn."""
GRACE_SECONDS = 0.5
"""How long a client may take to read its answer after the end was requested."""


def listen(
    house: Skillhouse,
    *,
    port: int,
    announce: Callable[[str], None],
    host: str = HOST,
    allowed: Sequence[str] = (),
    open_mcp: bool = False,
    read_only: str = "",
    opens: bool = False,
) -> int:
    """Serve as `skillhouse.frontends.http.serve` describes."""
    with bound(port, host) as listener:
        port = listener.getsockname()[1]
        if open_mcp and not ipaddress.ip_address(host).is_loopback:
            # INVARIANT: without the token only programs of this machine are answered, whatever the
            # address of the listener.
            raise OSError(errno.EPERM, "--no-auth is for this machine only", f"{host}:{port}")
        name = HOST if ipaddress.ip_address(host).is_unspecified else host
        place = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        # DNS rebinding needs a name, so a literal address may be a Host.
        allowed = (*allowed, place) if name != HOST else tuple(allowed)
        token = secrets.token_urlsafe(SECRET_BYTES)
        app = make_app(
            house, token=token, port=port, allowed=allowed, open_mcp=open_mcp, read_only=read_only
        )
        server = Server(
            uvicorn.Config(
                app,
                http=header_timeout_protocol(),
                loop="asyncio",
                ws="none",
                lifespan="on",
                # No access log, since requests have the token.
                access_log=False,
                log_config=None,
                log_level="error",
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=HEAD_MAX,
            )
        )
        with server.ended_by_signals():
            announce(f"http://{place}/?token={token}")
            # A pipe is buffered, and its reader waits for this line.
            sys.stdout.flush()
            if opens:
                open_page(f"http://{place}/?token={app.keys.one_time()}", house)
            server.run(sockets=[listener])
    return 0


def open_page(address: str, house: Skillhouse) -> None:
    """Open an address in the browser; where there is none, the printed one is enough."""
    try:
        open_on_desktop(address, project=house.services.project)
    except SkillError as error:
        logger.warning("%s", error)


def bound(port: int, host: str = HOST) -> socket.socket:
    """Return a socket that listens on `port`, 0 for any free one.

    Raises:
        OSError: the port cannot be bound; the text has the remedy.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, error.strerror or str(error))
        raise OSError(error.errno, advice, f"{host}:{port}") from error


_ADVICE = {
    errno.EADDRINUSE: "port taken, choose another with --port, or --port 0 for any free one",
    errno.EADDRNOTAVAIL: "no address of this machine, choose another with --host",
    errno.EACCES: "port reserved for the system, choose one from 1024 with --port",
}


class Server(uvicorn.Server):
    """A server for which a signal is a regular end."""

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

    @contextlib.contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """End on SIGINT and SIGTERM, from the announcement on; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


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
