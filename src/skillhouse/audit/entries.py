"""Finds the calls in a log, counts them, and gives them as CSV, JSON and write-gate lines."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.archives import LogSnapshot, archive_lines, take_snapshot
from skillhouse.audit.line import LineError, opened
from skillhouse.audit.log_files import LogKeys, backwards, read_keys
from skillhouse.audit.record import PUBLISHED, AuditError, AuditRecord, client_name
from skillhouse.floor import structs
from skillhouse.floor.structs import replace

_EQUAL = ("tool", "agent", "user", "kind", "skill")
"""Fields of a query that a record has likewise."""
_PUBLISHED_AS = {ours: published for published, ours in PUBLISHED.items()}


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A call as a reader wants it: what was to happen, and what came of it."""

    record: AuditRecord
    """The intent, or the only record there is (a refusal, a repair, an outcome by itself)."""
    outcome: AuditRecord | None
    status: str
    """That of the outcome or of the record itself; "unknown" for an intent without outcome."""

    @property
    def result(self) -> str:
        """The status as the published design calls it; "unknown" or empty where it has none."""
        return _PUBLISHED_AS.get(self.status, self.status)


class Query(Struct, frozen=True, kw_only=True):
    tool: str | None = None
    status: str | None = None
    """One of our statuses, a published result, or "unknown"."""
    since: str | None = None
    """UTC time or its beginning ("2026-01-31"); earlier records are left out."""
    until: str | None = None
    """UTC time or its beginning; records after all that begins so are left out."""
    agent: str | None = None
    user: str | None = None
    tier: str | None = None
    """The tier after escalation, or the tier where there was none."""
    kind: str | None = None
    skill: str | None = None
    """Name of the skill that was loaded, or whose code was called."""
    text: str | None = None
    """Words that must all be in what was asked for, in any case."""
    judged: bool = False
    """Only calls that the write gate judged."""
    client: str | None = None
    """The client as the record has it, or its beginning in whole words: its name."""
    server: str | None = None
    """Name of the server whose log has the record."""
    own_server: str = ""
    """Name of the server whose log is read: records without a name are its."""

    def fits(self, entry: AuditEntry) -> bool:
        record = entry.record
        tier = record.effective_tier or record.tier
        return (
            all(getattr(self, name) in (None, getattr(record, name)) for name in _EQUAL)
            and (self.status is None or self.status in (entry.status, entry.result))
            and (self.since is None or record.ts >= self.since)
            and (self.until is None or record.ts[: len(self.until)] <= self.until)
            and (self.tier is None or tier == self.tier)
            and (not self.judged or bool(record.gate_verdict))
            and (self.client is None or f"{record.client} ".startswith(f"{self.client} "))
            and self.server in (None, record.server or self.own_server)
            and (self.text is None or _has_words(record, self.text))
        )


def _has_words(record: AuditRecord, words: str) -> bool:
    asked = (f"{one.action} {one.resource}" for one in record.permissions)
    values = (str(value) for value in record.arguments.values())
    parts = (record.tool, record.skill, record.reason, record.error, *asked, *values)
    text = "\n".join(parts).casefold()
    return all(word in text for word in words.casefold().split())


def read_records(
    path: Path,
    *,
    tool: str | None = None,
    status: str | None = None,
    since: str | None = None,
    until: str | None = None,
    agent: str | None = None,
    user: str | None = None,
    tier: str | None = None,
    limit: int | None = None,
    newest_first: bool = True,
    key: bytes | None = None,
) -> tuple[AuditEntry, ...]:
    """Return the entries that fit every filter of `Query`; a missing log has none.

    `newest_first=False` gives them in the order of the log. An operator who gave the log's secret
    passes it as `key`. `AuditError` if the log cannot be read, or its key is gone.
    """
    query = Query(
        tool=tool, status=status, since=since, until=until, agent=agent, user=user, tier=tier
    )
    # From the end, so that the newest few of a long log are found at once.
    entries = entries_of(path, query, key=key)
    if newest_first:
        return tuple(entries if limit is None else itertools.islice(entries, limit))
    return tuple(list(entries)[::-1][:limit])


def entries_of(path: Path, query: Query, *, key: bytes | None = None) -> Iterator[AuditEntry]:
    """Yield the entries that a query wants, newest first, without holding them all."""
    return (entry for entry in _entries(path, key, since=query.since) if query.fits(entry))


def last_uses(
    path: Path, *, since: str | None = None, key: bytes | None = None
) -> Mapping[str, str]:
    """Return the UTC time of the newest call of each skill that was done, by its name, whatever the
    workspace; `AuditError`. Archives of days before `since` are not read."""
    times: dict[str, str] = {}
    for entry in _entries(path, key, since=since):
        if entry.record.skill and entry.status in ("ok", "unknown"):
            times.setdefault(entry.record.skill, entry.record.ts)
    return times


def find_record(path: Path, id_prefix: str, *, key: bytes | None = None) -> AuditEntry | None:
    """Return the one entry whose record, or whose outcome, has an id that begins so, or None."""
    prefix = id_prefix.upper()
    if not prefix.isalnum() or not prefix.isascii():
        return None
    marks = (f'"id":"{prefix}'.encode(), f'"intent":"{prefix}'.encode())
    entries = _entries(path, key, wanted=lambda line: any(mark in line for mark in marks))
    found = [entry for entry in entries if entry.record.id.startswith(prefix)]
    if not found:
        return None
    if len(found) > 1:
        message = f"`{id_prefix}` fits {len(found)} records, give more of it"
        raise AuditError("record-ambiguous", message, path)
    whole = found[0]
    if whole.record.kind == "outcome" and whole.record.intent:
        # The id of an outcome was given, so its intent has another.
        mark = f'"id":"{whole.record.intent}"'.encode()
        for entry in _entries(path, key, wanted=lambda line: mark in line):
            return replace(entry, outcome=whole.record, status=whole.record.status)
    return whole


def _entries(
    path: Path,
    key: bytes | None,
    *,
    since: str | None = None,
    wanted: Callable[[bytes], bool] = lambda line: True,
) -> Iterator[AuditEntry]:
    """Yield the entries from the last to the first, and then outcomes whose intent is gone."""
    outcomes: dict[str, AuditRecord] = {}
    taken, keys = _taken(path, key)
    for line, is_reduced in _lines_backwards(path, taken, keys, since):
        if not wanted(line):
            continue
        try:
            record = opened(line, keys, summaries=is_reduced)
        except LineError as error:
            if error.code == "key-missing":
                raise AuditError(error.code, str(error), path) from error
            continue
        if record.kind == "outcome" and record.intent:
            outcomes[record.intent] = record
        elif record.kind == "intent":
            outcome = outcomes.pop(record.id, None)
            status = "unknown" if outcome is None else outcome.status
            yield AuditEntry(record=record, outcome=outcome, status=status)
        else:
            yield AuditEntry(record=record, outcome=None, status=record.status)
    for record in outcomes.values():
        yield AuditEntry(record=record, outcome=None, status=record.status)


def _taken(path: Path, key: bytes | None) -> tuple[LogSnapshot, LogKeys | None]:
    try:
        taken = take_snapshot(path)
        try:
            # After the files: the key of a log is there before its first record.
            return taken, read_keys(path, key)
        except BaseException:
            if taken.handle != -1:
                os.close(taken.handle)
            raise
    except OSError as error:
        raise _unreadable(path, error) from error


def _lines_backwards(
    path: Path, taken: LogSnapshot, keys: LogKeys | None, since: str | None
) -> Iterator[tuple[bytes, bool]]:
    """Yield each line without its newline, the last first, and whether its previews may be gone."""
    try:
        if taken.handle != -1:
            try:
                for line in backwards(taken.handle, taken.size):
                    yield line, False
            finally:
                os.close(taken.handle)
        for archive in reversed(taken.archives):
            # Its records are of that day, or of earlier ones after the clock was set.
            if since is not None and archive.day < since[:10]:
                continue
            archive, found = archive_lines(archive, keys)
            lines: list[bytes] = []
            try:
                lines.extend(found)
            except AuditError as error:
                # `verify_log` says so; each record is checked by itself.
                if error.code != "archive-changed":
                    raise
            for line in reversed(lines):
                yield line.rstrip(b"\n"), bool(archive.stage)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> AuditError:
    message = f"the audit log cannot be read ({error.strerror or error})"
    return AuditError("log-unreadable", message, path)


MAX_NAMES = 1_000
"""Different names that are counted one by one; the rest goes under `OTHERS`."""
OTHERS = "(others)"


class Stats(Struct, frozen=True, kw_only=True):
    """Calls by what they were; the largest counts first, days in their order."""

    total: int
    first: str
    """Time of the oldest entry, empty when there is none."""
    last: str
    by_status: Mapping[str, int]
    by_tool: Mapping[str, int]
    by_user: Mapping[str, int]
    by_agent: Mapping[str, int]
    by_client: Mapping[str, int]
    """By the name of the client, without its version."""
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
        name: Counter()
        for name in ("status", "tool", "user", "agent", "client", "tier", "day", "denied")
    }
    total, first, last = 0, "", ""
    gaps: list[tuple[int, int]] = []
    for entry in entries:
        record = entry.record
        if record.kind in ("repair", "rotation"):
            lost = [record.detail.get(name) for name in ("refused_effects", "dropped_records")]
            if any(lost):
                gaps.append((_number(lost[0]), _number(lost[1])))
            continue
        total += 1
        first = min(first or record.ts, record.ts)
        last = max(last, record.ts)
        values = {
            "status": entry.status,
            "tool": record.tool,
            "user": record.user,
            "agent": record.agent,
            "client": client_name(record.client),
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
        by_client=most["client"],
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


COLUMNS = (
    "id seq ts kind tool result tier effective_tier security_level agent user channel device "
    "session trace request skill skill_version skill_digest permissions decision reason error "
    "duration_ms arguments detail amount_usd tx_hash chain_id block_number gas_used gas_price "
    "session_key signer_tier confirmation_required confirmation_channel confirmation_requested_at "
    "confirmation_responded_at confirmation_approved confirmation_latency_ms approval "
    "argument_digest outcome_id finalized_at gate_verdict hash client workspace rules_digest call "
    "profile result_chars server model parent waited_ms argument_bytes"
).split()

_OF_RECORD = ("id", "seq", "ts", "kind", "hash", "argument_digest", "argument_bytes")
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
