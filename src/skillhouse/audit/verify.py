"""Reads a whole log and says where it was changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse.audit.files import open_file, read_at
from skillhouse.audit.head import HEAD_BYTES, head_of, head_path
from skillhouse.audit.line import MAX_LINE, LineError, opened
from skillhouse.audit.record import ZEROS, AuditError, AuditRecord
from skillhouse.audit.tail import torn_facts
from skillhouse.floor.lock import lock, unlock

MAX_PROBLEMS = 1_000
"""Problems that are told one by one; a log with more is told to have more."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A place at which the log is not what was written."""

    line: int
    """Line of the log, from 1; 0 where it is about the whole."""
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a log proved to be."""

    records: int
    problems: tuple[Problem, ...]
    """Empty when every byte is as it was written."""
    notes: tuple[Problem, ...]
    """What power cuts and crashes left and the log itself accounts for."""
    unknown: tuple[AuditRecord, ...]
    """Intents without an outcome: stopped by a crash, or still running."""
    head: str
    """Hash of the last record; kept elsewhere, it shows a log that was written anew."""


def verify_log(path: Path) -> Verification:
    """Return what the log holds and where it was changed, whatever its bytes are.

    It finds every changed, removed, added or moved byte of a log whose side file is left. Who can
    write both files can write a new history: only a `head` that was kept elsewhere shows that.

    Raises:
        AuditError: a file cannot be opened, or is a link.
    """
    try:
        return _verified(path)
    except OSError as error:
        raise AuditError(
            "log-unreadable", f"the audit log cannot be read ({error.strerror})", path
        ) from error


def _verified(path: Path) -> Verification:
    try:
        handle = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        chain = _Chain()
        _compare(chain, _head_data(path), 0)
        return chain.verification()
    try:
        # Under the lock the two files fit each other; what is appended later is not looked at.
        lock(handle, shared=True)
        try:
            size = os.fstat(handle).st_size
            head_data = _head_data(path)
        finally:
            unlock(handle)
        head = head_of(head_data or b"")
        chain = _Chain(head_size=-1 if head is None else head.size)
        for raw in _lines(handle, size):
            chain.add(raw)
        chain.finish()
        _compare(chain, head_data, size)
        return chain.verification()
    finally:
        os.close(handle)


def _head_data(path: Path) -> bytes | None:
    try:
        handle = open_file(head_path(path), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return read_at(handle, 0, HEAD_BYTES + 1)
    finally:
        os.close(handle)


def _lines(handle: int, size: int) -> Iterator[bytes]:
    """Yield the lines of the first `size` bytes with their newlines; overlong ones in pieces."""
    os.lseek(handle, 0, os.SEEK_SET)
    rest = b""
    while size and (chunk := os.read(handle, min(_CHUNK, size))):
        size -= len(chunk)
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield line + b"\n"
        if len(rest) > 2 * MAX_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest


@dataclass(slots=True)
class _Chain:
    """What is known after the lines so far."""

    head_size: int = -1
    """Bytes after which the side file says the log ends."""
    head_seen: tuple[int, str] = (0, ZEROS)
    """Place and hash of the last record when `head_size` bytes had been read."""
    line: int = 0
    size: int = 0
    records: int = 0
    seq: int = 0
    hash: str = ZEROS
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    intents: dict[str, AuditRecord] = field(default_factory=dict)
    strange: bytes = b""
    """Lines that are no records and that a repair record may account for."""
    strange_line: int = 0
    strange_error: LineError | None = None

    def add(self, raw: bytes) -> None:
        """Look at the next line."""
        self.line += 1
        self.size += len(raw)
        # Without its newline even a whole record is not finished.
        line = raw[:-1] if raw.endswith(b"\n") else raw + b"?"
        try:
            record = opened(line)
        except LineError as error:
            if not self.strange:
                self.strange_line, self.strange_error = self.line, error
            self.strange += raw
            if len(self.strange) > 4 * MAX_LINE:
                self._report_strange()
            return
        self._chain(record)
        if self.size == self.head_size:
            self.head_seen = (self.seq, self.hash)

    def finish(self) -> None:
        """Say what the end of the log shows."""
        if self.strange and not self.strange.endswith(b"\n"):
            self.strange_error = LineError("torn", "the last line is not finished")
        self._report_strange()

    def verification(self) -> Verification:
        return Verification(
            records=self.records,
            problems=tuple(self.problems),
            notes=tuple(self.notes),
            unknown=tuple(self.intents.values()),
            head=self.hash,
        )

    def problem(self, code: str, message: str, *, line: int = 0) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(line=line, code=code, message=message))
        elif len(self.problems) == MAX_PROBLEMS:
            self.problems.append(Problem(line=line, code="more", message="there are more"))

    def _chain(self, record: AuditRecord) -> None:
        follows = (record.seq, record.prev) == (self.seq + 1, self.hash)
        if record.kind == "repair":
            self._repair(record, follows=follows)
        self._report_strange()
        if not follows and record.seq != self.seq + 1:
            message = f"expected record {self.seq + 1}, got {record.seq}"
            self.problem("sequence", message, line=self.line)
        elif not follows:
            message = "the record does not follow the one before it"
            self.problem("chain", message, line=self.line)
        self.records += 1
        self.seq, self.hash = record.seq, record.hash
        if record.kind == "intent":
            self.intents[record.id] = record
        elif record.kind == "outcome":
            self.intents.pop(record.intent, None)

    def _repair(self, record: AuditRecord, *, follows: bool) -> None:
        # The newline that ends the torn bytes came with the repair record.
        facts = torn_facts(self.strange[:-1])
        if self.strange and follows and facts.items() <= record.detail.items():
            self.strange = b""
        self.notes.append(Problem(line=self.line, code="repair", message=record.reason))

    def _report_strange(self) -> None:
        if self.strange and self.strange_error:
            error = self.strange_error
            self.problem(error.code, str(error), line=self.strange_line)
        self.strange = b""


def _compare(chain: _Chain, data: bytes | None, size: int) -> None:
    """Compare the end of the log with the side file."""
    if data is None:
        if size:
            chain.problem("head-missing", "the log has no side file")
        return
    head = head_of(data)
    if head is None:
        if size or data:
            chain.problem("head-unreadable", "the side file was changed")
    elif head.size > size or head.seq > chain.seq:
        message = f"expected {head.seq} records in {head.size} bytes, got {size} bytes"
        chain.problem("truncated", message)
    elif chain.head_seen != (head.seq, head.hash):
        chain.problem("head-mismatch", "the side file is not that of this log")
    elif head.seq < chain.seq:
        message = f"the side file is behind by {chain.seq - head.seq} records after a crash"
        chain.notes.append(Problem(line=0, code="head-behind", message=message))
