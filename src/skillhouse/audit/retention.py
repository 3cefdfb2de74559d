"""Packs archives and shortens the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from skillhouse.audit.archives import (
    STAGES,
    Archive,
    archives_of,
    pack_archive,
    replace_packed,
    tidying,
)
from skillhouse.audit.keys import LogKeys
from skillhouse.audit.line import opened
from skillhouse.audit.record import AuditDraft, AuditError
from skillhouse.audit.redacted_archive import archive_lines, is_permanent, reduced_lines
from skillhouse.audit.timestamps import day_number, day_of
from skillhouse.audit.unreadable import LineError
from skillhouse.audit.verify import archive_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long records are kept; those of the permanent classes always are, and whole."""

    summary_days: int = 30
    """Days after which arguments and details are taken out (S000-127)."""
    keep_days: int = 90
    """Days after which records are removed (S000-126)."""


def tidy(log: Path, keys: LogKeys, retention: Retention, *, now: int) -> tuple[AuditDraft, ...]:
    """Pack the archives of a log and shorten those whose time has come.

    At each moment, crash or not, each record stands in one file that verifies. Where the day is
    further from the newest archive than `Retention.summary_days`, nothing is shortened this time:
    a clock that was set must not cost the log.

    Args:
        log: The log.
        keys: Its keys.
        retention: How long what is kept.
        now: Milliseconds since 1970.

    Returns:
        What to record about it.

    Raises:
        AuditError: `archive-changed`, an archive does not verify, and is left as it is.
        OSError: something cannot be read or written.
    """
    with tidying(log) as mine:
        if not mine:
            return ()
        archives = [one if one.is_packed else pack_archive(one) for one in archives_of(log)]
        today = day_number(day_of(now))
        done = []
        if not archives or abs(today - day_number(archives[-1].day)) > retention.summary_days:
            return ()
        for place, archive in enumerate(archives):
            age = today - day_number(archive.day)
            stage = (
                "kept"
                if age > retention.keep_days
                else "summary"
                if age > retention.summary_days
                else ""
            )
            if STAGES.index(stage) > STAGES.index(archive.stage):
                archives[place] = _shortened(archives, place, stage, keys)
                done.append(_said(archive, stage))
        return tuple(done)


def _shortened(archives: Sequence[Archive], place: int, stage: str, keys: LogKeys) -> Archive:
    archive = archives[place]
    # INVARIANT: what is sealed anew was whole before, or a change would be sealed with it.
    problem = archive_problem(archive, keys)
    if problem is not None:
        message = f"the archive is not shortened: {problem.message}"
        raise AuditError("archive-changed", message, archive.path)
    # An outcome may stand in the file after that of its intent.
    kept: set[str] = set()
    for near in archives[max(0, place - 1) : place + 2]:
        kept |= _permanent_ids(near, keys)
    name = archive.path.name.removesuffix(".gz").removesuffix(".jsonl")
    name = name.removesuffix(f".{archive.stage}") if archive.stage else name
    target = archive.path.with_name(f"{name}.{stage}.jsonl.gz")
    lines = reduced_lines(archive_lines(archive, keys)[1], stage, keys, kept_ids=frozenset(kept))
    replace_packed(target, lines)
    archive.path.unlink()
    return replace(archive, path=target, stage=stage)


def _permanent_ids(archive: Archive, keys: LogKeys) -> set[str]:
    found = set()
    for line in archive_lines(archive, keys)[1]:
        try:
            record = opened(line[:-1], keys, summaries=True)
        except LineError:
            continue
        if is_permanent(record):
            found |= {record.id, record.intent} - {""}
    return found


def _said(archive: Archive, stage: str) -> AuditDraft:
    reason = {
        "summary": "arguments and details were taken out after their time",
        "kept": "records were removed after their time",
    }[stage]
    detail = {"event": stage, "archive": archive.path.name}
    return AuditDraft(kind="rotation", tool="audit", reason=reason, detail=detail)
