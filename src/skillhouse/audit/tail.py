"""Where the next record is chained to, and what a power cut left behind the last one."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from skillhouse.audit.files import read_at
from skillhouse.audit.head import LogHead
from skillhouse.audit.keys import LogKeys
from skillhouse.audit.line import MAX_LINE, opened
from skillhouse.audit.record import ZEROS, AuditError, AuditRecord
from skillhouse.audit.unreadable import LineError

MAX_BEHIND = 16 * 1024 * 1024
"""Bytes by which a side file may be behind its log; more is no crash."""

_FIRST_LOOK = 4_096


@dataclass(slots=True, kw_only=True)
class Tail:
    """The end of the log, as an append finds it under the lock. Not frozen, as `LogHead` is not."""

    seq: int = 0
    hash: str = ZEROS
    id: str = ""
    size: int
    """Bytes of the file, those of `torn` included."""
    torn: bytes = b""
    """What stands behind the last record and is none: an append that a power cut stopped."""
    is_open: bool = False
    """Whether the file does not end with a newline."""
    lost: int = 0
    """Records that were written but not durable, and are gone."""
    line: bytes = b""
    """The last line where this process wrote it: an append finds it still there, or looks anew."""


def read_tail(handle: int, head: LogHead, path: Path, keys: LogKeys | None) -> Tail:
    """Return the end of the file, compared with what the side file remembers.

    Raises:
        AuditError: the end is not one that appends and a power cut leave.
    """
    size = os.fstat(handle).st_size
    if size == 0 and head.seq == 0:
        return Tail(size=0)
    if size >= head.size:
        tail = _behind(handle, head, size, path, keys)
    else:
        tail = _cut(handle, head, size, path, keys)
    if b"\n" in tail.torn[-1:] or len(tail.torn) > 2 * MAX_LINE:
        raise AuditError("log-foreign", "the log ends with what is no record", path)
    return tail


def _behind(handle: int, head: LogHead, size: int, path: Path, keys: LogKeys | None) -> Tail:
    """Return the tail of a log that reaches to where the side file says, or further."""
    if size - head.size > MAX_BEHIND:
        raise AuditError("log-foreign", "the log is longer than its side file says", path)
    seq, last_hash, last_id = head.seq, head.hash, ""
    # A file that follows an archive begins behind the record which the side file names.
    if head.seq and head.size:
        last = last_record(handle, head.size, keys)
        if last is None or (last.seq, last.hash) != (head.seq, head.hash):
            raise AuditError("log-changed", "the last record is not the one written", path)
        last_id = last.id
    rest = read_at(handle, head.size, size - head.size) if size > head.size else b""
    while rest:
        line, newline, after = rest.partition(b"\n")
        record = chained(line, seq, last_hash, keys) if newline else None
        if record is None:
            break
        seq, last_hash, last_id, rest = record.seq, record.hash, record.id, after
    return _ended(Tail(seq=seq, hash=last_hash, id=last_id, size=size, torn=rest), keys)


def _cut(handle: int, head: LogHead, size: int, path: Path, keys: LogKeys | None) -> Tail:
    """Return the tail of a log that is shorter than the side file says."""
    data = read_at(handle, max(0, size - 2 * MAX_LINE), 2 * MAX_LINE)
    whole = data.rfind(b"\n") + 1
    last = last_record(handle, size - len(data) + whole, keys)
    if last is None or last.seq < head.durable:
        raise AuditError("log-truncated", f"expected {head.seq} records, the end is gone", path)
    tail = Tail(seq=last.seq, hash=last.hash, id=last.id, size=size, torn=data[whole:])
    tail = _ended(tail, keys)
    return replace(tail, lost=head.seq - tail.seq)


def _ended(tail: Tail, keys: LogKeys | None) -> Tail:
    """Return the tail with a last record that lacks but its newline, which a repair gives it."""
    tail = replace(tail, is_open=bool(tail.torn))
    record = chained(tail.torn, tail.seq, tail.hash, keys) if tail.torn else None
    if record is None:
        return tail
    return replace(tail, seq=record.seq, hash=record.hash, id=record.id, torn=b"")


def last_record(handle: int, end: int, keys: LogKeys | None) -> AuditRecord | None:
    """Return the record whose line ends at byte `end`, or None where that is none."""
    for look in (_FIRST_LOOK, MAX_LINE + 1):
        data = read_at(handle, max(0, end - look), min(look, end))
        start = data.rfind(b"\n", 0, -1) + 1
        if start or len(data) == end:
            try:
                return opened(data[start:-1], keys) if data.endswith(b"\n") else None
            except LineError:
                return None
    return None


def chained(line: bytes, seq: int, last_hash: str, keys: LogKeys | None) -> AuditRecord | None:
    """Return the record of a line that follows the record `seq` with that hash, or None."""
    try:
        record = opened(line, keys)
    except LineError:
        return None
    return record if (record.seq, record.prev) == (seq + 1, last_hash) else None


def torn_facts(torn: bytes) -> dict[str, object]:
    """Return what a repair record says about torn bytes, by which `verify_log` accepts them."""
    return {"torn_bytes": len(torn), "torn_sha256": hashlib.sha256(torn).hexdigest()}
