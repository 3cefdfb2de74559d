"""Counts of calls by time: what they were, what was decided, how long they took."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.audit import AuditEntry, first_moment, last_moment, series_of
from skillhouse.audit import series as module
from skillhouse.audit.record import AuditRecord, DecidedPermission
from skillhouse.audit.series import BUCKETS_MAX, LATENCY_STEPS

START = datetime(2026, 1, 31, tzinfo=UTC)
DAY = timedelta(days=1)


def record(moment: datetime, *, kind: str = "intent", **fields: Any) -> AuditRecord:
    values: dict[str, Any] = dict.fromkeys(
        ("agent", "user", "channel", "argument_digest", "reason", "status", "intent", "prev"), ""
    )
    values |= {"arguments": {}, "permissions": (), "duration_ms": 0, "detail": {}, "hash": ""}
    ts = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
    return AuditRecord(id="0", seq=1, ts=ts, kind=kind, tool="exec", **{**values, **fields})


def call(
    at: timedelta, *effects: str, took: int | None = None, status: str = "ok", kind: str = "intent"
) -> AuditEntry:
    permissions = tuple(
        DecidedPermission(action="exec", resource="x", effect=effect, layer="user")
        for effect in effects
    )
    outcome = None
    if took is not None:
        outcome = record(START + at, kind="outcome", duration_ms=took)
    made = record(START + at, permissions=permissions, kind=kind)
    return AuditEntry(record=made, outcome=outcome, status=status)


def test_calls_are_counted_by_the_hour_they_began_in() -> None:
    entries = [
        call(timedelta(hours=25)),
        call(timedelta(hours=2, minutes=59), "allow", "deny", status="denied"),
        call(timedelta(hours=2), "allow", "ask", took=3),
        call(timedelta(hours=2), "allow", took=70_000),
        call(timedelta(0), took=12),
        call(timedelta(0), kind="repair"),
        call(timedelta(seconds=-1)),
        # A rule that denied what the command would start.
        call(timedelta(hours=1), status="denied"),
    ]
    found = series_of(entries, START, START + DAY, buckets=24)
    assert (found.width_seconds, len(found.buckets), found.total) == (3_600, 24, 5)
    assert (found.since, found.until) == ("2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z")
    first, second, third, *rest = found.buckets
    assert second.by_verdict == {"deny": 1}
    assert (first.calls, first.by_verdict, first.p50_ms, first.p95_ms) == (1, {"none": 1}, 12, 12)
    assert third.start == "2026-01-31T02:00:00Z"
    assert third.by_status == {"denied": 1, "ok": 2}
    assert third.by_verdict == {"allow": 1, "ask": 1, "deny": 1}
    assert (third.p50_ms, third.p95_ms, third.max_ms) == (5, 70_000, 70_000)
    assert all((one.calls, one.p50_ms) == (0, None) for one in rest)


def test_a_span_that_is_none_is_refused() -> None:
    for since, until, buckets in ((START, START, 1), (START, START + DAY, 0)):
        with pytest.raises(ValueError, match="span of time"):
            series_of((), since, until, buckets=buckets)
    with pytest.raises(ValueError, match="span of time"):
        series_of((), START, START + DAY, buckets=BUCKETS_MAX + 1)


def test_a_log_without_an_end_is_read_to_the_bound_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 100)
    endless = itertools.repeat(call(timedelta(0)))
    found = series_of(endless, START, START + DAY, buckets=1)
    assert (found.total, found.is_cut) == (100, True)


@pytest.mark.parametrize(
    ("text", "first", "after"),
    [
        ("2026", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("2026-02", "2026-02-01T00:00:00", "2026-03-01T00:00:00"),
        ("2024-02-29", "2024-02-29T00:00:00", "2024-03-01T00:00:00"),
        ("2026-01-31T23", "2026-01-31T23:00:00", "2026-02-01T00:00:00"),
        ("2026-01-31T23:59", "2026-01-31T23:59:00", "2026-02-01T00:00:00"),
        ("2026-01-31T23:59:58", "2026-01-31T23:59:58", "2026-01-31T23:59:59"),
        ("2026-01-31T23:59:58.500", "2026-01-31T23:59:58.500000", "2026-01-31T23:59:58.501000"),
    ],
)
def test_the_beginning_of_a_time_is_all_that_begins_so(text: str, first: str, after: str) -> None:
    assert first_moment(text).isoformat() == f"{first}+00:00"
    assert last_moment(text).isoformat() == f"{after}+00:00"


@pytest.mark.parametrize("text", ["2026-13", "2026-02-30", "0000", "9999", "2026-01-31T24"])
def test_a_time_that_is_none_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        last_moment(text)


@given(
    seconds=st.lists(st.integers(0, 40 * 86_400 - 1), max_size=30),
    days=st.integers(1, 40),
    buckets=st.integers(1, BUCKETS_MAX),
    took=st.integers(0, 200_000),
)
def test_every_call_within_the_span_is_in_one_bucket(
    seconds: list[int], days: int, buckets: int, took: int
) -> None:
    entries = [call(timedelta(seconds=one), took=took) for one in seconds]
    found = series_of(entries, START, START + days * DAY, buckets=buckets)
    inside = [one for one in seconds if one < days * 86_400]
    assert sum(one.calls for one in found.buckets) == found.total == len(inside)
    assert 1 <= len(found.buckets) <= buckets
    for one in found.buckets:
        if one.calls:
            assert one.p50_ms is not None
            assert one.p50_ms <= one.max_ms == took
            assert one.p50_ms == took or one.p50_ms in LATENCY_STEPS
