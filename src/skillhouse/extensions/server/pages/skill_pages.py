"""The page of all skills, and the same and single skills as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.extensions.server.forms import json_response
from skillhouse.extensions.server.pages.site import Site
from skillhouse.extensions.server.pages.skill_rows import (
    LastUse,
    SkillRow,
    choices_of,
    skill_rows,
)
from skillhouse.extensions.server.status import detail_answer, skills_answer, status_answer
from skillhouse.frontends.presentation.short_paths import unread_folders
from skillhouse.retrieval import Fit, Hit, SearchResult

PAGE_ROWS = 200
"""Rows of one page; a script asks for the others once the page is there."""
FILTERED_MAX = 5_000
"""Rows among which is filtered while a person types."""
DELETED_MAX = 50
"""Deleted skills that can be put back from the page, the latest."""


class FoundRow(NamedTuple):
    """A row, with why a search found it."""

    row: SkillRow
    hit: Hit | None = None


class SkillPages:
    """Plain functions, which Starlette runs in threads."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._reader = site.reader
        self._used = LastUse(site.house.audit_log)

    def routes(self) -> list[Route]:
        return [
            Route("/", self.all),
            Route("/api/status", self.api_status),
            Route("/api/skills", self.api_all),
            Route("/api/skills/{reference:path}", self.api_one),
        ]

    def all(self, request: Request) -> Response:
        asked = request.query_params
        query, page = asked.get("q", "").strip(), _page_number(asked.get("page"))
        scan = self._reader.scan()
        used = self._used.times()
        with self._reader.using() as house:
            rows = skill_rows(house, scan, used)
        if "rows" in asked:
            listed = [FoundRow(row) for row in rows[_from(asked["rows"]) : FILTERED_MAX]]
            return self._site.page(
                request, "rows.html", rows=listed, choices=choices_of(rows), total=len(rows)
            )
        answer = self._reader.found(scan, query) if query else SearchResult()
        found = _found(rows, answer.hits) if query else [FoundRow(row) for row in rows]
        with self._reader.using() as house:
            deleted = house.management.trash.deleted()
            unread = unread_folders(house)
        pages = max(1, -(-len(found) // PAGE_ROWS))
        page = min(page, pages)
        return self._site.page(
            request,
            "skills.html",
            status=self._reader.status(),
            scan=scan,
            rows=found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
            query=query,
            is_weak=answer.is_weak,
            fits_nothing=answer.fit is Fit.NONE,
            total=len(found),
            page_number=page,
            pages=pages,
            filtered=min(len(found), FILTERED_MAX),
            choices=choices_of(one.row for one in found),
            in_use=len(scan.view.visible),
            not_in_use=sum(row.state != "in-use" for row in rows),
            is_first_visit=all(row.scope in ("", "builtin") for row in rows),
            deleted=deleted[:DELETED_MAX],
            unread=unread,
        )

    def api_status(self, _: Request) -> Response:
        return json_response(status_answer(self._reader.status(), self._site.services.instance))

    def api_all(self, _: Request) -> Response:
        return json_response(skills_answer(self._reader.scan()))

    def api_one(self, request: Request) -> Response:
        return json_response(detail_answer(self._reader.detail(request.path_params["reference"])))


def _found(rows: Sequence[SkillRow], hits: Sequence[Hit]) -> list[FoundRow]:
    """Return the rows that were found, in the order of the hits."""
    by_reference = {row.reference: row for row in rows}
    return [FoundRow(by_reference[hit.id], hit) for hit in hits if hit.id in by_reference]


def _page_number(text: str | None) -> int:
    return max(1, _from(text or ""))


def _from(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
