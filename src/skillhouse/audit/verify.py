"""Reads a whole log, archives first, and reports where it was changed.

And the state of a log that cannot be written, with problems that a person must solve.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from skillhouse.audit.archives import Archive, Gap, archive_lines, gap_of, size_of, take_snapshot
from skillhouse.audit.line import EncodedRecord, LineError, encode_record, opened
from skillhouse.audit.log_end import (
    Checkpoint,
    LogHead,
    checkpoint_path,
    default_directory,
    head_of,
    read_checkpoints,
    torn_facts,
)
from skillhouse.audit.log_files import LogKeys, chunks, read_keys, split
from skillhouse.audit.record import MAX_LINE, ZEROS, AuditDraft, AuditError, AuditRecord
from skillhouse.audit.redaction import KnownSecrets
from skillhouse.audit.state_heads import HeadsByLog, StateHead, is_sealed_head
from skillhouse.floor.machine import STATE_ADVICE, is_unwritable

MAX_PROBLEMS = 1_000
"""Problems that are reported one by one; a last one summarises the others."""


class LogProblem(Struct, frozen=True, kw_only=True):
    """A place where the log differs from what was written."""

    line: int
    """Line of the file, from 1; 0 where it is about the whole."""
    code: str
    message: str
    file: str = ""
    """Name of the archive or other file; empty for the active one."""


class LogWalk(Struct, kw_only=True):
    """The state of the check after the lines so far."""

    keys: LogKeys | None
    is_middle: bool = False
    """Whether the first record is one from the middle of the chain."""
    expected: dict[int, str] = field(default_factory=dict)
    """Hashes that checkpoints know, by the place of their record; those met are taken out."""
    expected_heads: dict[int, str] = field(default_factory=dict)
    """Likewise those that the state knows."""
    servers: set[str] = field(default_factory=set)
    """Names of servers in the records."""
    head_seen: tuple[int, str] = (0, ZEROS)
    """Place and hash of the last record when `head_size` bytes had been read."""
    size: int = 0
    """Bytes of the file so far."""
    records: int = 0
    removed: int = 0
    summaries: int = 0
    seq: int = 0
    hash: str = ZEROS
    problems: list[LogProblem] = field(default_factory=list)
    notes: list[LogProblem] = field(default_factory=list)
    intents: dict[str, AuditRecord] = field(default_factory=dict)
    _file: str = ""
    _reduced: bool = False
    _line: int = 0
    _head_size: int = -1
    _met: int = 0
    _strange: bytes = b""
    """Lines that are no records and that a repair record may account for."""
    _strange_line: int = 0
    _strange_error: LineError | None = None

    def begin_file(self, name: str, *, reduced: bool = False, head_size: int = -1) -> None:
        self._file, self._reduced, self._head_size = name, reduced, head_size
        self._line = self.size = 0

    def add(self, raw: bytes) -> None:
        self._line += 1
        self.size += len(raw)
        # Without its newline even a whole record is not finished.
        line = raw[:-1] if raw.endswith(b"\n") else raw + b"?"
        try:
            record = opened(line, self.keys, summaries=self._reduced)
        except LineError as error:
            gap = gap_of(line) if self._reduced else None
            if gap is not None:
                self._skip(gap)
                return
            if not self._strange:
                self._strange_line, self._strange_error = self._line, error
            self._strange += raw
            if len(self._strange) > 4 * MAX_LINE:
                self._report_strange()
            return
        self._chain(record)
        if self.size == self._head_size:
            self.head_seen = (self.seq, self.hash)

    def finish(self) -> None:
        """Report an unfinished end of the file."""
        if self._strange and not self._strange.endswith(b"\n"):
            self._strange_error = LineError("torn", "the last line is not finished")
        self._report_strange()

    def compare_checkpoints(self) -> int:
        """Report checkpoints beyond the end of the log; return how many fit it."""
        # What retention removed, a checkpoint cannot be compared with.
        ahead = [seq for seq in self.expected if seq > self.seq]
        if ahead:
            message = f"a checkpoint knows {max(ahead)} records, the log has {self.seq}"
            self.problem("truncated", message, at_line=False)
        ahead = [seq for seq in self.expected_heads if seq > self.seq]
        if ahead:
            message = f"the state knows {max(ahead)} records of this log, it has {self.seq}"
            self.problem("truncated", message, at_line=False)
        return self._met

    def problem(
        self, code: str, message: str, *, line: int = 0, file: str = "", at_line: bool = True
    ) -> None:
        name = file or (self._file if at_line else "")
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(LogProblem(line=line, code=code, message=message, file=name))
        elif len(self.problems) == MAX_PROBLEMS:
            self.problems.append(LogProblem(line=line, code="more", message="there are more"))

    def _chain(self, record: AuditRecord) -> None:
        if self.is_middle:
            self.seq, self.hash, self.is_middle = record.seq - 1, record.prev, False
        follows = (record.seq, record.prev) == (self.seq + 1, self.hash)
        if record.kind == "repair":
            self._repair(record, follows=follows)
        self._report_strange()
        self._say_break(record.seq, follows=follows)
        self.records += 1
        self.summaries += record.is_summary
        self.seq, self.hash = record.seq, record.hash
        if record.server:
            self.servers.add(record.server)
        if self.expected or self.expected_heads:
            self._check(record)
        if record.kind == "intent":
            self.intents[record.id] = record
        elif record.kind == "outcome":
            self.intents.pop(record.intent, None)

    def _say_break(self, seq: int, *, follows: bool) -> None:
        if follows:
            return
        if seq != self.seq + 1:
            message = f"expected record {self.seq + 1}, got {seq}"
            self.problem("sequence", message, line=self._line)
        else:
            message = "the record does not follow the one before it"
            self.problem("chain", message, line=self._line)

    def _check(self, record: AuditRecord) -> None:
        head = self.expected_heads.pop(record.seq, record.hash)
        if head != record.hash:
            message = "the state knows another record at this place"
            self.problem("state-head-mismatch", message, line=self._line)
        known = self.expected.pop(record.seq, None)
        if known is None:
            return
        self._met += 1
        if known != record.hash:
            message = "a checkpoint knows another record at this place"
            self.problem("checkpoint-mismatch", message, line=self._line)

    def _skip(self, gap: Gap) -> None:
        """Pass over records that retention removed; the seal of the file covers the gap."""
        if self.is_middle:
            self.seq, self.hash, self.is_middle = gap.first - 1, gap.prev, False
        self._report_strange()
        self._say_break(gap.first, follows=(gap.first, gap.prev) == (self.seq + 1, self.hash))
        self.removed += gap.last - gap.first + 1
        self.seq, self.hash = gap.last, gap.hash

    def _repair(self, record: AuditRecord, *, follows: bool) -> None:
        # The newline that ends the torn bytes came with the repair record.
        facts = torn_facts(self._strange[:-1])
        if self._strange and follows and facts.items() <= record.detail.items():
            self._strange = b""
        message = record.reason
        self.notes.append(
            LogProblem(line=self._line, code="repair", message=message, file=self._file)
        )

    def _report_strange(self) -> None:
        if self._strange and self._strange_error:
            error = self._strange_error
            self.problem(error.code, str(error), line=self._strange_line)
        self._strange = b""


_REPORT_EVERY = 10_000

Progress = Callable[[int, int], None]
"""Called now and then with the bytes read so far and in all."""


class Verification(Struct, frozen=True, kw_only=True):
    """The result of checking a log."""

    records: int
    problems: tuple[LogProblem, ...]
    """Empty when every byte is as it was written."""
    notes: tuple[LogProblem, ...]
    """Traces of power cuts and crashes for which the log itself accounts."""
    unknown: tuple[AuditRecord, ...]
    """Intents without an outcome: stopped by a crash, or still running."""
    head: str
    """Hash of the last record; a copy kept elsewhere reveals a rewritten log."""
    removed: int = 0
    """Records that retention took out of archives."""
    summaries: int = 0
    """Records without their arguments, taken out by retention."""
    archives: int = 0
    checkpoints: int = 0
    """Checkpoints of the second place that the log fits."""
    heads: int = 0
    """Heads in the state that are this log's."""
    servers: tuple[str, ...] = ()
    """Names of servers in the records, sorted."""
    name: str = ""
    """Name of the log's key, by which the state knows the log; empty for one without records."""


def verify_log(
    path: Path,
    *,
    key: bytes | None = None,
    checkpoints: Path | None = None,
    heads: HeadsByLog | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Return the content of the log in numbers, and where it was changed, for any bytes.

    It finds every changed, removed, added or moved byte of a log and its archives, by whomever
    has not the key. Who has the key can write a new history: only checkpoints, or a `head`, that
    were kept where that person does not write show it.

    Args:
        path: The active file.
        key: The secret of the log where an operator gave one; else the file beside it is read.
        checkpoints: Directory of the second place; the one beside the log when None.
        heads: What the state knows of logs, read before this; nothing is compared when None.
        progress: Called with the bytes read so far and in all.

    Raises:
        AuditError: a file cannot be opened, or is a link.
    """
    try:
        report = progress or (lambda done, of: None)
        place = checkpoints or default_directory(path)
        return _verified(path, key, place, heads or {}, report)
    except OSError as error:
        raise AuditError(
            "log-unreadable", f"the audit log cannot be read ({error.strerror})", path
        ) from error


def archive_problem(archive: Archive, keys: LogKeys) -> LogProblem | None:
    walk = LogWalk(keys=keys, is_middle=True)
    _walk_archive(walk, archive, keys)
    return walk.problems[0] if walk.problems else None


def active_problem(handle: int, size: int, keys: LogKeys) -> LogProblem | None:
    """Return the first problem of the records in an active file, up to byte `size`.

    What a power cut left of the last line is none.
    """
    walk = LogWalk(keys=keys, is_middle=True)
    walk.begin_file("")
    for raw in split(chunks(handle, size)):
        if raw.endswith(b"\n"):
            walk.add(raw)
    walk.finish()
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


def _verified(
    path: Path, key: bytes | None, checkpoints: Path, heads: HeadsByLog, progress: Progress
) -> Verification:
    with ExitStack() as stack:
        # INVARIANT: before the log. A writer that goes on adds to the log first, then a checkpoint
        # of it, so what a checkpoint knows is in what is read after it.
        keys = read_keys(path, key)
        known = None if keys is None else _checkpoints(checkpoints, keys)
        taken = take_snapshot(path)
        if taken.handle != -1:
            stack.callback(os.close, taken.handle)
        size, head_data, archives = taken.size, taken.head, taken.archives
        # A log that was begun meanwhile has its key by now.
        keys = keys or read_keys(path, key)
        head = head_of(head_data or b"", keys)
        walk = LogWalk(keys=keys)
        of_state = 0
        if keys is not None:
            place, found = known or _checkpoints(checkpoints, keys)
            _expect_checkpoints(walk, place, found)
            of_state = _expect_heads(walk, heads.get(keys.name, ()), keys)
        elif head is not None and head.mac:
            walk.problem("key-missing", "the log was written with a key, which is gone")
        total = size + sum(size_of(each) for each in archives)
        done = 0
        for archive in archives:
            _walk_archive(walk, archive, keys)
            done += size_of(archive)
            progress(done, total)
        if head is not None and (head.seq, head.hash) == (walk.seq, walk.hash):
            # A crash stopped a rotation: the side file describes the newest archive.
            walk.head_seen = (walk.seq, walk.hash)
            head = LogHead(seq=head.seq, hash=head.hash, size=0) if archives else head
        walk.begin_file("", head_size=-1 if head is None else head.size)
        for number, raw in enumerate(split(chunks(taken.handle, size)) if size else ()):
            walk.add(raw)
            if number % _REPORT_EVERY == 0:
                progress(done + walk.size, total)
        walk.finish()
        progress(total, total)
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
        heads=of_state,
        servers=tuple(sorted(walk.servers)),
        name="" if keys is None else keys.name,
    )


def _checkpoints(directory: Path, keys: LogKeys) -> tuple[Path, list[Checkpoint | None]]:
    path = checkpoint_path(directory, keys)
    return path, list(read_checkpoints(path, keys))


def _expect_checkpoints(walk: LogWalk, path: Path, found: list[Checkpoint | None]) -> None:
    for line, one in enumerate(found, start=1):
        if one is None:
            message = "a checkpoint was changed"
            walk.problem("checkpoint-changed", message, file=path.name, line=line)
        else:
            walk.expected[one.seq] = one.hash


def _expect_heads(walk: LogWalk, heads: Sequence[StateHead], keys: LogKeys) -> int:
    """Have the walk meet what the state knows of this log; return how many heads that are."""
    met = 0
    for head in heads:
        if not is_sealed_head(head, keys):
            message = f"the state's head of record {head.seq} was not made by this log's server"
            walk.problem("state-head-forged", message)
            continue
        walk.expected_heads[head.seq] = head.hash
        met += 1
    return met


def _compare(walk: LogWalk, data: bytes | None, head: LogHead | None, size: int) -> None:
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
