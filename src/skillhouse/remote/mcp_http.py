"""The SDK's way over HTTP to an MCP server: under the network policy, with a bound on an answer.

The SDK's own client takes proxies from the environment and connects to whatever a name leads to.
It also bounds an event of a stream and reads a JSON body to its end, whatever comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client

from skillhouse.floor.structs import replace
from skillhouse.net import HostRule, NetError, NetPolicy, Route, Target, open_stream, parse_url
from skillhouse.remote.mcp_entry import McpServer

ANSWER_MAX = 24 * 1_048_576
"""Bytes of one answer: a file of 16 MiB (SEP-2640, "Limits") as base64, in its message."""

SILENT_SECONDS = 30.0
"""How long a server may say nothing; the whole answer has a bound of its own, `ANSWER_SECONDS`."""

LOOPBACK = ("127.0.0.0/8", "::1/128")
PRIVATE = (*LOOPBACK, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
"""Networks that `allow_private` opens (RFC 1918, RFC 6598, RFC 4193). Link-local addresses, where
clouds offer the machine's credentials, need a rule in `[net]`."""


class TooLargeError(httpx2.StreamError):
    """An answer is over `ANSWER_MAX`; of this kind, since the SDK makes an error of it that ends
    the request and not the program."""


@asynccontextmanager
async def bounded_http(
    server: McpServer, policy: NetPolicy | None = None, route: Route | None = None
) -> AsyncIterator[Any]:
    """Give the SDK's client the streams of a server at an address.

    Args:
        server: Named by the operator: its own origin may be reached, and nothing else.
        policy: Whose private networks, secrets and rules for plain http hold.
    """
    own = policy_for(server, policy or NetPolicy())
    async with (
        httpx2.AsyncClient(
            transport=_Transport(server.label, own, route or Route()),
            # What is packed may be a thousand times as large when it is unpacked.
            headers={"accept-encoding": "identity"},
            # Neither a proxy nor a certificate of the environment.
            trust_env=False,
            timeout=SILENT_SECONDS,
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=ANSWER_MAX
        ) as streams,
    ):
        yield streams


def policy_for(server: McpServer, policy: NetPolicy) -> NetPolicy:
    """Return what a server's connection may reach: its own origin, which must be public."""
    target = parse_url(server.url)
    private = (*policy.private, *(PRIVATE if server.allow_private else ()))
    if target.scheme == "http" and not policy.allows(target, "POST"):
        if not _is_loopback(target):
            raise NetError(
                "url-refused",
                f"plain http to {target.host}: use https, or allow `POST {target.origin}` in "
                "`hosts` of `[net]`",
            )
        # No other machine can read the traffic as long as the name resolves to this one.
        private = (*policy.private, *(LOOPBACK if server.allow_private else ()))
    rule = HostRule(host=target.host, scheme=target.scheme, port=target.port, methods=None)
    limits = replace(policy.limits, head_seconds=SILENT_SECONDS)
    return replace(policy, hosts=(rule,), private=private, limits=limits)


def _is_loopback(target: Target) -> bool:
    host = target.host
    return host in ("localhost", "::1") or (target.is_address and host.startswith("127."))


class _Transport(httpx2.AsyncBaseTransport):
    """Sends each request over a connection of its own that the policy allows."""

    def __init__(self, label: str, policy: NetPolicy, route: Route) -> None:
        self._label = label
        self._policy = policy
        self._route = route

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        held = AsyncExitStack()
        try:
            head, chunks = await held.enter_async_context(
                open_stream(
                    str(request.url),
                    policy=self._policy,
                    method=request.method,
                    headers=tuple(request.headers.items()),
                    body=await request.aread(),
                    route=self._route,
                )
            )
        except NetError as error:
            raise httpx2.ConnectError(self._said(error), request=request) from error
        encoding = head.get("content-encoding") or "identity"
        if encoding.lower() != "identity":
            await held.aclose()
            raise TooLargeError(f"expected an answer as it is, got one in {encoding[:40]!r}")
        return httpx2.Response(
            head.status,
            headers=list(head.headers),
            stream=_BoundedStream(chunks, ANSWER_MAX, held),
            request=request,
        )

    def _said(self, error: NetError) -> str:
        if error.code != "address-refused":
            return str(error)
        # The way out comes first: the end of a long reason is cut.
        return f"`{self._label}` needs `allow_private = true` in `[[mcp_servers]]`: {error}"


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of a body, up to a bound.

    That of a stream of events counts, too: nothing that we ask for is said in more.
    """

    def __init__(self, chunks: AsyncIterator[bytes], max_bytes: int, held: AsyncExitStack) -> None:
        self._chunks = chunks
        self._max_bytes = max_bytes
        self._held = held

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        while True:
            try:
                with anyio.fail_after(SILENT_SECONDS):
                    part = await anext(self._chunks, None)
            except (NetError, TimeoutError) as error:
                message = str(error) or f"the server was silent for {SILENT_SECONDS:g} s"
                raise httpx2.ReadError(message) from error
            if part is None:
                return
            seen += len(part)
            if seen > self._max_bytes:
                raise TooLargeError(f"the answer is larger than {self._max_bytes} bytes")
            yield part

    async def aclose(self) -> None:
        await self._held.aclose()
