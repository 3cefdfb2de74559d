"""The application behind the guard: pages, the same as JSON, the inbox, `/mcp`, style and icon."""

from __future__ import annotations

import itertools
import json
import secrets
import shlex
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import skillhouse
from skillhouse.floor import (
    AmbiguousSkillError,
    SkillhouseError,
    UnknownSkillError,
    UnusableSkillError,
)
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
from skillhouse.frontends.http.status import (
    PAGE_SKILLS,
    SkillVerdict,
    StatusReader,
    detail_value,
    error_value,
    skills_value,
    status_value,
)
from skillhouse.frontends.mcp.over_http import MCP_METHODS, MCP_PATH, McpOverHttp
from skillhouse.frontends.presentation.code_report import facts_rows
from skillhouse.frontends.presentation.text import cut, one_line, shown
from skillhouse.runtime import EnforcementServices, Skillhouse

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
) -> ASGIApp:
    """Return the application of `http_app`, with the options of `serve`."""
    enforcement = house.services.enforcement
    example = f"http://127.0.0.1:{port}/?token=…"
    site = _Site(StatusReader(house, time.monotonic), enforcement, example=example)
    # Pending calls name the page.
    house.approvals.page = house.approvals.page or f"http://127.0.0.1:{port}"
    inbox = ApprovalInbox(house.approvals, enforcement, site.page, time.time, read_only=read_only)
    mcp = McpOverHttp(house, needs_key=not open_mcp)
    routes = [
        Route("/", site.status),
        Route("/skills/{reference:path}", site.skill),
        Route("/api/status", site.api_status),
        Route("/api/skills", site.api_skills),
        Route("/api/skills/{reference:path}", site.api_skill),
        *OperationsApi(house, read_only=read_only).routes(),
        *site.stopping.routes(),
        *CallPage(house.audit_log, site.page).routes(),
        *inbox.routes(),
        Route(MCP_PATH, mcp),
        *(Route(path, site.static) for path in _STATIC_TYPES),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers=dict.fromkeys((SkillhouseError, HTTPException, Exception), site.failed),
        lifespan=lambda _: mcp.running(),
    )
    app.router.redirect_slashes = False
    return RequestGuard(
        app,
        keys=AccessKeys(
            token=token, session=session or secrets.token_urlsafe(SECRET_BYTES), port=port
        ),
        port=port,
        allowed=allowed,
        unauthorized=site.unauthorized,
        # The page of the 401 needs its style; both files are the same for everyone.
        # A device's answer has its own signature.
        open_paths=frozenset(
            {*_STATIC_TYPES, DEVICE_PATH, DEVICE_TOKEN_PATH, *((MCP_PATH,) if open_mcp else ())}
        ),
        post_below=INBOX_PATH,
        methods_at={MCP_PATH: MCP_METHODS, OPERATIONS_PATH: OPERATIONS_METHODS},
    )


class _Site:
    """The endpoints: plain functions, which Starlette runs in threads."""

    def __init__(
        self, reader: StatusReader, enforcement: EnforcementServices, *, example: str
    ) -> None:
        self._reader = reader
        self.stopping = StopPage(enforcement, self.page)
        self._example = example
        self._pages = Pages()
        self._files = {path: (_STATIC / path[1:]).read_bytes() for path in _STATIC_TYPES}

    def status(self, request: Request) -> Response:
        asked = request.query_params
        query, page = asked.get("q", "").strip(), _page_number(asked.get("page"))
        status = self._reader.status(query=query, page=page)
        stopped, csrf_token = self.stopping.reason(), self.stopping.csrf_token
        return self.page(
            "status.html", status=status, scan=status.scan, stopped=stopped, csrf_token=csrf_token
        )

    def skill(self, request: Request) -> Response:
        detail = self._reader.detail(request.path_params["reference"])
        rows = facts_rows(detail.code) if detail.code else []
        return self.page("skill.html", detail=detail, skill=detail.skill, code_rows=rows)

    def api_status(self, _: Request) -> Response:
        return json_response(status_value(self._reader.status()))

    def api_skills(self, _: Request) -> Response:
        return json_response(skills_value(self._reader.scan()))

    def api_skill(self, request: Request) -> Response:
        return json_response(detail_value(self._reader.detail(request.path_params["reference"])))

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
        if path.startswith(API):
            return json_response(value, status)
        return self.page(
            "error.html", status, reference=reference, example=self._example, **value["error"]
        )

    def page(self, template: str, status_code: int = 200, /, **values: Any) -> Response:
        return HTMLResponse(self._pages.render(template, **values), status_code)


def _page_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else 1


TEMPLATES = Path(__file__).resolve().parent / "templates"

LINE_COLUMNS = 300
"""Columns of a description in a list, where the style shows two lines."""
NAME_MAX = 64
"""Columns of a name in a list, the maximum of the specification."""
ROWS_MAX = 200
"""Rows of a table; the JSON has all."""

SCOPES = {
    "project": "in this project",
    "explicit": "from roots given by hand",
    "user": "yours, in every project",
    "plugin": "from installed plugins",
    "remote": "from other servers",
    "builtin": "come with skillhouse",
}


class Pages:
    """Renders the templates, which are compiled when first used."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            # INVARIANT: no template turns this off, and none uses `safe`: a skill's texts are never
            # markup.
            autoescape=True,
            finalize=_finalized,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            line=partial(start, columns=LINE_COLUMNS),
            short=partial(start, columns=NAME_MAX),
            path=path,
            folded=one_line,
            marked=marked,
            coded=coded,
            counted=counted,
            number="{:,}".format,
            by_scope=by_scope,
            skill_path=skill_path,
            command=command,
            flat=flat,
        )
        self._environment.globals.update(
            version=skillhouse.__version__,
            scopes=SCOPES,
            rows_max=ROWS_MAX,
            page_skills=PAGE_SKILLS,
            address=address,
        )

    def render(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)


def start(text: str, *, columns: int) -> str:
    """Return the start of a text on one line.

    >>> start("one two three", columns=8)
    'one two…'
    """
    # Some descriptions have 64 KiB; only as much is processed as could be shown.
    return cut(one_line(text[: 4 * columns]), columns)


def marked(text: str) -> Markup:
    r"""Return a text of several lines with its controls and hidden characters marked.

    >>> marked("a<b\x1b")
    Markup('a&lt;b<mark>\\x1b</mark>')
    """
    if text.isprintable():
        return escape(text)
    opened, closed = Markup("<mark>"), Markup("</mark>")
    pieces = []
    for plain, run in itertools.groupby(text, _is_plain):
        piece = "".join(run)
        pieces += [escape(piece)] if plain else [opened, escape(shown(piece)), closed]
    return Markup("").join(pieces)


def _is_plain(character: str) -> bool:
    """Whether a character is visible; wide spaces, as in Chinese, look like spaces."""
    return character.isprintable() or character in "\n\t\u00a0\u3000"


def coded(text: str) -> Markup:
    """Return a message with its text in backticks as code.

    >>> coded("got `<b>`"), coded("one ` alone")
    (Markup('got <code>&lt;b&gt;</code>'), Markup('one ` alone'))
    """
    parts = one_line(text).split("`")
    if len(parts) % 2 == 0 or "" in parts[1::2]:
        return escape(one_line(text))
    pieces = [escape(part) for part in parts]
    pieces[1::2] = [Markup("<code>{}</code>").format(part) for part in parts[1::2]]
    return Markup("").join(pieces)


def path(value: object) -> Markup:
    """Return a path that may break after its slashes.

    >>> path(Path("/a<b"))
    Markup('/<wbr>a&lt;b')
    """
    return Markup("/<wbr>").join(shown(part) for part in str(value).split("/"))


def counted(value: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "skill"), counted(12_000, "skill")
    ('1 skill', '12,000 skills')
    """
    return f"{value:,} {noun}" + ("" if value == 1 else "s")


def by_scope(items: Iterable[SkillVerdict]) -> list[tuple[str, list[SkillVerdict]]]:
    grouped = itertools.groupby(items, key=lambda item: item.skill.scope)
    return [(scope, list(group)) for scope, group in grouped]


def skill_path(reference: str) -> str:
    """Return the address of a skill's page; nothing in the reference is a separator.

    >>> skill_path("user:a/b?c")
    '/skills/user:a%2Fb%3Fc'
    """
    return "/skills/" + quote(reference, safe=":", errors="replace")


def address(**query: Any) -> str:
    """Return the address of the status page with a query, without empty values.

    >>> address(q="a&b", page=2), address(q="", page=None)
    ('/?q=a%26b&page=2', '/')
    """
    kept = {key: value for key, value in query.items() if value}
    return "/?" + urlencode(kept) if kept else "/"


def command(words: Iterable[object]) -> str:
    """Return a command as it is typed in a shell.

    >>> command(["skillhouse", "trust", Path("/my site")])
    "skillhouse trust '/my site'"
    """
    return shlex.join(str(word) for word in words)


def flat(value: Any) -> str:
    """Return a frontmatter value on one line.

    >>> flat({"author": "mika", "tags": ["a", "b"]})
    'author: mika; tags: ["a", "b"]'
    """
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return "; ".join(f"{one_line(key)}: {flat(part)}" for key, part in value.items())
    return one_line(json.dumps(value, ensure_ascii=False))


def _finalized(value: object) -> object:
    """Escape control and invisible characters of texts."""
    if hasattr(value, "__html__"):
        return value
    if isinstance(value, str | Path):
        return shown(str(value))
    return value
