"""Entries for other programs and people: CSV as RFC 4180 specifies, JSON, and counts."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from skillhouse.audit.entries import AuditEntry

COLUMNS = (
    "id seq ts kind tool result tier effective_tier security_level agent user channel device "
    "session trace request skill skill_version skill_digest permissions decision reason error "
    "duration_ms arguments detail amount_usd tx_hash chain_id block_number gas_used gas_price "
    "session_key signer_tier confirmation_required confirmation_channel confirmation_requested_at "
    "confirmation_responded_at confirmation_approved confirmation_latency_ms approval "
    "argument_digest outcome_id finalized_at gate_verdict hash"
).split()

_PATHS = frozenset(("path", "file", "filename", "directory"))
_WAITED = frozenset(("approved", "denied", "timeout"))
"""Verdicts of the write gate that a person's answer, or the wait for one, decides."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""First characters by which a spreadsheet takes a cell for a formula, wide forms included."""


def csv_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """Yield CSV with a heading, CR LF at the ends of lines, and no cell that a spreadsheet runs."""
    yield _csv_line(COLUMNS)
    for entry in entries:
        row = row_of(entry)
        yield _csv_line([_cell(row[name]) for name in COLUMNS])


def json_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """Yield a JSON array of entries, one on each line, all of it ASCII."""
    before = "[\n"
    for entry in entries:
        value = dataclasses.asdict(entry) | {"status": entry.status, "result": entry.result}
        yield before + json.dumps(value, ensure_ascii=True, sort_keys=True)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def write_gate_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """Yield JSON lines as the published WriteGate design has them (S000-83, S000-84).

    Only calls that the write gate judged have one, under its own verdict and with how long its
    confirmation was waited for. Of the arguments only those that name a path are left.
    """
    for entry in entries:
        record, asked = entry.record, entry.record.confirmation
        if not record.gate_verdict:
            continue
        line = {
            "ts": record.ts,
            "tool": record.tool,
            "user": record.user,
            "session": record.session,
            "params": {name: value for name, value in record.arguments.items() if name in _PATHS},
            "result": record.gate_verdict,
            "durationMs": asked.latency_ms if asked and record.gate_verdict in _WAITED else 0,
        }
        yield json.dumps(line, ensure_ascii=True) + "\n"


def row_of(entry: AuditEntry) -> dict[str, object]:
    """Return an entry as one flat row; what came later fills in what came before."""
    record = entry.record
    after = entry.outcome or record
    asked = after.confirmation or record.confirmation
    sent = after.transaction or record.transaction
    row: dict[str, object] = {
        name: getattr(after, name, "") or getattr(record, name, "") for name in COLUMNS
    }
    return row | {
        "id": record.id,
        "seq": record.seq,
        "ts": record.ts,
        "kind": record.kind,
        "hash": record.hash,
        "argument_digest": record.argument_digest,
        "arguments": _json(record.arguments),
        "detail": _json(dict(record.detail) | dict(after.detail)),
        "result": entry.result,
        "duration_ms": after.duration_ms,
        "permissions": "; ".join(f"{each.action} {each.resource}" for each in record.permissions),
        "decision": "; ".join(f"{each.effect} ({each.layer})" for each in record.permissions),
        "tx_hash": sent.tx_hash if sent else "",
        "chain_id": sent.chain_id if sent else "",
        "block_number": sent.block_number if sent else "",
        "gas_used": sent.gas_used if sent else "",
        "gas_price": sent.gas_price if sent else "",
        "confirmation_required": _word(asked.required) if asked else "",
        "confirmation_channel": asked.channel if asked else "",
        "confirmation_requested_at": asked.requested_at if asked else "",
        "confirmation_responded_at": asked.responded_at if asked else "",
        "confirmation_approved": _word(asked.approved) if asked else "",
        "confirmation_latency_ms": asked.latency_ms if asked else "",
        "approval": asked.approval if asked else "",
        "outcome_id": entry.outcome.id if entry.outcome else "",
        "finalized_at": entry.outcome.ts if entry.outcome else "",
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _word(value: bool | None) -> str:  # noqa: FBT001 - a value of the log, no switch.
    return "" if value is None else "true" if value else "false"


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    # OWASP, "CSV Injection": such a cell is text once it begins with an apostrophe.
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULA) else value


def _csv_line(values: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(values)
    return line.getvalue()


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
