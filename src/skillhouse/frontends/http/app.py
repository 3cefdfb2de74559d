"""The application behind the guard: pages, the same as JSON, the inbox, `/mcp`, style and icon."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from skillhouse.floor import (
    AmbiguousSkillError,
    SkillhouseError,
    UnknownSkillError,
    UnusableSkillError,
)
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.http.api.api_app import ApiApp
from skillhouse.frontends.http.api.api_services import ApiServices
from skillhouse.frontends.http.api.event_watch import EventWatch
from skillhouse.frontends.http.api.events import EventLog
from skillhouse.frontends.http.api.jobs import Jobs
from skillhouse.frontends.http.api.problems import problem_value
from skillhouse.frontends.http.api.route_table import API_PATH, PROBLEM_JSON
from skillhouse.frontends.http.api.routes import ENDPOINTS, document
from skillhouse.frontends.http.call_page import CallPage
from skillhouse.frontends.http.guard import AccessKeys, RequestGuard
from skillhouse.frontends.http.inbox import (
    DEVICE_PATH,
    DEVICE_TOKEN_PATH,
    INBOX_PATH,
    ApprovalInbox,
    StopPage,
    json_response,
)
from skillhouse.frontends.http.operations_api import (
    OPERATIONS_METHODS,
    OPERATIONS_PATH,
    OperationsApi,
)
from skillhouse.frontends.http.pages import Pages
from skillhouse.frontends.http.rpc_endpoint import RPC_METHODS, RPC_PATH, RpcEndpoint
from skillhouse.frontends.http.status import (
    StatusReader,
    detail_value,
    error_value,
    skills_value,
    status_value,
)
from skillhouse.frontends.mcp.over_http import MCP_METHODS, MCP_PATH, McpOverHttp
from skillhouse.frontends.presentation.code_report import facts_rows
from skillhouse.runtime import EnforcementServices, Skillhouse
from skillhouse.runtime.access_tokens import AccessScope

SECRET_BYTES = 32
"""Random bytes of a token and of a session: too many to guess (RFC 6749, 10.10)."""
API = "/api/"

_BROKEN = "something went wrong; the terminal where `skillhouse up` runs says what"
_STATIC = Path(__file__).resolve().parent / "static"
_STATIC_TYPES = {"/style.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml"}


def make_app(
    house: Skillhouse,
    *,
    token: str,
    port: int,
    session: str | None = None,
    allowed: Sequence[str] = (),
    open_mcp: bool = False,
    read_only: str = "",
) -> RequestGuard:
    """Return the application of `http_app`, with the options of `serve`."""
    enforcement = house.services.enforcement
    example = f"http://127.0.0.1:{port}/?token=…"
    site = _Site(StatusReader(house, time.monotonic), enforcement, example=example)
    # Pending calls name the page.
    house.approvals.page = house.approvals.page or f"http://127.0.0.1:{port}"
    inbox = ApprovalInbox(house.approvals, enforcement, site.page, time.time, read_only=read_only)
    mcp = McpOverHttp(house, needs_key=not open_mcp)
    events = EventLog()
    watch = EventWatch(house, site.reader, events)
    services = ApiServices(
        house,
        site.reader,
        tokens=enforcement.access_tokens,
        events=events,
        document=document,
        clock=time.time,
        read_only=read_only,
    )
    api = ApiApp(services, ENDPOINTS)
    routes = [
        Route("/", site.status),
        Route("/skills/{reference:path}", site.skill),
        Route("/api/status", site.api_status),
        Route("/api/skills", site.api_skills),
        Route("/api/skills/{reference:path}", site.api_skill),
        *(Route(path, api) for path in (API_PATH, f"{API_PATH}/{{path:path}}")),
        *OperationsApi(house, read_only=read_only).routes(),
        *site.stopping.routes(),
        *CallPage(house.audit_log, site.page).routes(),
        *inbox.routes(),
        Route(MCP_PATH, mcp),
        Route(RPC_PATH, RpcEndpoint(house, site.reader, read_only=read_only)),
        *(Route(path, site.static) for path in _STATIC_TYPES),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers=dict.fromkeys((SkillhouseError, HTTPException, Exception), site.failed),
        lifespan=lambda _: _running(mcp, watch, services.jobs),
    )
    app.router.redirect_slashes = False
    return RequestGuard(
        app,
        keys=AccessKeys(
            token=token,
            session=session or "",
            port=port,
            kept=enforcement.access_tokens,
        ),
        port=port,
        allowed=allowed,
        unauthorized=site.unauthorized,
        # The page of the 401 needs its style; both files are the same for everyone.
        # A device's answer has its own signature.
        open_paths=frozenset((*_OPEN_PATHS, *((MCP_PATH,) if open_mcp else ()))),
        post_below=INBOX_PATH,
        methods_at={
            MCP_PATH: MCP_METHODS,
            OPERATIONS_PATH: OPERATIONS_METHODS,
            RPC_PATH: RPC_METHODS,
        },
        problems_below=API_PATH,
        needed=_needed_scope,
    )


_OPEN_PATHS = (*_STATIC_TYPES, f"{API_PATH}/health", DEVICE_PATH, DEVICE_TOKEN_PATH)


@asynccontextmanager
async def _running(mcp: McpOverHttp, watch: EventWatch, jobs: Jobs) -> AsyncIterator[None]:
    try:
        async with mcp.running(), watch.running():
            yield
    finally:
        await in_thread(jobs.close)


def _needed_scope(method: str, path: str) -> AccessScope | None:
    """Return what a named token needs beside /api/v1: pages and `/mcp` are the owner's."""
    if path == RPC_PATH:
        return AccessScope.CALL
    if not path.startswith(API):
        return None
    return AccessScope.READ if method in ("GET", "HEAD") else AccessScope.MANAGE


class _Site:
    """The endpoints: plain functions, which Starlette runs in threads."""

    def __init__(
        self, reader: StatusReader, enforcement: EnforcementServices, *, example: str
    ) -> None:
        self.reader = reader
        self.stopping = StopPage(enforcement, self.page)
        self._example = example
        self._pages = Pages()
        self._files = {path: (_STATIC / path[1:]).read_bytes() for path in _STATIC_TYPES}

    def status(self, request: Request) -> Response:
        asked = request.query_params
        query, page = asked.get("q", "").strip(), _page_number(asked.get("page"))
        status = self.reader.status(query=query, page=page)
        stopped, csrf_token = self.stopping.reason(), self.stopping.csrf_token
        return self.page(
            "status.html", status=status, scan=status.scan, stopped=stopped, csrf_token=csrf_token
        )

    def skill(self, request: Request) -> Response:
        detail = self.reader.detail(request.path_params["reference"])
        rows = facts_rows(detail.code) if detail.code else []
        return self.page("skill.html", detail=detail, skill=detail.skill, code_rows=rows)

    def api_status(self, _: Request) -> Response:
        return json_response(status_value(self.reader.status()))

    def api_skills(self, _: Request) -> Response:
        return json_response(skills_value(self.reader.scan()))

    def api_skill(self, request: Request) -> Response:
        return json_response(detail_value(self.reader.detail(request.path_params["reference"])))

    def static(self, request: Request) -> Response:
        path: str = request.scope["path"]
        return Response(self._files[path], headers={"content-type": _STATIC_TYPES[path]})

    async def unauthorized(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = "send the token that `skillhouse up` printed as `Authorization: Bearer TOKEN`"
        answer = self._error(scope["path"], 401, error_value("unauthorized", message))
        answer.headers["www-authenticate"] = "Bearer"
        await answer(scope, receive, send)

    def failed(self, request: Request, error: Exception) -> Response:
        path, reference = request.scope["path"], ""
        status, code, message = 500, "broken", _BROKEN
        nearest: tuple[str, ...] = ()
        if isinstance(error, HTTPException):
            status, code = error.status_code, "nothing-here"
            message = "there is nothing at this address"
        elif isinstance(error, UnusableSkillError):
            status, code, message = 404, "unusable-skill", str(error)
        elif isinstance(error, UnknownSkillError):
            status, code, message = 404, "unknown-skill", str(error)
            reference, nearest = error.reference, error.suggestions
        elif isinstance(error, AmbiguousSkillError):
            status, code, message = 300, "ambiguous-skill", str(error)
            reference, nearest = error.reference, error.candidates
        elif isinstance(error, SkillhouseError):
            code, message = "house-unusable", str(error)
        return self._error(path, status, error_value(code, message, nearest), reference)

    def _error(
        self, path: str, status: int, value: dict[str, Any], reference: str = ""
    ) -> Response:
        if path == API_PATH or path.startswith(f"{API_PATH}/"):
            found = value["error"]
            problem = problem_value(status, found["code"], found["message"])
            return json_response(problem, status, media=PROBLEM_JSON)
        if path.startswith(API):
            return json_response(value, status)
        return self.page(
            "error.html", status, reference=reference, example=self._example, **value["error"]
        )

    def page(self, template: str, status_code: int = 200, /, **values: Any) -> Response:
        return HTMLResponse(self._pages.render(template, **values), status_code)


def _page_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else 1
