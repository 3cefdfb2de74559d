"""What all pages share: navigation, language, the count of questions, and proofs for changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from markupsafe import Markup, escape
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.guard import access_of
from skillhouse.extensions.server.pages.languages import (
    LANGUAGE_COOKIE,
    LANGUAGES,
    language_of,
    problem_texts,
)
from skillhouse.extensions.server.pages.page_version import VERSION, PageVersion
from skillhouse.extensions.server.pages.renderer import Renderer
from skillhouse.floor import SkillhouseError
from skillhouse.house import Access


class NavigationEntry(NamedTuple):
    """One entry of the navigation."""

    path: str
    name: str


PLACES = (
    NavigationEntry("/", "Skills"),
    NavigationEntry("/packages", "Packages"),
    NavigationEntry("/clients", "Clients"),
    NavigationEntry("/rehearse", "Rehearse"),
    NavigationEntry("/approvals", "Approvals"),
    NavigationEntry("/audit", "Audit"),
    NavigationEntry("/policy", "Policy"),
    NavigationEntry("/system", "System"),
)
"""The names are texts of the interface, translated where they are shown."""

LANGUAGE_DAYS = 365
VERSION_PATH = "/version"


class TextConvertor(PathConvertor):
    """What `path` is in routes, line breaks included: names of skills have them."""

    regex = r"[\s\S]*"


register_url_convertor("path", TextConvertor())


class Site:
    """Renders the pages of one service."""

    def __init__(self, services: ApiServices) -> None:
        self.version = PageVersion(services.house, services.reader)
        self.services = services
        self.house = services.house
        self.reader = services.reader
        self._renderer = Renderer()

    def routes(self) -> list[Route]:
        return [
            Route("/language/{code}", self.choose_language),
            Route("/language/{code}/problems", self.problems),
            Route(VERSION_PATH, self.current),
        ]

    def page(
        self, request: Request, template: str, status_code: int = 200, /, **values: Any
    ) -> Response:
        """Return a rendered page for the owner.

        Templates get, besides `values`: `language`, `places`, `here` (path and query of the page),
        `page_version` (of what it shows),
        `waiting` (number of open questions; None if the state cannot be read), `stopped` (why
        every tool is refused; or empty), `away` (minutes until only reads go on, since no companion
        app was open; None for no warning), `read_only` (why
        nothing may be changed; or empty) and `action`.
        """
        return self._rendered(
            request,
            template,
            status_code,
            places=PLACES,
            page_version=request.scope.get(VERSION, ""),
            waiting=self._waiting(),
            stopped=self.house.services.enforcement.tiers.stopped_reason,
            away=self._away(),
            read_only=self.services.read_only,
            action=partial(self._action, access_of(request.scope)),
            **values,
        )

    def bare(self, request: Request, template: str, status_code: int, /, **values: Any) -> Response:
        """Return a page that anyone may see: without names, counts or proofs."""
        return self._rendered(
            request,
            template,
            status_code,
            places=(),
            page_version="",
            waiting=None,
            read_only="",
            **values,
        )

    def text(self, request: Request, template: str, /, **values: Any) -> str:
        """Return a part of a page for who has no key of the page."""
        language = language_of(request)
        return self._renderer.render(template, language, places=(), read_only="", **values)

    def _action(self, access: Access, method: str, path: str) -> Markup:
        """Return the attributes with which a form or button makes a change by the API.

        `path` is as the browser sends it: encoded, without a query. The proof is for the browser
        that asked, and for this method and path alone.
        """
        proof = self.services.proofs.of(access, method, path)
        # A list has hundreds, and `Markup.format` takes longer than the proof.
        text = f'data-method="{escape(method)}" data-path="{escape(path)}" data-proof="{proof}"'
        return Markup(text)  # noqa: S704 - what may be of others is escaped.

    def choose_language(self, request: Request) -> Response:
        """Keep a language for this browser and return to the page."""
        code = request.path_params["code"]
        if code not in LANGUAGES:
            raise HTTPException(404)
        moved = RedirectResponse(local_path(request.query_params.get("back", "/")), 303)
        moved.set_cookie(
            LANGUAGE_COOKIE,
            code,
            max_age=LANGUAGE_DAYS * 86_400,
            httponly=True,
            samesite="strict",
        )
        return moved

    def current(self, _: Request) -> Response:
        """Return the tag that a page has if it shows what is there now."""
        return PlainTextResponse(self.version.now())

    def problems(self, request: Request) -> Response:
        """Return what problems are called in a language, by their codes."""
        code = request.path_params["code"]
        if code not in LANGUAGES:
            raise HTTPException(404)
        texts = json.dumps(dict(problem_texts(code)), indent=2) + "\n"
        return Response(texts, headers={"content-type": "application/json"})

    def _rendered(
        self, request: Request, template: str, status_code: int, /, **values: Any
    ) -> Response:
        query = request.url.query
        here = request.url.path + (f"?{query}" if query else "")
        language = language_of(request)
        text = self._renderer.render(template, language, here=here, **values)
        return HTMLResponse(text, status_code, headers={"vary": "accept-language, cookie"})

    def _away(self) -> int | None:
        try:
            return self.house.services.companion.warning()
        except SkillhouseError:
            return None

    def _waiting(self) -> int | None:
        try:
            return len(self.house.approvals.pending())
        except SkillhouseError:
            return None


Render = Callable[..., Response]
"""`Site.page`: gets the request, the template, the status code (200 if left out) and values."""


def local_path(address: str) -> str:
    r"""Return an address if it is one of ours, else the start page.

    >>> local_path("/skills?q=a"), local_path("//evil.example"), local_path("/\\evil.example")
    ('/skills?q=a', '/', '/')
    """
    is_local = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_local and address.isprintable() else "/"
