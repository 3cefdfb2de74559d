"""From a checked origin to a connection: one look-up, every answer judged, then that address."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream

from skillhouse.net.net_errors import NetError
from skillhouse.net.policy import NetLimits, NetPolicy
from skillhouse.net.url import Target

ATTEMPTS = 4
"""Addresses of one name that are tried (as `ssrfguard`); who runs a name chooses their number."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Takes a name and a port and returns addresses as texts. Raises `OSError` when there are none."""


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver, in a thread."""
    answers = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in answers))


class Route:
    """Makes connections. No proxy of the environment is ever used."""

    def __init__(
        self, *, resolve: Resolve = system_resolve, tls: ssl.SSLContext | None = None
    ) -> None:
        """Take what looks names up, and what certificates to trust; the system's by default."""
        self._resolve = resolve
        self._tls = tls

    async def addresses(self, target: Target, policy: NetPolicy) -> tuple[str, ...]:
        """Look the host up, once, and return its addresses when each may be reached.

        INVARIANT: whoever calls this has checked the origin before: a look-up alone already
        reveals the name to a server of its owner.

        Raises:
            NetError: "resolve-failed", "timeout" or "address-refused".
        """
        addresses: Sequence[str] = (target.host,)
        if not target.is_address:
            try:
                with anyio.fail_after(policy.limits.connect_seconds):
                    addresses = await self._resolve(target.host, target.port)
            except TimeoutError as error:
                raise NetError("timeout", f"no answer about the name {target.host}") from error
            except (OSError, UnicodeError) as error:
                raise NetError("resolve-failed", f"no address for {target.host}") from error
        if not addresses:
            raise NetError("resolve-failed", f"no address for {target.host}")
        policy.check_addresses(target.host, addresses)
        return tuple(addresses)

    async def connect(
        self, target: Target, addresses: Sequence[str], limits: NetLimits, *, encrypted: bool
    ) -> ByteStream:
        """Connect to one of the addresses that `addresses` returned.

        Args:
            encrypted: Speak TLS, with a certificate of the target's host.

        Raises:
            NetError: "connect-failed" or "timeout".
        """
        try:
            with anyio.fail_after(limits.connect_seconds):
                stream = await _first(target, addresses[:ATTEMPTS])
                if not encrypted:
                    return stream
                return await self._encrypt(stream, target)
        except TimeoutError as error:
            message = f"no connection to {target.authority} in {limits.connect_seconds:g} s"
            raise NetError("timeout", message) from error

    async def _encrypt(self, stream: SocketStream, target: Target) -> ByteStream:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        try:
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
    """Return a connection to the first address that takes one."""
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
