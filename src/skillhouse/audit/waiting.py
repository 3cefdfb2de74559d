"""What the log holds while it is down, and where it says so."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from skillhouse.audit.known import KnownSecrets
from skillhouse.audit.line import EncodedRecord, encode_record
from skillhouse.audit.record import AuditDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """Why and since when the log cannot be written, and what that cost so far."""

    code: str
    message: str
    since: str
    """UTC, as in a record."""
    buffered: int
    """Records that wait in memory."""
    dropped: int
    """Records that found no room there."""
    refused: int
    """Effects that were refused for it."""


class Pending(NamedTuple):
    """A record that still lacks its place in the chain."""

    milliseconds: int
    ts: str
    told: EncodedRecord
    id: str = ""
    """Given while the record waits, so that its outcome can name it."""


def to_stderr(text: str) -> None:
    """Write a line for people."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def boot_id() -> str:
    """Return the beginning of the id of this start of the system, where it has one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8")[:8]
    except (OSError, ValueError):
        return ""


def gap_note(since: str, dropped: int, refused: int, boot: str) -> EncodedRecord:
    """Return the record of how long the log was down, and what that cost."""
    detail: dict[str, object] = {"since": since}
    if dropped:
        detail["dropped_records"] = dropped
    if refused:
        detail["refused_effects"] = refused
    return repair_note("the log was down", detail, boot)


def repair_note(reason: str, detail: dict[str, object], boot: str) -> EncodedRecord:
    """Return the record of something that was wrong with the log and is over."""
    draft = AuditDraft(kind="repair", tool="audit", reason=reason, detail=detail)
    return encode_record(draft, KnownSecrets(), boot=boot)
