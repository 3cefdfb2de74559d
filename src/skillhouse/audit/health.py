"""The state of a log that cannot be written, and problems that a person must solve."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from skillhouse.audit.line import EncodedRecord, encode_record
from skillhouse.audit.record import AuditDraft
from skillhouse.audit.redaction import KnownSecrets
from skillhouse.floor.machine import STATE_ADVICE, is_unwritable

FREE_MIN = 1 << 20
"""Free bytes under which a log is near its end; a record has some 500."""


class Trouble(Struct, frozen=True, kw_only=True):
    """One thing that is wrong. The message names no path, so that it can be shown anywhere."""

    code: str
    message: str


class WatchedLog(Protocol):
    """The parts of a log that show its problems."""

    path: Path
    checkpoints: Path

    @property
    def degraded(self) -> Degraded | None: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...


def troubles(log: WatchedLog) -> tuple[Trouble, ...]:
    """Return what this process met when it wrote, and what would stop the next record."""
    found = []
    down = log.degraded
    if down is not None:
        cost = f"effects refused {down.refused}, records that wait in memory {down.buffered}"
        lost = f", records without room there {down.dropped}" if down.dropped else ""
        message = f"{down.message}, since {down.since[:19]} UTC: {cost}{lost}"
        found.append(Trouble(code=down.code, message=message))
    else:
        found += stuck(log.path, log.checkpoints)
    found += [Trouble(code="log-needs-care", message=message) for message in log.warnings]
    return tuple(found)


def stuck(path: Path, checkpoints: Path) -> tuple[Trouble, ...]:
    """Return what would stop the next record or checkpoint, as far as it shows without writing."""
    why, is_of_place = _why_not(path)
    if why:
        said = f"the audit log cannot be written ({why}): effects are refused until it is"
        message = f"{said}; {STATE_ADVICE}" if is_of_place else said
        return (Trouble(code="log-unwritable", message=message),)
    found = []
    there = _first_there(path.parent)
    free = os.statvfs(there)
    if free.f_bavail * free.f_frsize < FREE_MIN:
        message = "less than 1 MB is free for the audit log: make room before effects are refused"
        found.append(Trouble(code="log-disk-full", message=message))
    if not os.access(_first_there(checkpoints), os.W_OK | os.X_OK):
        message = "the audit log's second place cannot be written: a cut log would not show"
        found.append(Trouble(code="checkpoints-unwritable", message=message))
    return tuple(found)


def _why_not(path: Path) -> tuple[str, bool]:
    """Return why a file cannot be opened to be appended to, or nothing, and whether another place
    would do; it is not made."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW))
    except FileNotFoundError:
        writable = os.access(_first_there(path.parent), os.W_OK | os.X_OK)
        return ("", False) if writable else ("its place is read-only", True)
    except OSError as error:
        why = (error.strerror or "input or output error").lower()
        return why, is_unwritable(error)
    return "", False


def _first_there(directory: Path) -> Path:
    return next((p for p in (directory, *directory.parents) if p.exists()), Path("/"))


class Degraded(Struct, frozen=True, kw_only=True):
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
    encoded: EncodedRecord
    id: str = ""
    """Given while the record waits, so that its outcome can name it."""


def to_stderr(text: str) -> None:
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
