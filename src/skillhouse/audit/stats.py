"""Counts what the log holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from skillhouse.audit.reading import AuditEntry

MAX_NAMES = 1_000
"""Different names that are counted one by one; the rest goes under `OTHERS`."""
OTHERS = "(others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Calls by what they were; the largest counts first, days in their order."""

    total: int
    first: str
    """Time of the oldest entry, empty when there is none."""
    last: str
    by_status: Mapping[str, int]
    by_tool: Mapping[str, int]
    by_user: Mapping[str, int]
    by_agent: Mapping[str, int]
    by_tier: Mapping[str, int]
    by_day: Mapping[str, int]
    denied_by_tool: Mapping[str, int]
    outages: int
    """Times that the log could not be written, as it says itself."""
    refused: int
    """Effects that were refused meanwhile."""
    dropped: int
    """Records that found no room meanwhile."""


def stats_of(entries: Iterable[AuditEntry]) -> Stats:
    """Return the counts of entries, in any order; the log's notes about itself are no calls."""
    counters: dict[str, Counter[str]] = {
        name: Counter() for name in ("status", "tool", "user", "agent", "tier", "day", "denied")
    }
    total, first, last = 0, "", ""
    gaps: list[tuple[int, int]] = []
    for entry in entries:
        record = entry.record
        if record.kind in ("repair", "rotation"):
            refused, dropped = (
                record.detail.get(n) for n in ("refused_effects", "dropped_records")
            )
            if refused or dropped:
                gaps.append((_number(refused), _number(dropped)))
            continue
        total += 1
        first = min(first or record.ts, record.ts)
        last = max(last, record.ts)
        values = {
            "status": entry.status,
            "tool": record.tool,
            "user": record.user,
            "agent": record.agent,
            "tier": record.effective_tier or record.tier,
            "day": record.ts[:10],
        }
        for name, value in values.items():
            _count(counters[name], value)
        if entry.status == "denied":
            _count(counters["denied"], record.tool)
    most = {
        name: dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))
        for name, counter in counters.items()
    }
    return Stats(
        total=total,
        first=first,
        last=last,
        by_status=most["status"],
        by_tool=most["tool"],
        by_user=most["user"],
        by_agent=most["agent"],
        by_tier=most["tier"],
        by_day=dict(sorted(counters["day"].items())),
        denied_by_tool=most["denied"],
        outages=len(gaps),
        refused=sum(refused for refused, _ in gaps),
        dropped=sum(dropped for _, dropped in gaps),
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _count(counter: Counter[str], value: str) -> None:
    counter[value if value in counter or len(counter) < MAX_NAMES else OTHERS] += 1
