"""What is wrong with a log now, in words for a person who can mend it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.audit.log import AuditLog

FREE_MIN = 1 << 20
"""Free bytes under which a log is near its end; a record has some 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that is wrong. The message names no path, so that it can be shown anywhere."""

    code: str
    message: str


def troubles(log: AuditLog) -> tuple[Trouble, ...]:
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
    """Return what would stop the next record or checkpoint, as far as it shows without writing.

    Args:
        path: The log; it need not be there yet.
        checkpoints: Its second place.
    """
    why = _why_not(path)
    if why:
        message = f"the audit log cannot be written ({why}): effects are refused until it is"
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


def _why_not(path: Path) -> str:
    """Return why a file cannot be opened to be appended to, or nothing; it is not made."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW))
    except FileNotFoundError:
        writable = os.access(_first_there(path.parent), os.W_OK | os.X_OK)
        return "" if writable else "permission denied"
    except OSError as error:
        return (error.strerror or "input or output error").lower()
    return ""


def _first_there(directory: Path) -> Path:
    return next((p for p in (directory, *directory.parents) if p.exists()), Path("/"))
