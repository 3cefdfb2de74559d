"""`fetch`: one request under the policy, with its redirects, each checked like the first."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
from msgspec import Struct

from skillhouse.floor import tracing
from skillhouse.floor.tracing import (
    HTTP_METHOD,
    HTTP_RESENDS,
    HTTP_STATUS,
    SERVER_ADDRESS,
    SERVER_PORT,
    URL_SCHEME,
)
from skillhouse.net.connection import HOP_HEADERS, Exchange, Headers, ResponseHead, Route
from skillhouse.net.net_errors import METHODS, NetError
from skillhouse.net.policy import NetPolicy, Target, parse_url
from skillhouse.net.secret import filled

_REDIRECTS = (301, 302, 303, 307, 308)
_OF_CONNECTION = HOP_HEADERS | {"host", "content-length", "expect"}
_OURS = _OF_CONNECTION | {"accept-encoding"}
_NO_SECRETS = frozenset("accept accept-language user-agent content-type range if-range".split())
"""Headers that go along to another origin; whatever else a caller set may be a credential."""
_USER_AGENT = ("User-Agent", "skillhouse")


class HttpResponse(Struct, frozen=True, kw_only=True):
    status: int
    url: str
    """Where the answer is from, after redirects."""
    headers: Headers
    body: bytes
    hops: tuple[str, ...] = ()
    """The URLs before the last."""

    def header(self, name: str) -> str:
        """Return a header's values joined by commas; "" when there is none."""
        return ResponseHead(status=self.status, headers=self.headers).get(name.lower())


class Request(Struct, frozen=True, kw_only=True):
    method: str
    target: Target
    headers: Headers
    """With the names of secrets in them, not yet the secrets."""
    body: bytes


Take = Callable[[ResponseHead, Exchange], Awaitable[bytes]]
"""Reads the body of an answer that is no redirect."""


async def fetch(
    url: str,
    *,
    policy: NetPolicy,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    route: Route | None = None,
) -> HttpResponse:
    """Make a request and return the whole answer.

    Args:
        policy: What may be reached; without a rule that allows it, nothing.
        headers: `{{secret:NAME}}` in a value becomes a secret bound to the host.

    Raises:
        NetError: it is refused or failed; `code` says why.
    """
    limits = policy.limits
    if method not in METHODS:
        raise NetError("request-refused", f"expected one of {', '.join(METHODS)}, got {method!r}")
    if len(body) > limits.request_bytes:
        raise NetError("request-refused", f"a body of more than {limits.request_bytes} bytes")
    request = Request(
        method=method, target=parse_url(url), headers=checked_headers(headers or {}), body=body
    )

    async def whole(head: ResponseHead, exchange: Exchange) -> bytes:
        body = BoundedBody(head.get("content-encoding"), limits.body_bytes)
        async for chunk in exchange.chunks():
            body.add(chunk)
        return body.end()

    return await answered(request, policy, route or Route(), whole)


async def answered(request: Request, policy: NetPolicy, route: Route, take: Take) -> HttpResponse:
    """Make a request, follow its redirects, and have `take` read the body of the last answer."""
    seconds = policy.limits.seconds
    with tracing.span(request.method, kind="client") as span:
        if span.is_heard:
            span.set(_traits(request))
        try:
            with anyio.fail_after(seconds):
                response = await _follow(request, policy, route, take)
        except TimeoutError as error:
            message = f"no whole answer in {seconds:g} s: {request.target.url}"
            raise NetError("timeout", message) from error
        span.set({HTTP_STATUS: response.status, HTTP_RESENDS: len(response.hops)})
        if response.status >= 400:
            span.fail(str(response.status))
        return response


def _traits(request: Request) -> Mapping[str, str | int]:
    """Return the span's attributes: the origin only, since a path or query may hold a secret."""
    target = request.target
    return {
        HTTP_METHOD: request.method,
        URL_SCHEME: target.scheme,
        SERVER_ADDRESS: target.host,
        SERVER_PORT: target.port,
    }


def checked_headers(headers: Mapping[str, str], *, accepted: str = "") -> Headers:
    """Return what a caller sets and what is set here; NetError for what is not theirs to set."""
    names = {name.lower() for name in headers}
    if taken := sorted(names & _OURS):
        raise NetError("request-refused", f"the header `{taken[0]}` is not the caller's to set")
    if len(names) != len(headers):
        raise NetError("request-refused", "expected each header once")
    agent = () if "user-agent" in names else (_USER_AGENT,)
    return (*headers.items(), *agent, ("Accept-Encoding", accepted or ACCEPTED))


async def _follow(request: Request, policy: NetPolicy, route: Route, take: Take) -> HttpResponse:
    hops: list[str] = []
    seen: set[tuple[str, str]] = set()
    while True:
        try:
            policy.check_origin(request.target, request.method)
        except NetError as error:
            if not hops:
                raise
            message = f"{hops[-1]} leads to {request.target.url}: {error}"
            raise NetError("redirect-refused", f"{message}; ask for that URL by itself") from error
        head, body = await _once(request, policy, route, take)
        if not _leads_on(head):
            return HttpResponse(
                status=head.status,
                url=request.target.url,
                headers=tuple(h for h in head.headers if h[0].lower() != "set-cookie"),
                body=body,
                hops=tuple(hops),
            )
        hops.append(request.target.url)
        seen.add((request.method, request.target.url))
        request = _redirected(request, head)
        if (request.method, request.target.url) in seen:
            raise NetError("redirect-refused", f"a loop of redirects: {request.target.url}")
        if len(hops) > policy.limits.redirects:
            raise NetError("redirect-refused", f"more than {policy.limits.redirects} redirects")


async def _once(
    request: Request, policy: NetPolicy, route: Route, take: Take
) -> tuple[ResponseHead, bytes]:
    """Make one request; the body of a redirect is not read."""
    async with _opened(request, policy, route) as (head, exchange):
        if _leads_on(head):
            return head, b""
        return head, await take(head, exchange)


@asynccontextmanager
async def _opened(
    request: Request, policy: NetPolicy, route: Route
) -> AsyncIterator[tuple[ResponseHead, Exchange]]:
    target, limits = request.target, policy.limits
    sent = (f"{name}: {value}".encode() for name, value in request.headers)
    policy.check_secrets(target, (*sent, request.body))
    headers = _with_secrets(request, policy)
    addresses = await route.addresses(target, policy)
    encrypted = target.scheme == "https"
    stream = await route.connect(target, addresses, limits, encrypted=encrypted)
    try:
        exchange = Exchange(stream, limits, proxy=route.proxy(target))
        await exchange.send(request.method, target, headers, request.body)
        yield await exchange.head(), exchange
    finally:
        # What the other side still has to say is of no interest, nor is a polite end.
        await anyio.aclose_forcefully(stream)


@asynccontextmanager
async def open_stream(
    url: str,
    *,
    policy: NetPolicy,
    method: str,
    headers: Headers,
    body: bytes,
    route: Route | None = None,
) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes]]]:
    """Make one request under the policy and give the answer as it comes, however long it takes.

    A redirect is an answer like any other, and the body is as the server encoded it.

    Args:
        policy: What may be reached. Of its limits those of connections and heads hold.
        headers: As a client made them; those of one connection are left out.
    """
    target = parse_url(url)
    policy.check_origin(target, method)
    own = tuple(header for header in headers if header[0].lower() not in _OF_CONNECTION)
    request = Request(method=method, target=target, headers=own, body=body)
    async with _opened(request, policy, route or Route()) as (head, exchange):
        yield head, exchange.chunks()


def _with_secrets(request: Request, policy: NetPolicy) -> Headers:
    if not any("{{secret:" in value for _, value in request.headers):
        return request.headers
    bound = policy.bound_to(request.target)
    return tuple((k, filled(v, bound, request.target.host)) for k, v in request.headers)


def _leads_on(head: ResponseHead) -> bool:
    return head.status in _REDIRECTS and bool(head.get("location"))


def _redirected(request: Request, head: ResponseHead) -> Request:
    before = request.target
    try:
        target = parse_url(urljoin(before.url, head.get("location")))
    except (NetError, ValueError) as error:
        raise NetError(
            "redirect-refused", f"{before.url} redirects to a refused URL: {error}"
        ) from error
    if before.scheme == "https" and target.scheme == "http":
        raise NetError("redirect-refused", f"{before.url} leads from https to http")
    method, body, headers = request.method, request.body, request.headers
    if (head.status == 303 and method != "HEAD") or (
        head.status in (301, 302) and method == "POST"
    ):
        # As the Fetch standard has it ("HTTP-redirect fetch").
        method, body = "GET", b""
        headers = tuple(h for h in headers if h[0].lower() != "content-type")
    if target.origin != before.origin:
        headers = tuple(h for h in headers if h[0].lower() in _NO_SECRETS | {"accept-encoding"})
        headers = tuple(h for h in headers if "{{secret:" not in h[1])
    return Request(method=method, target=target, headers=headers, body=body)


ACCEPTED = "gzip, deflate"
_GZIP = 16 + zlib.MAX_WBITS


class BoundedBody:
    """A body that grows up to a bound, after decompression."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._encoding = encoding.strip().lower()
        self._unpacker: zlib._Decompress | None = None
        self._max_bytes = max_bytes
        self._taken = 0
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            message = f"expected an answer in {ACCEPTED} or plain, got {self._encoding[:40]!r}"
            raise NetError("encoding-unknown", message)
        self._taken += len(data)
        if self._taken > self._max_bytes:
            self._refuse()
        if self._encoding in ("", "identity"):
            self._kept += data
            return
        try:
            while data:
                data = self._unpack(data)
        except zlib.error as error:
            raise NetError("protocol-error", f"the answer is no {self._encoding}") from error

    def end(self) -> bytes:
        if self._unpacker is not None and not self._unpacker.eof:
            raise NetError("protocol-error", f"the {self._encoding} answer ends too early")
        return bytes(self._kept)

    def _unpack(self, data: bytes) -> bytes:
        if self._unpacker is None or self._unpacker.eof:
            self._unpacker = zlib.decompressobj(self._window(data))
        room = self._max_bytes - len(self._kept)
        self._kept += self._unpacker.decompress(data, room + 1)
        if len(self._kept) > self._max_bytes:
            self._refuse()
        return self._unpacker.unconsumed_tail or self._unpacker.unused_data

    def _window(self, data: bytes) -> int:
        if self._encoding != "deflate":
            return _GZIP
        # RFC 9110 8.4.1.2 means zlib's format, and some servers send it bare.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS

    def _refuse(self) -> None:
        raise NetError("too-large", f"the answer is larger than {self._max_bytes} bytes")
