"""The page of all skills."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.audit import command_of
from skillhouse.audit import AuditEntry, AuditError, AuditLog, Query, entries_of
from skillhouse.extensions.server.pages.site import Site
from skillhouse.extensions.server.pages.skill_list import (
    BLANK,
    COLUMNS,
    WORDS,
    AddressFilter,
    ListView,
    ShownRow,
    SkillList,
    choices_of,
    in_order,
    shown_row,
)
from skillhouse.extensions.server.pages.skill_rows import LastUse, SkillRow, skill_rows
from skillhouse.extensions.server.status import FoundInPage, SkillScan
from skillhouse.presentation.short_paths import unread_folders
from skillhouse.retrieval import Fit, Hit
from skillhouse.store import STATE_FILE, commit_stamp

PAGE_ROWS = 200
"""Rows of one page; the filter of a longer list is that of the server."""
QUERY_MAX = 500
"""Characters of each filter."""
INDEX_PATH = "/skills-index"
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
    list: SkillList


class FoundRow(NamedTuple):
    """A row, with why a search found it."""

    row: SkillRow
    hit: Hit | None = None

    @property
    def shown(self) -> ShownRow:
        return shown_row(self.row)


class SkillPages:
    """Plain functions, which Starlette runs in threads."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._reader = site.reader
        self._used = LastUse(site.house.audit_log)
        self._known: KnownRows | None = None

    def routes(self) -> list[Route]:
        return [Route("/", self.all), Route(INDEX_PATH, self.index)]

    def all(self, request: Request) -> Response:
        asked = request.query_params
        query, page = asked.get("q", "").strip(), _page_number(asked.get("page"))
        chosen = AddressFilter(**{name: asked.get(name, "")[:QUERY_MAX] for name in FILTERS})
        columns = ",".join(asked.getlist("columns")) if "columns" in asked else None
        view = ListView.of("" if query else asked.get("sort", ""), columns)
        scan = self._reader.scan()
        agent = self._agent(request)
        every = self._list_of(scan, agent)
        with self._reader.using() as house:
            agents = tuple(house.config.agents)
            deleted = house.management.trash.deleted()
            unread = unread_folders(house)
        answer = self._reader.found(scan, query, agent) if query else FoundInPage()
        if query:
            candidates = _found(every, answer.hits)
        else:
            candidates = [FoundRow(row) for row in in_order(every.rows, view.sort)]
        found = [one for one in candidates if chosen.takes(one.row)] if chosen.is_on else candidates
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
            view=view,
            all_columns=COLUMNS,
            blank=BLANK,
            blank_off=BLANK._replace(is_on=False),
            all_words=WORDS,
            page_rows=PAGE_ROWS,
            agents=agents,
            agent="" if agent == "default" else agent,
            is_weak=answer.fit is not Fit.GOOD,
            fits_nothing=answer.fit is Fit.NONE,
            total=len(found),
            every=len(candidates),
            page_number=page,
            pages=pages,
            choices=choices_of(one.row for one in candidates) if query else every.choices,
            with_findings=every.choices.problems.get("findings", 0),
            counts=every.counts,
            is_first_visit=all(row.scope in ("", "builtin") for row in every.rows),
            deleted=deleted[:DELETED_MAX],
            today=today,
            calls=calls_since(self._site.house.audit_log, today) if not query else None,
            pending=self._site.house.approvals.pending()[:LATEST],
            unread=unread,
        )

    def index(self, request: Request) -> Response:
        """Return the list as a browser filters it; nothing where it has what is here now."""
        every = self._list_of(self._reader.scan(), self._agent(request))
        found = every.index(ListView.of(request.query_params.get("sort", ""), None).sort)
        headers = {
            "content-type": "application/json",
            "etag": found.tag,
            "vary": "accept-encoding, cookie",
        }
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", "").replace(",", " ").split():
            return Response(found.packed, headers={**headers, "content-encoding": "gzip"})
        return Response(found.data, headers=headers)

    def _agent(self, request: Request) -> str:
        """Return the agent that is asked about, if it is one."""
        agent = request.query_params.get("agent", "default")
        with self._reader.using() as house:
            return agent if agent in house.config.agents else "default"

    def _list_of(self, scan: SkillScan, agent: str) -> SkillList:
        """Return the rows of a scan, made once: each load of the page and of its index asks.

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
            is_same = known is not None and known.list.rows == rows
            every = known.list if known is not None and is_same else SkillList(rows)
            known = self._known = KnownRows(scan, key, now + ROWS_SECONDS, every)
        return known.list


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


def _found(every: SkillList, hits: Sequence[Hit]) -> list[FoundRow]:
    """Return the rows that were found, in the order of the hits."""
    by_reference = every.by_reference
    return [FoundRow(by_reference[hit.id], hit) for hit in hits if hit.id in by_reference]


def _page_number(text: str | None) -> int:
    return max(1, _from(text or ""))


def _from(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
