"""Finds the calls in a log, and counts them."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from skillhouse.audit.archives import LogSnapshot, archive_lines, take_snapshot
from skillhouse.audit.line import LineError, opened
from skillhouse.audit.log_files import LogKeys, backwards, read_keys
from skillhouse.audit.record import PUBLISHED, AuditError, AuditRecord
from skillhouse.floor import dataclass
from skillhouse.floor.structs import replace

_EQUAL = ("tool", "agent", "user", "kind", "skill")
"""Fields of a query that a record has likewise."""
_PUBLISHED_AS = {ours: published for published, ours in PUBLISHED.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
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
            and self.client in (None, record.client, record.client.partition(" ")[0])
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
