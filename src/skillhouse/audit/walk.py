"""Follows the chain from line to line, through all files of a log."""

from __future__ import annotations

from dataclasses import dataclass, field

from skillhouse.audit.keys import LogKeys
from skillhouse.audit.line import MAX_LINE, opened
from skillhouse.audit.record import ZEROS, AuditRecord
from skillhouse.audit.redacted_archive import Gap, gap_of
from skillhouse.audit.tail import torn_facts
from skillhouse.audit.unreadable import LineError

MAX_PROBLEMS = 1_000
"""Problems that are told one by one; a log with more is told to have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProblem:
    """A place at which the log is not what was written."""

    line: int
    """Line of the file, from 1; 0 where it is about the whole."""
    code: str
    message: str
    file: str = ""
    """Name of the archive or other file; empty for the active one."""


@dataclass(slots=True, kw_only=True)
class LogWalk:
    """What is known after the lines so far."""

    keys: LogKeys | None
    is_middle: bool = False
    """Whether the first record is one from the middle of the chain."""
    expected: dict[int, str] = field(default_factory=dict)
    """Hashes that checkpoints know, by the place of their record; those met are taken out."""
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
    _has_key: bool = False
    """Whether a record with a key came already: none without one may follow."""
    _strange: bytes = b""
    """Lines that are no records and that a repair record may account for."""
    _strange_line: int = 0
    _strange_error: LineError | None = None

    def begin_file(self, name: str, *, reduced: bool = False, head_size: int = -1) -> None:
        """Go on in the next file."""
        self._file, self._reduced, self._head_size = name, reduced, head_size
        self._line = self.size = 0

    def add(self, raw: bytes) -> None:
        """Look at the next line."""
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
        """Say what the end of the file shows."""
        if self._strange and not self._strange.endswith(b"\n"):
            self._strange_error = LineError("torn", "the last line is not finished")
        self._report_strange()

    def compare_checkpoints(self) -> int:
        """Say whether checkpoints know more than the log; return how many were met in it."""
        # What retention removed, a checkpoint cannot be compared with.
        ahead = [seq for seq in self.expected if seq > self.seq]
        if ahead:
            message = f"a checkpoint knows {max(ahead)} records, the log has {self.seq}"
            self.problem("truncated", message, at_line=False)
        return self._met

    def problem(
        self, code: str, message: str, *, line: int = 0, file: str = "", at_line: bool = True
    ) -> None:
        """Remember a problem of this file."""
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
        if record.version == 1 and self.keys is not None:
            self._check_old(record)
        self._has_key = self._has_key or record.version != 1
        self.records += 1
        self.summaries += record.is_summary
        self.seq, self.hash = record.seq, record.hash
        if self.expected:
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

    def _check_old(self, record: AuditRecord) -> None:
        """A record without a key is right only where the key says that it is older."""
        keys = self.keys
        if keys is None:
            return
        is_last = record.seq == keys.since
        if self._has_key or record.seq > keys.since or (is_last and record.hash != keys.hash):
            message = "the record has no key, and is not older than it"
            self.problem("unkeyed", message, line=self._line)

    def _check(self, record: AuditRecord) -> None:
        known = self.expected.pop(record.seq, None)
        if known is None:
            return
        self._met += 1
        if known != record.hash:
            message = "a checkpoint knows another record at this place"
            self.problem("checkpoint-mismatch", message, line=self._line)

    def _skip(self, gap: Gap) -> None:
        """Go over records that retention removed; the seal of the file covers the gap."""
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
