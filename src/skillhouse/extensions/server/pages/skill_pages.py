"""The page of all skills, and the same and single skills as JSON."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.audit import AuditEntry, AuditError, AuditLog, Query, entries_of
from skillhouse.extensions.server.forms import json_response
from skillhouse.extensions.server.pages.site import Site
from skillhouse.extensions.server.pages.skill_rows import (
    AddressFilter,
    LastUse,
    SkillRow,
    choices_of,
    skill_rows,
)
from skillhouse.extensions.server.status import (
    FoundInPage,
    SkillScan,
    detail_answer,
    skills_answer,
    status_answer,
)
from skillhouse.frontends.answers.audit import command_of
from skillhouse.frontends.presentation.library import library_counts
from skillhouse.frontends.presentation.short_paths import unread_folders
from skillhouse.retrieval import Fit, Hit
from skillhouse.store import STATE_FILE, commit_stamp

PAGE_ROWS = 200
"""Rows of one page; the filter of a longer list is that of the server."""
QUERY_MAX = 500
"""Characters of each filter."""
FILTERS = ("words", "scope", "client", "state")
DELETED_MAX = 50
"""Deleted skills that can be put back from the page, the latest."""


ROWS_SECONDS = 10.0
TODAY_MAX = 1_000
"""Records among which those of today are counted."""
LATEST = 4
"""Calls on the first page."""


class DayOfCalls(NamedTuple):
    """What agents called of late."""

    latest: tuple[tuple[AuditEntry, str], ...]
    """Each with the command of it, or what else was asked for; empty where nothing says it."""
    denied: int
    """Of today, in UTC."""
    is_more: bool
    """Whether there are more of today than were looked at."""


class KnownRows(NamedTuple):
    """The rows of a scan, and for how long they are taken for right."""

    scan: SkillScan
    key: object
    until: float
    rows: list[SkillRow]


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
        self._known: KnownRows | None = None

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
        chosen = AddressFilter(**{name: asked.get(name, "")[:QUERY_MAX] for name in FILTERS})
        scan = self._reader.scan()
        with self._reader.using() as house:
            agents = tuple(house.config.agents)
        agent = asked.get("agent", "default")
        agent = agent if agent in agents else "default"
        rows = self._rows_of(scan, agent)
        with self._reader.using() as house:
            deleted = house.management.trash.deleted()
            unread = unread_folders(house)
        answer = self._reader.found(scan, query) if query else FoundInPage()
        every = _found(rows, answer.hits) if query else [FoundRow(row) for row in rows]
        found = [one for one in every if chosen.takes(one.row)] if chosen.is_on else every
        today = datetime.now(UTC).date().isoformat()
        pages = max(1, -(-len(found) // PAGE_ROWS))
        page = min(page, pages)
        return self._site.page(
            request,
            "skills.html",
            status=self._reader.status(),
            scan=scan,
            rows=found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
            query=query,
            chosen=chosen,
            agents=agents,
            agent="" if agent == "default" else agent,
            is_weak=answer.fit is not Fit.GOOD,
            fits_nothing=answer.fit is Fit.NONE,
            total=len(found),
            every=len(every),
            page_number=page,
            pages=pages,
            choices=choices_of(one.row for one in every),
            counts=library_counts(row.line for row in rows),
            is_first_visit=all(row.scope in ("", "builtin") for row in rows),
            deleted=deleted[:DELETED_MAX],
            today=today,
            calls=calls_since(self._site.house.audit_log, today),
            pending=self._site.house.approvals.pending()[:LATEST],
            unread=unread,
        )

    def _rows_of(self, scan: SkillScan, agent: str) -> list[SkillRow]:
        """Return the rows of a scan, made once: each key press that filters a long list asks.

        They are made again for another scan, after each use of a skill and each approval, and
        after a while for the files of a skill beside its SKILL.md, of which a scan knows nothing.
        """
        used, now = self._used.times(), time.monotonic()
        state = self._site.house.config.state_directory / STATE_FILE
        key = (agent, commit_stamp(state), used)
        known = self._known
        if known is None or known.scan is not scan or known.key != key or now > known.until:
            with self._reader.using() as house:
                rows = skill_rows(house, scan, used, agent)
            known = self._known = KnownRows(scan, key, now + ROWS_SECONDS, rows)
        return known.rows

    def api_status(self, _: Request) -> Response:
        return json_response(status_answer(self._reader.status(), self._site.services.instance))

    def api_all(self, _: Request) -> Response:
        return json_response(skills_answer(self._reader.scan()))

    def api_one(self, request: Request) -> Response:
        return json_response(detail_answer(self._reader.detail(request.path_params["reference"])))


def calls_since(log: AuditLog, today: str) -> DayOfCalls:
    """Return the newest calls, and how many of a day and later were denied.

    A log that cannot be read has none: the page says what is wrong with it by itself.
    """
    latest: list[tuple[AuditEntry, str]] = []
    denied = seen = 0
    try:
        for entry in itertools.islice(entries_of(log.path, Query(), key=log.key), TODAY_MAX):
            is_today = entry.record.ts >= today
            if not is_today and len(latest) == LATEST:
                break
            seen += is_today
            denied += is_today and entry.status == "denied"
            if entry.record.kind != "event" and len(latest) < LATEST:
                asked = command_of(entry.record) or next(
                    (one.resource for one in entry.record.permissions), ""
                )
                latest.append((entry, asked))
    except AuditError:
        return DayOfCalls(latest=(), denied=0, is_more=False)
    return DayOfCalls(tuple(latest), denied, seen == TODAY_MAX)


def _found(rows: Sequence[SkillRow], hits: Sequence[Hit]) -> list[FoundRow]:
    """Return the rows that were found, in the order of the hits."""
    by_reference = {row.reference: row for row in rows}
    return [FoundRow(by_reference[hit.id], hit) for hit in hits if hit.id in by_reference]


def _page_number(text: str | None) -> int:
    return max(1, _from(text or ""))


def _from(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
