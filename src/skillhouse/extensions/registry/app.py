"""The application: routes, who may ask, and what becomes of errors."""

from __future__ import annotations

import errno
import functools
import sqlite3
from collections.abc import Awaitable, Callable

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skillhouse.extensions.registry.access import (
    AccessPolicy,
    Gatekeeper,
    RateLimitedError,
    RateLimits,
)
from skillhouse.extensions.registry.clawhub_routes import ClawHubRoutes
from skillhouse.extensions.registry.hosting import HostedRepository, HostingError
from skillhouse.extensions.registry.open_routes import OpenRoutes
from skillhouse.extensions.registry.operations import (
    NamedRoute,
    OperatorRoutes,
    RequestCounts,
    ServerParts,
    observed,
)
from skillhouse.extensions.registry.reads import ReadRoutes
from skillhouse.extensions.registry.replies import problem, refused
from skillhouse.extensions.registry.writes import WriteRoutes
from skillhouse.floor import InternalFaultError, as_error

Endpoint = Callable[[Request], Response]
REST_MAX = 1 << 20
REST_SECONDS = 2.0
"""How much of a refused body is passed over before the connection is closed, and how long."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; sandbox"),
)
"""On every answer: no page of ours runs anything, whatever a package says."""


def make_app(
    repository: HostedRepository,
    policy: AccessPolicy | None = None,
    parts: ServerParts | None = None,
) -> ASGIApp:
    """Return the application that answers for a registry."""
    gate = Gatekeeper(repository, policy or AccessPolicy(), RateLimits())
    parts = parts or ServerParts()
    reads, writes = ReadRoutes(repository), WriteRoutes(repository, gate, parts.exchange)
    pages, counts = OpenRoutes(repository), RequestCounts()
    operations = OperatorRoutes(repository, gate, counts, parts)
    clawhub = ClawHubRoutes(repository, reads)

    def read(path: str, endpoint: Endpoint) -> NamedRoute:
        @functools.wraps(endpoint)
        def checked(request: Request) -> Response:
            gate.reader(request)
            return endpoint(request)

        return NamedRoute(path, checked)

    app = Starlette(
        routes=[
            NamedRoute("/healthz", reads.health),
            NamedRoute("/readyz", operations.ready),
            NamedRoute("/metrics", operations.metrics),
            read("/registry.json", reads.repository),
            read("/index/{first}/{second}/{namespace}/{file}", reads.index),
            read("/blobs/sha256/{first}/{digest}", reads.blob),
            read("/attestations/sha256/{first}/{digest}", reads.attestation),
            read("/changes", reads.changes),
            read("/revocations.json", reads.revocations),
            _write("/revocations.json", writes.revocations, "PUT"),
            _write("/auth/oidc", writes.exchange, "POST"),
            read("/metadata/{file}", reads.metadata),
            read("/targets/{file:path}", reads.target),
            read("/", pages.page),
            read("/.well-known/agent-skills/index.json", pages.well_known),
            read("/{namespace}/.well-known/agent-skills/index.json", pages.well_known),
            read("/api/v1/search", clawhub.search),
            read("/api/v1/skills/{slug}", clawhub.skill),
            read("/api/v1/skills/{slug}/versions/{version}", clawhub.version),
            read("/api/v1/resolve", clawhub.resolve),
            read("/api/v1/download", clawhub.download),
            read("/skills", reads.skills),
            read("/skills/{name}", reads.skill),
            read("/skills/{name}/versions", reads.versions),
            read("/skills/{name}/{version}", reads.version),
            _write("/skills/{name}/{version}", writes.publish, "PUT"),
            _write("/skills/{name}/channels/{channel}", writes.channel, "PUT"),
            *(
                _write(f"/skills/{{name}}/{{version}}/{verb}", writes.state, "POST")
                for verb in ("yank", "unyank", "revoke")
            ),
        ],
        exception_handlers={
            HostingError: _refused,
            HTTPException: _nothing_here,
            Exception: _broken,
        },
    )
    app.router.redirect_slashes = False
    return observed(_with_headers(app), counts, parts.log)


def _write(
    path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str
) -> NamedRoute:
    return NamedRoute(path, endpoint, methods=[method])


def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, RateLimitedError):
        return problem(error.code, str(error), headers={"retry-after": str(error.seconds)})
    if not isinstance(error, HostingError):
        raise error
    return refused(error)


def _nothing_here(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    headers = (error.headers or {}) if isinstance(error, HTTPException) else {}
    return problem(
        "bad-request", "there is nothing at this address", status=status, headers=headers
    )


def _broken(_: Request, error: Exception) -> Response:
    if is_disk_full(error):
        return problem("storage", "no space left on the registry's disk: nothing was changed")
    fault = as_error(error)
    report = f", report `{fault.report}`" if isinstance(fault, InternalFaultError) else ""
    text = f"something went wrong here{report}; the log says what"
    return problem("bad-request", text, status=500)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that a disk or a quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def _with_headers(app: ASGIApp) -> ASGIApp:
    """Return the application with our headers on each answer, and an end to each request."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        body = _RequestBody(receive)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                rate = scope.get("state", {}).get("rate_limit")
                own = [(b"ratelimit", rate.encode())] if rate else []
                if scope["method"] in ("PUT", "POST") and not await body.is_over(scope):
                    own.append((b"connection", b"close"))
                message["headers"] = [*message.get("headers", ()), *HEADERS, *own]
            await send(message)

        await app(scope, body.receive, send_with_headers)

    return answer


class _RequestBody:
    """What comes with a request, so that a refused one ends with an answer that is read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_over = False
        self._is_begun = False

    async def receive(self) -> Message:
        self._is_begun = True
        message = await self._receive()
        self._is_over = not message.get("more_body", False)
        return message

    async def is_over(self, scope: Scope) -> bool:
        """Pass over the rest of a body that is not long; False where there is more.

        A client that is still sending when the connection closes may never read the answer.
        """
        if not self._is_begun and any(name == b"expect" for name, _ in scope["headers"]):
            # It has sent nothing yet, and waits for us.
            return False
        left = REST_MAX
        with anyio.move_on_after(REST_SECONDS):
            while not self._is_over and left > 0:
                left -= len((await self.receive()).get("body", b""))
        return self._is_over
