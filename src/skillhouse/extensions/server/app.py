"""The application behind the guard: the pages, the API, `/mcp`, and style, script and icon."""

from __future__ import annotations

import gzip
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from skillhouse.answers.errors import UnservedErrorAnswer, problem_answer, unserved
from skillhouse.answers.json_form import members
from skillhouse.answers.service import HealthAnswer, ReadyAnswer, ReadyReason
from skillhouse.extensions.server.api.api_app import ApiApp
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.event_watch import EventWatch
from skillhouse.extensions.server.api.events import EventLog
from skillhouse.extensions.server.api.jobs import Jobs
from skillhouse.extensions.server.api.openapi import openapi_document
from skillhouse.extensions.server.api.problems import problem_of
from skillhouse.extensions.server.api.route_table import API_PATH, PROBLEM_JSON
from skillhouse.extensions.server.api.routes import ENDPOINTS
from skillhouse.extensions.server.companion.app_endpoints import METHODS as COMPANION_METHODS
from skillhouse.extensions.server.companion.app_endpoints import OPEN_PATHS as COMPANION_PATHS
from skillhouse.extensions.server.companion.app_endpoints import CompanionEndpoints
from skillhouse.extensions.server.companion.app_pushes import Pushes
from skillhouse.extensions.server.companion.companion_watch import CompanionWatch
from skillhouse.extensions.server.drain import (
    HEALTH_PATH,
    PROBE_PATHS,
    READY_PATH,
    Readiness,
)
from skillhouse.extensions.server.extension_parts import ExtensionPages, extension_endpoints
from skillhouse.extensions.server.forms import json_response
from skillhouse.extensions.server.guard import AccessKeys, RequestGuard, access_of
from skillhouse.extensions.server.operations_api import (
    OPERATIONS_METHODS,
    OPERATIONS_PATH,
    OperationsApi,
)
from skillhouse.extensions.server.pages.approval_pages import INBOX_PATH, ApprovalPages
from skillhouse.extensions.server.pages.audit_page import AuditPage
from skillhouse.extensions.server.pages.call_page import CallPage
from skillhouse.extensions.server.pages.clients_page import ClientsPage
from skillhouse.extensions.server.pages.device_answers import (
    DEVICE_PATH,
    DEVICE_TOKEN_PATH,
    DeviceAnswers,
)
from skillhouse.extensions.server.pages.edit_pages import (
    PREVIEW_METHODS,
    PREVIEW_PATH,
    EditPages,
)
from skillhouse.extensions.server.pages.export_page import ExportPage
from skillhouse.extensions.server.pages.object_links import ObjectLinks
from skillhouse.extensions.server.pages.package_pages import PackagePages
from skillhouse.extensions.server.pages.page_version import VersionedPages
from skillhouse.extensions.server.pages.policy_pages import PolicyPages
from skillhouse.extensions.server.pages.reference_page import ReferencePage
from skillhouse.extensions.server.pages.rehearse_page import RehearsePage
from skillhouse.extensions.server.pages.site import Render, Site
from skillhouse.extensions.server.pages.skill_page import SkillPage
from skillhouse.extensions.server.pages.skill_pages import SkillPages
from skillhouse.extensions.server.pages.stop_page import StopPage
from skillhouse.extensions.server.pages.suggest_page import SuggestPage
from skillhouse.extensions.server.pages.system_page import SystemPage
from skillhouse.extensions.server.pages.trust_page import TrustPage
from skillhouse.extensions.server.protected_resource import METADATA_PATHS, ProtectedResource
from skillhouse.extensions.server.rpc_endpoint import RPC_METHODS, RPC_PATH, RpcEndpoint
from skillhouse.extensions.server.status import StatusReader
from skillhouse.floor import (
    AmbiguousSkillError,
    InternalFaultError,
    SkillhouseError,
    UnknownSkillError,
    UnusableSkillError,
)
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.over_http import MCP_METHODS, MCP_PATH, McpOverHttp
from skillhouse.house import AccessScope, Skillhouse
from skillhouse.manage import OwnRoots

Beside = Callable[[], AbstractAsyncContextManager[None]]
SECRET_BYTES = 32
"""Random bytes of a token and of a session: too many to guess (RFC 6749, 10.10)."""
API = "/api/"

_STATIC = Path(__file__).resolve().parent / "static"
_TYPES = {
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
STATIC_TYPES = {
    f"/{file.relative_to(_STATIC).as_posix()}": _TYPES[file.suffix]
    for file in sorted(_STATIC.rglob("*"))
    if file.suffix in _TYPES
}
"""The files that are the same for everyone, and their media types."""


def make_app(
    house: Skillhouse,
    *,
    token: str,
    port: int,
    session: str | None = None,
    allowed: Sequence[str] = (),
    open_mcp: bool = False,
    read_only: str = "",
    beside: Beside | None = None,
    scheme: Literal["http", "https"] = "http",
    readiness: Readiness | None = None,
) -> RequestGuard:
    """Return the application of `http_app`, with the options of `serve`."""
    house.use_extensions()
    enforcement = house.services.enforcement
    ready = readiness or Readiness(house, enforcement.connections.servers)
    example = f"{scheme}://127.0.0.1:{port}/?token=…"
    reader = StatusReader(house, time.monotonic)
    # Pending calls name the page.
    house.approvals.page = house.approvals.page or f"{scheme}://127.0.0.1:{port}"
    resource = ProtectedResource(house)
    mcp = McpOverHttp(
        house,
        access=access_of,
        holds=lambda one: resource.holds(one) or enforcement.access_tokens.holds(one),
        needs_key=not open_mcp,
        challenge=resource.challenge,
    )
    events = EventLog()
    watch = EventWatch(house, reader, events)
    ready.at_drain(events.end)
    ready.at_drain(house.approvals.end_waits)
    endpoints = (*ENDPOINTS, *extension_endpoints(house))
    pushes = Pushes(
        house.config.state_directory, house.services.network.push, clock=enforcement.clock
    )
    companion = CompanionWatch(house, pushes, events)
    services = ApiServices(
        house,
        reader,
        tokens=enforcement.access_tokens,
        events=events,
        document=lambda: openapi_document(endpoints),
        clock=time.time,
        read_only=read_only,
    )
    watch.jobs = services.jobs.elsewhere
    api = ApiApp(services, endpoints)
    site = Site(services)
    services.reference = ReferencePage(site).content
    answers = _Answers(site, example=example, challenge=resource.challenge)
    stopping = StopPage(enforcement, site.page, services.proofs)
    inbox = ApprovalPages(
        house.approvals,
        enforcement.tokens,
        site.page,
        services.proofs,
        time.time,
        links=ObjectLinks(site).of_question,
        read_only=read_only,
    )
    routes = [
        *SkillPages(site).routes(),
        *SkillPage(site).routes(),
        *EditPages(site).routes(),
        *PackagePages(site).routes(),
        *stopping.routes(),
        # A client's page is below the same path as that of exports.
        *ExportPage(site).routes(),
        *ClientsPage(site).routes(),
        *RehearsePage(site).routes(),
        *SystemPage(site, stopping).routes(),
        *TrustPage(site).routes(),
        *AuditPage(site, house.audit_log, time.time).routes(),
        *CallPage(site, house.audit_log).routes(),
        *DeviceAnswers(house.approvals, enforcement.devices).routes(),
        *CompanionEndpoints(site, pushes).routes(),
        *inbox.routes(),
        *PolicyPages(site).routes(),
        *SuggestPage(site).routes(),
        *ExtensionPages(site).routes(),
        *site.routes(),
        *(Route(path, api) for path in (API_PATH, f"{API_PATH}/{{path:path}}")),
        *OperationsApi(reader, read_only=read_only).routes(),
        Route(MCP_PATH, mcp),
        *(Route(path, lambda _: _metadata(resource)) for path in METADATA_PATHS),
        Route(RPC_PATH, RpcEndpoint(house, reader, read_only=read_only)),
        Route(HEALTH_PATH, _alive),
        Route(READY_PATH, partial(_readiness, ready)),
        *answers.routes(),
    ]
    failures = (SkillhouseError, HTTPException, Exception)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(VersionedPages, site.version)],
        exception_handlers=dict.fromkeys(failures, answers.failed),
        lifespan=lambda _: _running(
            ready,
            {
                "mcp-ended": mcp.running,
                "events-ended": watch.running,
                "companion-ended": companion.running,
                "bot-ended": beside or nullcontext,
            },
            services.jobs,
        ),
    )
    app.router.redirect_slashes = False
    return RequestGuard(
        app,
        keys=AccessKeys(
            token=token,
            # INVARIANT: what a coding agent started gives no key that opens another server.
            session=session or (secrets.token_urlsafe(SECRET_BYTES) if read_only else ""),
            port=port,
            kept=enforcement.access_tokens,
            servers=enforcement.connections.servers,
            is_secure=scheme == "https",
        ),
        port=port,
        scheme=scheme,
        allowed=allowed,
        unauthorized=answers.unauthorized,
        # The page of the 401 needs its style; both files are the same for everyone.
        # A device's answer has its own signature.
        kept_paths=STATIC_TYPES,
        open_paths=frozenset((*_OPEN_PATHS, *((MCP_PATH,) if open_mcp else ()))),
        probe_paths=PROBE_PATHS,
        post_below=INBOX_PATH,
        methods_at={
            MCP_PATH: MCP_METHODS,
            OPERATIONS_PATH: OPERATIONS_METHODS,
            RPC_PATH: RPC_METHODS,
            PREVIEW_PATH: PREVIEW_METHODS,
            **COMPANION_METHODS,
        },
        problems_below=API_PATH,
        needed=_needed_scope,
        # Where no key is needed, none is asked about.
        resource=None if open_mcp else resource,
    )


_OPEN_PATHS = (
    *STATIC_TYPES,
    f"{API_PATH}/health",
    DEVICE_PATH,
    DEVICE_TOKEN_PATH,
    *COMPANION_PATHS,
)


@asynccontextmanager
async def _running(
    ready: Readiness, parts: Mapping[ReadyReason, Beside], jobs: Jobs
) -> AsyncIterator[None]:
    try:
        async with AsyncExitStack() as stack:
            for reason, running in parts.items():
                await stack.enter_async_context(ready.beside(reason, running()))
            yield
    finally:
        await in_thread(jobs.close)


def _alive(_: Request) -> Response:
    return json_response(HealthAnswer())


async def _readiness(ready: Readiness, _: Request) -> Response:
    reasons = await ready.reasons()
    value = ReadyAnswer(status="not-ready" if reasons else "ready", reasons=list(reasons))
    return json_response(value, 503 if reasons else 200)


def _metadata(resource: ProtectedResource) -> Response:
    if resource.settings is None:
        raise HTTPException(404)
    return Response(resource.metadata(), headers={"content-type": "application/json"})


def _needed_scope(method: str, path: str) -> AccessScope | None:
    """Return what a named token needs beside /api/v1: pages are the owner's."""
    if path in (RPC_PATH, MCP_PATH):
        return AccessScope.CALL
    if not path.startswith(API):
        return None
    return AccessScope.READ if method in ("GET", "HEAD") else AccessScope.MANAGE


SUCCESSORS = {
    "status": "/status",
    "skills": "/skills",
    "approvals": "/approvals",
    "calls": "/audit/records",
}
"""What is served below `API_PATH` in place of addresses below `API` (decision 0488)."""


def successor_of(path: str) -> str:
    """Return the address to use in place of one that is gone; empty for one that never was.

    >>> successor_of("/api/calls/01J9"), successor_of("/api/skills/a/b"), successor_of("/api/x")
    ('/api/v1/audit/records/01J9', '/api/v1/skills/a%2Fb', '')
    """
    name, _, rest = path.removeprefix(API).partition("/")
    if name not in SUCCESSORS:
        return ""
    below = f"/{quote(rest[:200], safe='')}" if rest else ""
    return f"{API_PATH}{SUCCESSORS[name]}{below}"


class _StaticFile:
    """A file that is the same for everyone, as it is and compressed; its tag is its digest."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.packed = gzip.compress(data, mtime=0)
        self.tag = f'W/"{hashlib.sha256(data).hexdigest()[:32]}"'


class _Answers:
    """Style, script and icon, and the answers to requests that failed."""

    def __init__(self, site: Site, *, example: str, challenge: Callable[[], str]) -> None:
        self._site = site
        self._challenge = challenge
        self._example = example
        self._files = {
            path: _StaticFile((_STATIC / path[1:]).read_bytes()) for path in STATIC_TYPES
        }

    def routes(self) -> list[Route]:
        return [Route(path, self.static) for path in STATIC_TYPES]

    def static(self, request: Request) -> Response:
        """Return a file, compressed where that is taken; nothing where the browser has its bytes.

        A browser asks each time (RFC 9111, `no-cache`): after an update no page has an older file.
        """
        path: str = request.scope["path"]
        file = self._files[path]
        headers = {
            "content-type": STATIC_TYPES[path],
            "cache-control": "no-cache",
            "etag": file.tag,
            "vary": "accept-encoding",
        }
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers=headers)
        taken = request.headers.get("accept-encoding", "").replace(",", " ").split()
        if "gzip" in taken:
            return Response(file.packed, headers={**headers, "content-encoding": "gzip"})
        return Response(file.data, headers=headers)

    async def unauthorized(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = "send the token that `skillhouse up` printed as `Authorization: Bearer TOKEN`"
        value = unserved("unauthorized", message)
        if scope["path"] == MCP_PATH:
            answer = json_response(value, 401)
            answer.headers["www-authenticate"] = self._challenge()
            await answer(scope, receive, send)
            return
        answer = self._error(Request(scope), 401, value, show=self._site.bare)
        answer.headers["www-authenticate"] = "Bearer"
        await answer(scope, receive, send)

    def failed(self, request: Request, error: Exception) -> Response:
        reference = ""
        status, code, message = 500, "broken", ""
        nearest: tuple[str, ...] = ()
        edit = ""
        if isinstance(error, HTTPException):
            status, code = error.status_code, "nothing-here"
            message = "there is nothing at this address"
        elif isinstance(error, UnusableSkillError):
            status, code, message = 404, "unusable-skill", str(error)
            edit = self._editable(error)
        elif isinstance(error, UnknownSkillError):
            status, code, message = 404, "unknown-skill", str(error)
            reference, nearest = error.reference, error.suggestions
        elif isinstance(error, AmbiguousSkillError):
            status, code, message = 300, "ambiguous-skill", str(error)
            reference, nearest = error.reference, error.candidates
        elif isinstance(error, SkillhouseError) and not isinstance(error, InternalFaultError):
            code, message = "house-unusable", str(error)
        else:
            message = str(problem_of(error))
        value = unserved(code, message, nearest)
        return self._error(request, status, value, reference, edit, show=self._site.page)

    def _editable(self, error: UnusableSkillError) -> str:
        """Return the SKILL.md of a person's own skill that a page can fix, or nothing."""
        with self._site.reader.using() as house:
            is_own = error.state == "broken" and OwnRoots(house).scope_of(error.path)
        return str(error.path) if is_own else ""

    def _error(
        self,
        request: Request,
        status: int,
        value: UnservedErrorAnswer,
        reference: str = "",
        edit: str = "",
        *,
        show: Render,
    ) -> Response:
        path = request.scope["path"]
        if path == API_PATH or path.startswith(f"{API_PATH}/"):
            problem = problem_answer(status, value.error.code, value.error.message)
            return json_response(problem, status, media=PROBLEM_JSON)
        if path.startswith(API):
            successor = successor_of(path) if status == 404 else ""
            if not successor:
                return json_response(value, status)
            text = "this address is gone since 0.2"
            problem = problem_answer(status, "address-gone", text, hint=f"use `{successor}`")
            return json_response(problem, status, media=PROBLEM_JSON)
        return show(
            request,
            "error.html",
            status,
            reference=reference,
            edit=edit,
            example=self._example,
            **members(value.error),
        )
