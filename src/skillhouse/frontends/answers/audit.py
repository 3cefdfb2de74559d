"""Calls as the audit log has them, and how the log was checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import field

from skillhouse.audit import AuditRecord, LogProblem, Trouble
from skillhouse.floor import structs
from skillhouse.frontends.answers.json_form import Count, JsonAnswer, copied
from skillhouse.frontends.presentation.call_values import subject_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillhouse.audit import AuditEntry, Stats, Verification
    from skillhouse.audit.series import Series

_RARE = ("amount_usd", "session_key", "signer_tier", "transaction")
"""Fields of what signs: few logs have one."""


class AuditEntryAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A call as the log has it, and what it was about."""

    record: dict[str, Any]
    outcome: dict[str, Any] | None
    status: str
    about: str


class VerificationAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Whether a byte of the log was changed; the members are those of `Verification`."""

    records: Count
    problems: tuple[LogProblem, ...]
    notes: tuple[LogProblem, ...]
    unknown: tuple[AuditRecord, ...]
    head: str
    removed: Count
    summaries: Count
    archives: Count
    checkpoints: Count
    ok: bool


class StatsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How many calls there were, by what they were, and what is wrong with the log."""

    total: Count
    first: str
    last: str
    by_status: dict[str, int]
    by_tool: dict[str, int]
    by_user: dict[str, int]
    by_agent: dict[str, int]
    by_tier: dict[str, int]
    by_day: dict[str, int]
    denied_by_tool: dict[str, int]
    outages: Count
    refused: Count
    dropped: Count
    troubles: tuple[Trouble, ...]


class BucketAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The calls of one span of time."""

    start: str
    calls: Count
    by_status: dict[str, int]
    by_verdict: dict[str, int]
    p50_ms: Count | None
    p95_ms: Count | None
    max_ms: Count


class SeriesAnswer(JsonAnswer, frozen=True, kw_only=True):
    since: str
    until: str
    width_seconds: Count
    total: Count
    is_cut: bool
    buckets: tuple[BucketAnswer, ...]
    listed: Literal["buckets"] = field(default="buckets", name="list")


def stats_answer(found: Stats, troubles: Sequence[Trouble]) -> StatsAnswer:
    return copied(StatsAnswer, found, troubles=tuple(troubles))


def series_answer(found: Series) -> SeriesAnswer:
    return SeriesAnswer(
        since=found.since,
        until=found.until,
        width_seconds=found.width_seconds,
        total=found.total,
        is_cut=found.is_cut,
        buckets=tuple(copied(BucketAnswer, one) for one in found.buckets),
    )


def entry_answer(entry: AuditEntry) -> AuditEntryAnswer:
    return AuditEntryAnswer(
        record=structs.asdict(entry.record),
        outcome=None if entry.outcome is None else structs.asdict(entry.outcome),
        status=entry.status,
        about=subject_of(entry),
    )


def listed_entry(entry: AuditEntry) -> AuditEntryAnswer:
    """Return the same for a list: without the fields of what signs where nothing is signed."""
    answer = entry_answer(entry)
    for part in filter(None, (answer.record, answer.outcome)):
        for name in _RARE:
            if not part[name]:
                del part[name]
    return answer


def verification_answer(found: Verification) -> VerificationAnswer:
    return copied(VerificationAnswer, found, ok=not found.problems)
