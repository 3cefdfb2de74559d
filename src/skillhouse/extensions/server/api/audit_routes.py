"""The routes about the audit log: query, one record, counts, verify, export."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from skillhouse.answers.audit import (
    AuditEntryAnswer,
    ListedEntryAnswer,
    SeenLogsAnswer,
    SeriesAnswer,
    StatsAnswer,
    VerificationAnswer,
    entry_answer,
    listed_entry,
    seen_logs,
    series_answer,
    stats_answer,
    verification_answer,
)
from skillhouse.answers.json_form import ListAnswer, PageAnswer, listed, plain
from skillhouse.approval import OWNER
from skillhouse.audit import (
    BUCKETS_MAX,
    LOG_PAGE_MAX,
    AuditEntry,
    AuditRecord,
    LogQuestion,
    Query,
    csv_lines,
    entries_of,
    find_record,
    first_moment,
    json_lines,
    last_moment,
    series_of,
    stats_of,
    troubles,
    write_gate_lines,
)
from skillhouse.extensions.server.api.api_services import (
    PAGE_DEFAULT,
    ApiServices,
    cursor_of,
    read_cursor,
)
from skillhouse.extensions.server.api.approval_routes import is_visible
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    JSON,
    ApiRequest,
    Endpoint,
    RouteParameter,
    RouteResponse,
)
from skillhouse.extensions.server.api.schemas import TEXT, array, listing, maybe, record, ref
from skillhouse.extensions.server.api.skill_routes import CURSOR, LIMIT
from skillhouse.floor import structs
from skillhouse.presentation.text import read_time

EXPORT_MAX = 10_000
"""Records of one export; older ones are asked for with `until`."""
DEFAULT_SPAN = timedelta(days=1)
_TIME = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {
            "type": "string",
            "pattern": r"^\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01])"
            r"(T([01]\d|2[0-3])(:[0-5]\d(:[0-5]\d)?)?)?)?)?$",
        },
    ]
}


def _word(name: str, what: str, example: str, **schema: Any) -> RouteParameter:
    shape = {"type": "string", "minLength": 1, "maxLength": 200, **schema}
    return RouteParameter(name=name, schema=shape, what=what, example=example)


def _time(name: str, what: str, example: str) -> RouteParameter:
    return RouteParameter(name=name, schema=_TIME, what=what, example=example, read=read_time)


_FILTERS = (
    _word("tool", "Only calls of this tool.", "exec"),
    _word("status", "Only calls with this status.", "denied"),
    _word("agent", "Only calls of this agent.", "default"),
    _word("user", "Only calls of this user.", "local"),
    _word(
        "client", "Only calls of this client, by its name, with or without its version.", "codex"
    ),
    _word("tier", "Only calls of this tier.", "2"),
    _word("skill", "Only calls that loaded this skill or ran its code.", "pdf"),
    _word("server", "Only calls at the server of this name.", "core-a"),
    _word("text", "Only calls that have these words in what was asked for.", "git push"),
    _time("since", "From a time (RFC 3339), or the beginning of a UTC time.", "2026-01-31"),
    _time("until", "Up to all that begins so: a time as for `since`.", "2026-02"),
)


def _entries(
    api: ApiServices, request: ApiRequest, *, judged: bool = False, since: str | None = None
) -> Iterator[AuditEntry]:
    log = api.house.audit_log
    query = _wanted(request, judged=judged, since=since)
    query = structs.replace(query, own_server=api.house.config.shown_server)
    return entries_of(log.path, query, key=log.key)


def _wanted(request: ApiRequest, *, judged: bool = False, since: str | None = None) -> Query:
    asked = request.query
    user = asked.get("user")
    if request.access.user != OWNER:
        # Whatever is asked for: the records of others are not this token's.
        user = request.access.user
    return Query(
        tool=asked.get("tool"),
        status=asked.get("status"),
        agent=asked.get("agent"),
        client=asked.get("client"),
        user=user,
        tier=asked.get("tier"),
        skill=asked.get("skill"),
        server=asked.get("server"),
        text=asked.get("text"),
        since=since or asked.get("since"),
        until=asked.get("until"),
        judged=judged,
    )


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    limit = request.query.get("limit", PAGE_DEFAULT)
    entries = _entries(api, request)
    cursor = request.query.get("cursor")
    if cursor is not None:
        _, last = read_cursor(cursor)
        entries = itertools.dropwhile(lambda entry: entry.record.id != last, entries)
        if next(entries, None) is None:
            raise ApiProblem(409, "cursor-ended", "the list has changed; begin without a cursor")
    found = list(itertools.islice(entries, limit + 1))
    shown = found[:limit]
    following = cursor_of(1, shown[-1].record.id) if len(found) > limit else None
    return listed("records", list(map(listed_entry, shown)), PageAnswer(next=following), total=None)


def _all(api: ApiServices, request: ApiRequest) -> SeenLogsAnswer:
    question = LogQuestion(
        query=_wanted(request),
        before=request.query.get("before", ""),
        limit=request.query.get("limit", PAGE_DEFAULT),
    )
    return seen_logs(api.house.all_logs.page(question))


def _show(api: ApiServices, request: ApiRequest) -> AuditEntryAnswer:
    log, wanted = api.house.audit_log, request.path["record"]
    is_id = len(wanted) <= 64 and wanted.isascii() and wanted.isalnum()
    entry = find_record(log.path, wanted, key=log.key) if is_id else None
    if entry is None or not is_visible(request.access, entry.record.user):
        raise ApiProblem(404, "unknown-record", f"no record begins with `{wanted[:80]}`")
    return entry_answer(entry)


def _stats(api: ApiServices, request: ApiRequest) -> StatsAnswer:
    return stats_answer(stats_of(_entries(api, request)), troubles(api.house.audit_log))


def _series(api: ApiServices, request: ApiRequest) -> SeriesAnswer:
    asked, now = request.query, datetime.fromtimestamp(api.clock(), UTC)
    try:
        until = last_moment(asked["until"]) if "until" in asked else now
        since = first_moment(asked["since"]) if "since" in asked else until - DEFAULT_SPAN
        buckets = asked.get("buckets", 60)
        entries = _entries(api, request, since=since.isoformat()[: len("2026-01-31T12:00:00")])
        return series_answer(series_of(entries, since, until, buckets=buckets))
    except (ValueError, OverflowError) as error:
        raise ApiProblem(400, "wrong-parameter", "expected `since` before `until`") from error


def _verify(api: ApiServices, _: ApiRequest) -> VerificationAnswer:
    return verification_answer(api.house.audit_log.verify())


def _json(api: ApiServices, request: ApiRequest) -> RouteResponse:
    return _exported(json_lines(_some(_entries(api, request))))


def _csv(api: ApiServices, request: ApiRequest) -> RouteResponse:
    return _exported(csv_lines(_some(_entries(api, request))))


def _write_gate(api: ApiServices, request: ApiRequest) -> RouteResponse:
    return _exported(write_gate_lines(_some(_entries(api, request, judged=True))))


def _some(entries: Iterator[AuditEntry]) -> Iterator[AuditEntry]:
    return itertools.islice(entries, EXPORT_MAX)


def _exported(lines: Iterator[str]) -> RouteResponse:
    return RouteResponse(content="".join(lines).encode())


_REFUSED = AuditRecord(
    id="01J9ZC",
    seq=12,
    ts="2026-01-31T12:00:00.000Z",
    kind="refusal",
    tool="exec",
    agent="default",
    user="local",
    channel="mcp",
    client="codex 1.2",
    arguments={"command": "git push"},
    reason="rule `exec git push *` of user policy",
    status="denied",
)
_ENTRY = AuditEntry(record=_REFUSED, outcome=None, status=_REFUSED.status)
_EXAMPLE = plain(listed_entry(_ENTRY))
_RECORD = ref(AuditRecord)
_EXPORTED = record({"record": _RECORD, "outcome": maybe(_RECORD), "status": TEXT, "result": TEXT})


def _export(name: str, suffix: str, what: str, media: str, run: Any, example: Any) -> Endpoint:
    return Endpoint(
        name=name,
        method="GET",
        path=f"/audit/export.{suffix}",
        tag="audit",
        what=what,
        run=run,
        query=_FILTERS,
        media=media,
        answer=array(_EXPORTED) if media == JSON else TEXT,
        example=example,
    )


ROUTES = (
    Endpoint(
        name="listRecords",
        method="GET",
        path="/audit/records",
        tag="audit",
        what="The recorded calls, newest first; `total` is not counted.",
        run=_list,
        query=(*_FILTERS, LIMIT, CURSOR),
        answer=listing("records", ListedEntryAnswer, PageAnswer, total={"type": "null"}),
        example={"list": "records", "total": None, "records": [_EXAMPLE], "next": None},
        problems=(409,),
    ),
    Endpoint(
        name="listAllRecords",
        method="GET",
        path="/audit/all",
        tag="audit",
        what="The calls of all servers of this state, newest first; each server answers for its "
        "own log, and those that did not within three seconds are named.",
        run=_all,
        query=(
            *_FILTERS,
            RouteParameter(
                name="limit",
                schema={"type": "integer", "minimum": 1, "maximum": LOG_PAGE_MAX},
                what="Most records of one answer.",
                example=50,
            ),
            RouteParameter(
                name="before",
                schema={
                    "type": "string",
                    "minLength": 26,
                    "maxLength": 26,
                    "pattern": "^[0-9A-Z]+$",
                },
                what="The `next` of the answer before.",
                example="01J9ZC5Q8V6M3T1R0N7K2H4G9B",
            ),
        ),
        answer=ref(SeenLogsAnswer),
        example={
            "list": "records",
            "records": [
                {**_EXAMPLE, "server": "core-a", "log": "3fa9c1d25e6f", "standing": "verified"}
            ],
            "servers": [
                {
                    "name": "core-a",
                    "log": "3fa9c1d25e6f",
                    "version": "0.1.0",
                    "state": "answered",
                    "said": "",
                    "check": "whole",
                    "records": 12,
                    "head": 12,
                    "is_this": True,
                }
            ],
            "next": None,
            "is_cut": False,
            "is_whole": True,
        },
        problems=(409,),
    ),
    Endpoint(
        name="showRecord",
        method="GET",
        path="/audit/records/{record}",
        tag="audit",
        what="One call, from the question to its outcome.",
        run=_show,
        answer=ref(AuditEntryAnswer),
        example=plain(entry_answer(_ENTRY)),
    ),
    Endpoint(
        name="showStats",
        method="GET",
        path="/audit/stats",
        tag="audit",
        what="How many calls there were, by what they were.",
        run=_stats,
        query=_FILTERS,
        answer=ref(StatsAnswer),
        example={
            "total": 1,
            "first": "2026-01-31T12:00:00.000Z",
            "last": "2026-01-31T12:00:00.000Z",
            "by_status": {"ok": 1},
            "by_tool": {"exec": 1},
            "by_user": {"local": 1},
            "by_agent": {"default": 1},
            "by_client": {"codex": 1},
            "by_tier": {},
            "by_day": {"2026-01-31": 1},
            "denied_by_tool": {},
            "outages": 0,
            "refused": 0,
            "dropped": 0,
            "troubles": [],
        },
    ),
    Endpoint(
        name="showSeries",
        method="GET",
        path="/audit/series",
        tag="audit",
        what="The calls by time: what they were, what was decided, how long they took.",
        run=_series,
        query=(
            *_FILTERS,
            RouteParameter(
                name="buckets",
                schema={"type": "integer", "minimum": 1, "maximum": BUCKETS_MAX},
                what="Most spans of time; 60 if left out. Without `since` it is the last day.",
                example=24,
            ),
        ),
        answer=ref(SeriesAnswer),
        example={
            "list": "buckets",
            "since": "2026-01-31T00:00:00Z",
            "until": "2026-02-01T00:00:00Z",
            "width_seconds": 86_400,
            "total": 1,
            "is_cut": False,
            "buckets": [
                {
                    "start": "2026-01-31T00:00:00Z",
                    "calls": 1,
                    "by_status": {"ok": 1},
                    "by_verdict": {"allow": 1},
                    "p50_ms": 12,
                    "p95_ms": 12,
                    "max_ms": 12,
                }
            ],
        },
    ),
    Endpoint(
        name="verifyLog",
        method="GET",
        path="/audit/verify",
        tag="audit",
        what="Whether a byte of the log was changed.",
        run=_verify,
        answer=ref(VerificationAnswer),
        example={
            "records": 12,
            "problems": [],
            "notes": [],
            "unknown": [],
            "head": "00",
            "removed": 0,
            "summaries": 0,
            "archives": 0,
            "checkpoints": 0,
            "ok": True,
        },
    ),
    _export(
        "exportJson",
        "json",
        "The newest records that fit, as `audit export` writes them.",
        JSON,
        _json,
        [{"record": plain(_REFUSED), "outcome": None, "status": "denied", "result": "denied"}],
    ),
    _export(
        "exportCsv",
        "csv",
        "The same as CSV, without a cell that a spreadsheet runs.",
        "text/csv; charset=utf-8",
        _csv,
        "id,seq,ts\r\n",
    ),
    _export(
        "exportWriteGate",
        "jsonl",
        "The verdicts of the write gate as JSON lines.",
        "application/x-ndjson",
        _write_gate,
        "",
    ),
)
