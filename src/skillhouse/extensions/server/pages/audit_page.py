"""The page of the log: what was called, found by filters, with plots over time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from skillhouse.answers.audit import command_of, subject_of
from skillhouse.audit import (
    AuditEntry,
    LogQuestion,
    Query,
    Series,
    entries_of,
    first_moment,
    last_moment,
    series_of,
    troubles,
)
from skillhouse.extensions.server.pages import plots
from skillhouse.extensions.server.pages.object_links import DecidingRule, ObjectLinks
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import SkillhouseError
from skillhouse.house import AllLogsPage

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog

AUDIT_PATH = "/audit"
ALL_PATH = "/audit/all"
PAGE_ENTRIES = 50
FITTING_MAX = 5_000
"""Calls that the plots are of, and that can be paged through, the newest that fit."""
LOOKED_AT_MAX = 50_000
"""Records that a filter is tried on, from the newest: a few seconds."""
BUCKETS = 48
SPAN_MIN = timedelta(hours=2)
"""So that the few calls of a new log are not one wide bar."""
STATUSES = tuple("ok denied error timeout pending stopped emergency-stopped unknown".split())
"""As they are offered; a stack of the plot has them from below up, and others on top."""
VERDICTS = ("allow", "ask", "deny", "none")
FILTERS = ("text", "tool", "skill", "status", "client", "agent", "user", "server", "since", "until")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ID = re.compile(r"[0-9A-Z]{26}", re.ASCII)
_FIELD_MAX = 200


class AuditView(Struct, frozen=True, kw_only=True):
    """What a filter finds."""

    entries: tuple[AuditEntry, ...]
    """One page, newest first."""
    total: int
    is_cut: bool
    """Whether there may be more that fit than `total`."""
    following: str
    """Id of the last entry of this page, if there is another page."""
    series: Series | None
    """None where nothing fits."""


class AuditPage:
    """Reads only; verify and export are those of the API."""

    def __init__(self, site: Site, log: AuditLog, clock: Callable[[], float]) -> None:
        """`clock` returns seconds since 1970."""
        self._site = site
        self._logs = site.house.all_logs
        self._log = log
        self._clock = clock
        self._links = ObjectLinks(site)

    def routes(self) -> list[Route]:
        return [
            Route(AUDIT_PATH, self.page),
            Route(ALL_PATH, self.all_page),
            Route("/calls", self.old_address),
        ]

    def page(self, request: Request) -> Response:
        asked = filters_of(request.query_params)
        rule = self._links.decided_by(request.query_params.get("rule", ""))
        chosen = {"rule": request.query_params.get("rule", "")} if rule else {}
        after = request.query_params.get("after", "")
        try:
            found, fault = self._found(asked, after if _ID.fullmatch(after) else "", rule), ""
        except SkillhouseError as error:
            # The log cannot be read; the page says so, and what may help.
            found = AuditView(entries=(), total=0, is_cut=False, following="", series=None)
            fault = str(error)
        series = found.series
        return self._site.page(
            request,
            "audit.html",
            asked=asked,
            found=found,
            about=[subject_of(one) for one in found.entries],
            commands=[command_of(one.record) for one in found.entries],
            fault=fault,
            after=after,
            is_filtered=any(asked.values()) or rule is not None,
            rule=rule,
            chosen_rule=chosen.get("rule", ""),
            statuses=STATUSES,
            known_kinds=frozenset((*STATUSES, *VERDICTS, "p50", "p95")),
            troubles=troubles(self._log),
            plots=() if series is None else plots_of(series),
            scale=() if series is None else plots.scale(series.buckets),
            query=_query(asked),
            older=_query({**asked, **chosen, "after": found.following}),
            plot_size=(plots.WIDTH, plots.HEIGHT),
            is_shared=self._logs.is_shared,
        )

    def all_page(self, request: Request) -> Response:
        """Show the logs of all servers, each of which answers for its own."""
        asked = filters_of(request.query_params)
        before = request.query_params.get("before", "")
        before = before if _ID.fullmatch(before) else ""
        wanted: dict[str, Any] = {name: asked[name] or None for name in FILTERS}
        question = LogQuestion(query=Query(**wanted), before=before, limit=PAGE_ENTRIES)
        try:
            found, fault = self._logs.page(question), ""
        except SkillhouseError as error:
            found = AllLogsPage(entries=(), servers=(), following="", is_cut=False)
            fault = str(error)
        return self._site.page(
            request,
            "audit_all.html",
            asked=asked,
            found=found,
            about=[subject_of(one.entry) for one in found.entries],
            commands=[command_of(one.entry.record) for one in found.entries],
            fault=fault,
            before=before,
            is_filtered=any(asked.values()),
            query=_query(asked),
            older=_query({**asked, "before": found.following}),
            statuses=STATUSES,
        )

    def old_address(self, _: Request) -> Response:
        return RedirectResponse(AUDIT_PATH, 303)

    def _found(self, asked: Mapping[str, str], after: str, rule: DecidingRule | None) -> AuditView:
        wanted: dict[str, Any] = {name: asked[name] or None for name in FILTERS}
        query = Query(**wanted, own_server=self._site.house.config.shown_server)
        fitting: list[AuditEntry] = []
        is_cut = False
        for seen, entry in enumerate(self._calls()):
            if seen >= LOOKED_AT_MAX or len(fitting) >= FITTING_MAX:
                is_cut = True
                break
            if query.fits(entry) and (rule is None or rule.decided(entry)):
                fitting.append(entry)
        start = next((at + 1 for at, one in enumerate(fitting) if one.record.id == after), 0)
        shown = fitting[start : start + PAGE_ENTRIES]
        has_more = start + PAGE_ENTRIES < len(fitting)
        return AuditView(
            entries=tuple(shown),
            total=len(fitting),
            is_cut=is_cut,
            following=shown[-1].record.id if has_more else "",
            series=self._series(fitting, asked),
        )

    def _calls(self) -> Iterator[AuditEntry]:
        """Yield what is of interest here: calls and events, but not the log's own upkeep."""
        entries = entries_of(self._log.path, Query(), key=self._log.key)
        return (one for one in entries if one.record.kind not in ("repair", "rotation"))

    def _series(self, entries: list[AuditEntry], asked: Mapping[str, str]) -> Series | None:
        if not entries:
            return None
        now = datetime.fromtimestamp(self._clock(), UTC)
        first = datetime.fromisoformat(min(one.record.ts for one in entries))
        until = last_moment(asked["until"]) if asked["until"] else now
        since = first_moment(asked["since"]) if asked["since"] else min(first, until - SPAN_MIN)
        # A clock that was set back, or a call of this very second.
        until = max(until, since + timedelta(minutes=1))
        return series_of(entries, since.replace(second=0, microsecond=0), until, buckets=BUCKETS)


def filters_of(asked: Mapping[str, str]) -> dict[str, str]:
    """Return every filter, empty where it is not set, or is no day or no text of our length.

    >>> filters_of({"tool": " exec ", "since": "soon"})["tool"], filters_of({})["since"]
    ('exec', '')
    """
    found = {name: asked.get(name, "").strip()[:_FIELD_MAX] for name in FILTERS}
    for name in ("since", "until"):
        if not _is_day(found[name]):
            found[name] = ""
    return found


def _query(values: Mapping[str, str]) -> str:
    return urlencode({name: value for name, value in values.items() if value})


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        last_moment(text)
    except ValueError:
        return False
    return True


class Plot(Struct, frozen=True, kw_only=True):
    """One plot with its kinds, of which the table and the legend have a column each."""

    name: str
    kinds: tuple[str, ...]
    stacks: tuple[plots.Stack, ...]
    top: int
    """The highest sum of a bucket, or the longest of the latencies in milliseconds."""


def plots_of(series: Series) -> tuple[Plot, ...]:
    """Return the three plots; a kind that nothing is of has no column."""
    found = []
    for name, known, counted in (
        ("calls", STATUSES, [one.by_status for one in series.buckets]),
        ("verdicts", VERDICTS, [one.by_verdict for one in series.buckets]),
    ):
        met = {kind for counts in counted for kind in counts}
        kinds = (*(kind for kind in known if kind in met), *sorted(met - set(known)))
        ordered = [{kind: counts.get(kind, 0) for kind in kinds} for counts in counted]
        found.append(
            Plot(
                name=name,
                kinds=kinds,
                stacks=plots.stacks(series.buckets, ordered),
                top=max((one.calls for one in series.buckets), default=0),
            )
        )
    longest = max((one.p95_ms or 0 for one in series.buckets), default=0)
    times = plots.latencies(series.buckets)
    found.append(Plot(name="latencies", kinds=("p50", "p95"), stacks=times, top=longest))
    return tuple(found)
