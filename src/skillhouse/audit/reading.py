"""Looks records up, with each outcome joined to its intent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from skillhouse.audit.files import open_file, read_at
from skillhouse.audit.line import MAX_LINE, LineError, opened
from skillhouse.audit.record import AuditError, AuditRecord

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A call as a reader wants it: what was to happen, and what came of it."""

    record: AuditRecord
    """The intent, or the only record there is (a refusal, a repair, an outcome by itself)."""
    outcome: AuditRecord | None
    status: str
    """That of the outcome or of the record itself; "unknown" for an intent without outcome."""


def read_records(
    path: Path,
    *,
    tool: str | None = None,
    status: str | None = None,
    since: str | None = None,
    agent: str | None = None,
    limit: int | None = None,
    newest_first: bool = True,
) -> tuple[AuditEntry, ...]:
    """Return the entries that fit every filter; lines that are no records are passed over.

    Args:
        path: The log; one that is missing has no entries.
        tool: Name of the tool.
        status: ok, error, denied, pending, or "unknown".
        since: UTC time or its beginning ("2026-01-31"); earlier records are left out.
        agent: Name of the agent.
        limit: At most so many.
        newest_first: False gives them as they stand in the log.

    Raises:
        AuditError: the log cannot be read.
    """

    def fits(entry: AuditEntry) -> bool:
        return (
            (tool is None or entry.record.tool == tool)
            and (status is None or entry.status == status)
            and (since is None or entry.record.ts >= since)
            and (agent is None or entry.record.agent == agent)
        )

    found: list[AuditEntry] = []
    # From the end, so that the newest few of a long log are found at once.
    for entry in _entries(path):
        if newest_first and limit is not None and len(found) >= limit:
            break
        if fits(entry):
            found.append(entry)
    return tuple(found if newest_first else found[::-1][:limit])


def find_record(path: Path, id_prefix: str) -> AuditEntry | None:
    """Return the entry whose record, or whose outcome, has an id that begins so, or None.

    Raises:
        AuditError: `record-ambiguous`, or the log cannot be read.
    """
    prefix = id_prefix.upper()
    marks = (f'"id":"{prefix}'.encode(), f'"intent":"{prefix}'.encode())
    entries = list(_entries(path, wanted=lambda line: any(mark in line for mark in marks)))
    found = [entry for entry in entries if entry.record.id.startswith(prefix)]
    if not prefix or not found:
        return None
    if len(found) > 1:
        message = f"`{id_prefix}` fits {len(found)} records, give more of it"
        raise AuditError("record-ambiguous", message, path)
    whole = found[0]
    if whole.record.kind == "outcome" and whole.record.intent:
        # The id of an outcome was given, so its intent has another.
        mark = f'"id":"{whole.record.intent}"'.encode()
        for entry in _entries(path, wanted=lambda line: mark in line):
            return replace(entry, outcome=whole.record, status=whole.record.status)
    return whole


def _entries(
    path: Path, *, wanted: Callable[[bytes], bool] = lambda line: True
) -> Iterator[AuditEntry]:
    """Yield the entries from the last to the first, and then outcomes whose intent is gone."""
    outcomes: dict[str, AuditRecord] = {}
    for line in _lines_backwards(path):
        if not wanted(line):
            continue
        try:
            record = opened(line)
        except LineError:
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


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a log without their newlines, the last one first."""
    try:
        handle = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    except OSError as error:
        message = f"the audit log cannot be read ({error.strerror})"
        raise AuditError("log-unreadable", message, path) from error
    try:
        end = os.fstat(handle).st_size
        rest = b""
        while end:
            start = max(0, end - _CHUNK)
            first, *lines = (read_at(handle, start, end - start) + rest).split(b"\n")
            yield from reversed(lines)
            # No record is that long; what is dropped would be passed over anyway.
            rest = first if len(first) <= 2 * MAX_LINE else b"?"
            end = start
        yield rest
    finally:
        os.close(handle)
