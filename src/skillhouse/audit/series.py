"""Counts of calls by time, for plots: what they were, what was decided, how long they took."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct, field

from skillhouse.audit.entries import AuditEntry

BUCKETS_MAX = 200
ENTRIES_MAX = 200_000
"""Calls that one series is counted from, the newest; more than these are left out."""
WIDTHS = (60, 300, 900, 3_600, 10_800, 43_200, 86_400, 604_800, 2_592_000, 31_536_000)
"""Seconds of a bucket: a minute to a year."""
LATENCY_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
"""Milliseconds: a percentile is given as the step that it does not exceed."""
_WHOLE = "0001-01-01T00:00:00.000000"
_STRICTEST = ("deny", "ask", "allow")


class Bucket(Struct, frozen=True, kw_only=True):
    """The calls that began within one span of time."""

    start: str
    """UTC, ISO 8601 with seconds and Z."""
    calls: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    by_verdict: Mapping[str, int] = field(default_factory=dict)
    """By the strictest effect of a call's permissions; `none` for a call without any, unless it
    was denied."""
    p50_ms: int | None = None
    """What half of the calls that ran took at most, to the next step; None where none ran."""
    p95_ms: int | None = None
    max_ms: int = 0


class Series(Struct, frozen=True, kw_only=True):
    """Buckets of equal width in their order, empty ones too."""

    since: str
    until: str
    width_seconds: int
    total: int
    is_cut: bool
    """Whether older calls were left out, as there are more than `ENTRIES_MAX`."""
    buckets: tuple[Bucket, ...]


def first_moment(text: str) -> datetime:
    """Return the first moment of a UTC time or of its beginning; ValueError where there is none.

    >>> first_moment("2026-02").isoformat()
    '2026-02-01T00:00:00+00:00'
    """
    return datetime.fromisoformat(text + _WHOLE[len(text) :]).replace(tzinfo=UTC)


def last_moment(text: str) -> datetime:
    """Return the moment after all that begins so; ValueError where there is none.

    >>> last_moment("2026-12").isoformat(), last_moment("2026-02-28T23").isoformat()
    ('2027-01-01T00:00:00+00:00', '2026-03-01T00:00:00+00:00')
    """
    start = first_moment(text)
    try:
        if len(text) == len("2026"):
            return start.replace(year=start.year + 1)
        if len(text) == len("2026-12"):
            return (start + timedelta(days=31)).replace(day=1)
        steps = {10: timedelta(days=1), 13: timedelta(hours=1), 16: timedelta(minutes=1)}
        instant = timedelta(milliseconds=1) if "." in text else timedelta(seconds=1)
        return start + steps.get(len(text), instant)
    except OverflowError as error:
        raise ValueError(str(error)) from error


def width_of(seconds: float, buckets: int) -> int:
    """Return the smallest width by which a span is at most so many buckets.

    >>> width_of(86_400, 60), width_of(60, 60), width_of(1e12, 10)
    (3600, 60, 100000000000)
    """
    fitting = (width for width in WIDTHS if seconds <= width * buckets)
    return next(fitting, -int(-seconds // buckets))


class _Counts:
    """What is counted of one bucket; its size does not grow with its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.statuses: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.latencies = [0] * (len(LATENCY_STEPS) + 1)
        self.longest = 0

    def add(self, entry: AuditEntry) -> None:
        self.calls += 1
        self.statuses[entry.status] += 1
        effects = {one.effect for one in entry.record.permissions}
        # A rule may deny what a command would start before any permission is decided.
        undecided = "deny" if entry.status == "denied" else "none"
        self.verdicts[next((one for one in _STRICTEST if one in effects), undecided)] += 1
        if entry.outcome is not None:
            took = entry.outcome.duration_ms
            self.latencies[bisect.bisect_left(LATENCY_STEPS, took)] += 1
            self.longest = max(self.longest, took)

    def percentile(self, share: float) -> int | None:
        ran = sum(self.latencies)
        if not ran:
            return None
        sums = itertools.accumulate(self.latencies)
        at = next(at for at, count in enumerate(sums) if count >= share * ran)
        return min(LATENCY_STEPS[at], self.longest) if at < len(LATENCY_STEPS) else self.longest


def series_of(
    entries: Iterable[AuditEntry], since: datetime, until: datetime, *, buckets: int
) -> Series:
    """Return the calls between two moments (UTC) in at most so many buckets.

    `entries` come newest first. Those outside are passed over, and so is what is no call: events,
    and the log's notes about itself.

    Raises:
        ValueError: `until` is not after `since`, or `buckets` is not from 1 to `BUCKETS_MAX`.
    """
    seconds = (until - since).total_seconds()
    if seconds <= 0 or not 1 <= buckets <= BUCKETS_MAX:
        raise ValueError("expected a span of time, and from 1 to 200 buckets")
    width = width_of(seconds, buckets)
    counted = [_Counts() for _ in range(-int(-seconds // width))]
    total, is_cut = 0, False
    for number, entry in enumerate(entries):
        if number >= ENTRIES_MAX:
            is_cut = True
            break
        if entry.record.kind in ("event", "repair", "rotation"):
            continue
        moment = datetime.fromisoformat(entry.record.ts)
        if since <= moment < until:
            counted[int((moment - since).total_seconds() // width)].add(entry)
            total += 1
    found = tuple(
        Bucket(
            start=_text(since + timedelta(seconds=width * at)),
            calls=one.calls,
            by_status=dict(sorted(one.statuses.items())),
            by_verdict=dict(sorted(one.verdicts.items())),
            p50_ms=one.percentile(0.5),
            p95_ms=one.percentile(0.95),
            max_ms=one.longest,
        )
        for at, one in enumerate(counted)
    )
    return Series(
        since=_text(since),
        until=_text(until),
        width_seconds=width,
        total=total,
        is_cut=is_cut,
        buckets=found,
    )


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
