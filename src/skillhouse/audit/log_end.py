"""The end of a log: the side file that remembers it, and the end as it is found."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from skillhouse.audit.line import LineError, opened
from skillhouse.audit.log_files import (
    identity,
    open_file,
    read_at,
    stat_at,
    sync_directory,
    write_at_start,
)
from skillhouse.audit.log_keys import LogKeys, seal
from skillhouse.audit.record import MAX_LINE, ZEROS, AuditError, AuditRecord
from skillhouse.floor import DecodeError, shaped

HEAD_BYTES = 256
"""Always this many, written in place: less than a sector, which a disk writes whole."""
_MAC_HEX = 32
"""Hex digits of the seal, 128 bits, so that the file keeps its length."""


@dataclass(slots=True, kw_only=True)
class LogHead:
    """Where the log ended after the last append. Not frozen, since each append makes one."""

    seq: int = 0
    size: int = 0
    """Bytes of the file that was appended to."""
    hash: str = ZEROS
    """Hash of the last record."""
    durable: int = 0
    """The last record that was on the disk; those after it a power cut may take."""
    mac: str = ""
    """Seal of the other fields."""


def head_path(log: Path) -> Path:
    """Return the side file of a log.

    >>> head_path(Path("audit.jsonl")).name
    'audit.jsonl.head'
    """
    return log.with_name(log.name + ".head")


def head_bytes(head: LogHead, keys: LogKeys) -> bytes:
    """Return the content of the side file: sealed canonical JSON, padded with spaces."""
    front = f'{{"durable":{head.durable},"hash":"{head.hash}"'
    behind = f'"seq":{head.seq},"size":{head.size}}}'
    mac = seal(keys.heads, f"{front},{behind}".encode())[:_MAC_HEX]
    return f'{front},"mac":"{mac}",{behind}'.encode().ljust(HEAD_BYTES - 1) + b"\n"


def head_of(data: bytes, keys: LogKeys | None) -> LogHead | None:
    """Return the head in the bytes of a side file; None if a single byte was changed.

    Without keys the seal is not checked: the caller reports that they are missing.
    """
    try:
        head = shaped(json.loads(data.decode("ascii")), LogHead)
    except (ValueError, RecursionError, DecodeError):
        return None
    if keys is None:
        return head if head.mac else None
    return head if head_bytes(head, keys) == data else None


class HeadFile:
    """The side file, kept open. It is used under the lock of its log."""

    def __init__(self, log: Path) -> None:
        self.path = head_path(log)
        self._handle = -1
        self._identity = (0, 0)
        self._known = (b"", LogHead())

    def is_known(self) -> bool:
        """Return whether the file is there and still says what was last written here."""
        found = stat_at(self.path)
        return (
            found is not None
            and (found.st_dev, found.st_ino) == self._identity
            and read_at(self._handle, 0, HEAD_BYTES + 1) == self._known[0]
        )

    def known(self) -> LogHead:
        """Return what was last written here, where `is_known`."""
        return self._known[1]

    def data(self, *, new_log: bool) -> bytes:
        """Return the bytes of the file, which is made where the log is new.

        Raises:
            AuditError: the file is missing, or a link.
            OSError: it cannot be opened or made.
        """
        self.close()
        try:
            self._handle = open_file(self.path, os.O_RDWR)
        except FileNotFoundError:
            if not new_log:
                raise AuditError(
                    "head-missing",
                    "the log's side file is gone; move the log aside to start a new one",
                    self.path,
                ) from None
            self._handle = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._identity = identity(os.fstat(self._handle))
        return read_at(self._handle, 0, HEAD_BYTES + 1)

    def begin(self, keys: LogKeys) -> LogHead:
        """Write the head of a new log, so that a power cut does not take the file.

        Raises:
            OSError: it cannot be written.
        """
        self.write(LogHead(), keys)
        self.sync()
        sync_directory(self.path.parent)
        return LogHead()

    def write(self, head: LogHead, keys: LogKeys) -> None:
        """Replace the head.

        Raises:
            OSError: it cannot be written.
        """
        data = head_bytes(head, keys)
        write_at_start(self._handle, data)
        self._known = (data, head)

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the file; the next `data` opens it again."""
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1
            self._identity = (0, 0)


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


def read_tail(handle: int, head: LogHead, path: Path, keys: LogKeys) -> Tail:
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


def _behind(handle: int, head: LogHead, size: int, path: Path, keys: LogKeys) -> Tail:
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


def _cut(handle: int, head: LogHead, size: int, path: Path, keys: LogKeys) -> Tail:
    """Return the tail of a log that is shorter than the side file says."""
    data = read_at(handle, max(0, size - 2 * MAX_LINE), 2 * MAX_LINE)
    whole = data.rfind(b"\n") + 1
    last = last_record(handle, size - len(data) + whole, keys)
    if last is None or last.seq < head.durable:
        raise AuditError("log-truncated", f"expected {head.seq} records, the end is gone", path)
    tail = Tail(seq=last.seq, hash=last.hash, id=last.id, size=size, torn=data[whole:])
    tail = _ended(tail, keys)
    return replace(tail, lost=head.seq - tail.seq)


def _ended(tail: Tail, keys: LogKeys) -> Tail:
    """Return the tail with a last record that lacks but its newline, which a repair gives it."""
    tail = replace(tail, is_open=bool(tail.torn))
    record = chained(tail.torn, tail.seq, tail.hash, keys) if tail.torn else None
    if record is None:
        return tail
    return replace(tail, seq=record.seq, hash=record.hash, id=record.id, torn=b"")


def last_record(handle: int, end: int, keys: LogKeys) -> AuditRecord | None:
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


def chained(line: bytes, seq: int, last_hash: str, keys: LogKeys) -> AuditRecord | None:
    """Return the record of a line that follows the record `seq` with that hash, or None."""
    try:
        record = opened(line, keys)
    except LineError:
        return None
    return record if (record.seq, record.prev) == (seq + 1, last_hash) else None


def torn_facts(torn: bytes) -> dict[str, object]:
    """Return what a repair record says about torn bytes, by which `verify_log` accepts them."""
    return {"torn_bytes": len(torn), "torn_sha256": hashlib.sha256(torn).hexdigest()}
