"""The logs of several servers, each a chain of its own, in one folder: found, verified and read."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.entries import AuditEntry, Query, entries_of
from skillhouse.audit.state_heads import HeadsByLog, StateHead
from skillhouse.audit.verify import LogProblem, Verification, verify_log
from skillhouse.floor.structs import replace

LOG_PATTERN = "NAME/…/audit.jsonl"
_LOG = "audit.jsonl"
_DEPTH = 4
"""Folders below the one that is given."""
LOGS_MAX = 1_000


class ServerLogs(Struct, frozen=True, kw_only=True):
    """What became of verifying each log of a folder."""

    logs: tuple[tuple[Path, Verification], ...]
    absent: tuple[StateHead, ...]
    """The newest head of each log that the state knows and the folder has not."""
    is_alone: bool
    """Whether there was no state with heads to compare them with."""


def find_logs(folder: Path) -> tuple[Path, ...]:
    """Return the logs below a folder, sorted; links are not followed.

    OSError: the folder cannot be read.
    """
    found: list[Path] = []
    _look(folder, _DEPTH, found)
    return tuple(sorted(found)[:LOGS_MAX])


def _look(folder: Path, depth: int, found: list[Path]) -> None:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name == _LOG and entry.is_file(follow_symlinks=False):
                found.append(folder / entry.name)
            elif depth and entry.is_dir(follow_symlinks=False):
                _look(folder / entry.name, depth - 1, found)


def verify_all(logs: Sequence[Path], *, heads: HeadsByLog | None = None) -> ServerLogs:
    """Verify logs with the keys beside them, and look for those that the state knows besides.

    Args:
        logs: The active files.
        heads: What the state knows of logs, read before this; nothing is compared when None.

    Raises:
        AuditError: a file cannot be opened, or is a link.
    """
    found = tuple((path, _known(verify_log(path, heads=heads), heads)) for path in logs)
    names = {one.name for _, one in found}
    absent = (rows[-1] for name, rows in (heads or {}).items() if name not in names and rows)
    return ServerLogs(logs=found, absent=tuple(absent), is_alone=heads is None)


def _known(found: Verification, heads: HeadsByLog | None) -> Verification:
    """Report a log with a server's name that the state has never heard of."""
    if heads is None or found.heads or not found.servers or found.name in heads:
        return found
    message = "the state knows no record of this log, so that its server's name is not shown"
    problem = LogProblem(line=0, code="state-head-missing", message=message)
    return replace(found, problems=(*found.problems, problem))


def entries_of_all(logs: Sequence[Path], query: Query) -> Iterator[AuditEntry]:
    """Yield what a query wants from several logs, newest first.

    Clocks of servers differ: the order of records of two of them is that of their clocks.
    """
    parts = (entries_of(path, query) for path in logs)
    return heapq.merge(*parts, key=lambda entry: entry.record.id, reverse=True)
