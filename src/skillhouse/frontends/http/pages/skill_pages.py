"""The pages of skills: all of them, and one; and the same as JSON."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.frontends.http.forms import json_response
from skillhouse.frontends.http.pages.site import Site
from skillhouse.frontends.http.pages.stop_page import StopPage
from skillhouse.frontends.http.status import detail_value, skills_value, status_value
from skillhouse.frontends.presentation.code_report import facts_rows


class SkillPages:
    """Plain functions, which Starlette runs in threads."""

    def __init__(self, site: Site, stopping: StopPage) -> None:
        self._site = site
        self._reader = site.reader
        self._stopping = stopping

    def routes(self) -> list[Route]:
        return [
            Route("/", self.all),
            Route("/skills/{reference:path}", self.one),
            Route("/api/status", self.api_status),
            Route("/api/skills", self.api_all),
            Route("/api/skills/{reference:path}", self.api_one),
        ]

    def all(self, request: Request) -> Response:
        asked = request.query_params
        query, page = asked.get("q", "").strip(), _page_number(asked.get("page"))
        status = self._reader.status(query=query, page=page)
        return self._site.page(
            request,
            "status.html",
            status=status,
            scan=status.scan,
            stopped=self._stopping.reason(),
            csrf_token=self._stopping.csrf_token,
        )

    def one(self, request: Request) -> Response:
        detail = self._reader.detail(request.path_params["reference"])
        rows = facts_rows(detail.code) if detail.code else []
        return self._site.page(
            request, "skill.html", detail=detail, skill=detail.skill, code_rows=rows
        )

    def api_status(self, _: Request) -> Response:
        return json_response(status_value(self._reader.status()))

    def api_all(self, _: Request) -> Response:
        return json_response(skills_value(self._reader.scan()))

    def api_one(self, request: Request) -> Response:
        return json_response(detail_value(self._reader.detail(request.path_params["reference"])))


def _page_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else 1
