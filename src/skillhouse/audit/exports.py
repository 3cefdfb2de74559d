"""Gives calls for other programs: as CSV, as JSON, and as the published write-gate lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator

from skillhouse.audit.entries import AuditEntry
from skillhouse.floor import structs

COLUMNS = (
    "id seq ts kind tool result tier effective_tier security_level agent user channel device "
    "session trace request skill skill_version skill_digest permissions decision reason error "
    "duration_ms arguments detail amount_usd tx_hash chain_id block_number gas_used gas_price "
    "session_key signer_tier confirmation_required confirmation_channel confirmation_requested_at "
    "confirmation_responded_at confirmation_approved confirmation_latency_ms approval "
    "argument_digest outcome_id finalized_at gate_verdict hash client workspace rules_digest call"
).split()

_OF_RECORD = ("id", "seq", "ts", "kind", "hash", "argument_digest")
"""Columns that the outcome of a call does not change."""
_OF_TRANSACTION = ("tx_hash", "chain_id", "block_number", "gas_used", "gas_price")
_OF_CONFIRMATION = "required channel requested_at responded_at approved latency_ms".split()

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
        value = structs.asdict(entry) | {"status": entry.status, "result": entry.result}
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
        **{name: getattr(record, name) for name in _OF_RECORD},
        **{name: getattr(sent, name, "") for name in _OF_TRANSACTION},
        **{f"confirmation_{name}": _word(getattr(asked, name, "")) for name in _OF_CONFIRMATION},
        "arguments": _json(record.arguments),
        "detail": _json(dict(record.detail) | dict(after.detail)),
        "result": entry.result,
        "duration_ms": after.duration_ms,
        "permissions": "; ".join(f"{each.action} {each.resource}" for each in record.permissions),
        "decision": "; ".join(f"{each.effect} ({each.layer})" for each in record.permissions),
        "approval": asked.approval if asked else "",
        "outcome_id": entry.outcome.id if entry.outcome else "",
        "finalized_at": entry.outcome.ts if entry.outcome else "",
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _word(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    # OWASP, "CSV Injection": such a cell is text once it begins with an apostrophe.
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULA) else value


def _csv_line(values: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(values)
    return line.getvalue()
