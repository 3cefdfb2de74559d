"""Reads a whole log, archives first, and says where it was changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from skillhouse.audit.archives import Archive, size_of
from skillhouse.audit.checkpoints import checkpoint_path, default_directory, read_checkpoints
from skillhouse.audit.head import LogHead, head_of
from skillhouse.audit.keys import LogKeys, read_keys
from skillhouse.audit.lines import chunks, split
from skillhouse.audit.record import AuditError, AuditRecord
from skillhouse.audit.redacted_archive import archive_lines
from skillhouse.audit.snapshot import take_snapshot
from skillhouse.audit.walk import LogProblem, LogWalk

_REPORT_EVERY = 10_000

Progress = Callable[[int, int], None]
"""Takes the bytes that were read so far and those that there are, now and then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a log proved to be."""

    records: int
    problems: tuple[LogProblem, ...]
    """Empty when every byte is as it was written."""
    notes: tuple[LogProblem, ...]
    """What power cuts and crashes left and the log itself accounts for."""
    unknown: tuple[AuditRecord, ...]
    """Intents without an outcome: stopped by a crash, or still running."""
    head: str
    """Hash of the last record; kept elsewhere, it shows a log that was written anew."""
    removed: int = 0
    """Records that retention took out of archives."""
    summaries: int = 0
    """Records without their arguments, taken out by retention."""
    archives: int = 0
    checkpoints: int = 0
    """Checkpoints of the second place that the log fits."""


def verify_log(
    path: Path,
    *,
    key: bytes | None = None,
    checkpoints: Path | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Return what the log holds and where it was changed, whatever its bytes are.

    It finds every changed, removed, added or moved byte of a log and its archives, by whomever
    has not the key. Who has the key can write a new history: only checkpoints, or a `head`, that
    were kept where that person does not write show it.

    Args:
        path: The active file.
        key: The secret of the log where an operator gave one; else the file beside it is read.
        checkpoints: Directory of the second place; the one beside the log when None.
        progress: Told how far the work is.

    Raises:
        AuditError: a file cannot be opened, or is a link.
    """
    try:
        return _Verifier(path, key, checkpoints or default_directory(path), progress).run()
    except OSError as error:
        raise AuditError(
            "log-unreadable", f"the audit log cannot be read ({error.strerror})", path
        ) from error


def archive_problem(archive: Archive, keys: LogKeys) -> LogProblem | None:
    """Return what is wrong within one archive, or None.

    Raises:
        OSError: it cannot be read.
    """
    walk = LogWalk(keys=keys, is_middle=True)
    _walk_archive(walk, archive, keys)
    return walk.problems[0] if walk.problems else None


def _walk_archive(walk: LogWalk, archive: Archive, keys: LogKeys | None) -> None:
    walk.begin_file(archive.path.name)
    try:
        archive, lines = archive_lines(archive, keys)
        walk.begin_file(archive.path.name, reduced=bool(archive.stage))
        for raw in lines:
            walk.add(raw)
    except AuditError as error:
        walk.problem(error.code, error.message)
    walk.finish()


class _Verifier:
    def __init__(
        self, path: Path, key: bytes | None, checkpoints: Path, progress: Progress | None
    ) -> None:
        self._path = path
        self._key = key
        self._directory = checkpoints
        self._progress = progress or (lambda done, of: None)

    def run(self) -> Verification:
        with ExitStack() as stack:
            taken = take_snapshot(self._path)
            if taken.handle != -1:
                stack.callback(os.close, taken.handle)
            size, head_data, archives = taken.size, taken.head, taken.archives
            keys = read_keys(self._path, self._key)
            head = head_of(head_data or b"", keys)
            walk = LogWalk(keys=keys)
            self._checkpoints(walk, keys)
            if keys is None and head is not None and head.mac:
                walk.problem("key-missing", "the log was written with a key, which is gone")
            total = size + sum(size_of(each) for each in archives)
            done = 0
            for archive in archives:
                _walk_archive(walk, archive, keys)
                done += size_of(archive)
                self._progress(done, total)
            if head is not None and (head.seq, head.hash) == (walk.seq, walk.hash):
                # A rotation that a crash stopped: the side file speaks of the newest archive.
                walk.head_seen = (walk.seq, walk.hash)
                head = LogHead(seq=head.seq, hash=head.hash, size=0) if archives else head
            walk.begin_file("", head_size=-1 if head is None else head.size)
            for number, raw in enumerate(split(chunks(taken.handle, size)) if size else ()):
                walk.add(raw)
                if number % _REPORT_EVERY == 0:
                    self._progress(done + walk.size, total)
            walk.finish()
            self._progress(total, total)
        _compare(walk, head_data, head, size)
        met = walk.compare_checkpoints()
        return Verification(
            records=walk.records,
            problems=tuple(walk.problems),
            notes=tuple(walk.notes),
            unknown=tuple(walk.intents.values()),
            head=walk.hash,
            removed=walk.removed,
            summaries=walk.summaries,
            archives=len(archives),
            checkpoints=met,
        )

    def _checkpoints(self, walk: LogWalk, keys: LogKeys | None) -> None:
        """Give the walk what the second place knows."""
        if keys is None:
            return
        path = checkpoint_path(self._directory, keys)
        for line, one in enumerate(read_checkpoints(path, keys), start=1):
            if one is None:
                message = "a checkpoint was changed"
                walk.problem("checkpoint-changed", message, file=path.name, line=line)
            else:
                walk.expected[one.seq] = one.hash


def _compare(walk: LogWalk, data: bytes | None, head: LogHead | None, size: int) -> None:
    """Compare the end of the log with the side file."""
    if data is None:
        if walk.size or walk.seq:
            walk.problem("head-missing", "the log has no side file")
        return
    if head is None:
        if size or data:
            walk.problem("head-unreadable", "the side file was changed, or has another key")
    elif head.size > size or head.seq > walk.seq:
        message = f"expected {head.seq} records in {head.size} bytes, got {size} bytes"
        walk.problem("truncated", message)
    elif walk.head_seen != (head.seq, head.hash):
        walk.problem("head-mismatch", "the side file is not that of this log")
    elif head.seq < walk.seq:
        message = f"the side file is behind by {walk.seq - head.seq} records after a crash"
        walk.notes.append(LogProblem(line=0, code="head-behind", message=message))
