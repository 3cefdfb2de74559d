"""The end of a log: the side file and the checkpoints that remember it, and the end as found."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.line import LineError, opened
from skillhouse.audit.log_files import (
    LogKeys,
    identity,
    open_file,
    read_at,
    seal,
    stat_at,
    write_all,
    write_at_start,
)
from skillhouse.audit.record import MAX_LINE, ZEROS, AuditError, AuditRecord
from skillhouse.floor import DecodeError, descriptor, make_private, shaped, sync_directory
from skillhouse.floor.structs import replace

HEAD_BYTES = 256
"""Always this many, written in place: less than a sector, which a disk writes whole."""
_MAC_HEX = 32
"""Hex digits of the seal, 128 bits, so that the file keeps its length."""


class LogHead(Struct, kw_only=True):
    """The end of the log after the last append. Not frozen, since each append makes one."""

    seq: int = 0
    size: int = 0
    """Bytes of the file that was appended to."""
    hash: str = ZEROS
    """Hash of the last record."""
    durable: int = 0
    """The last record on the disk; a power cut may take later ones."""
    mac: str = ""
    """Seal of the other fields."""


def head_path(log: Path) -> Path:
    """Return the side file of a log: `audit.jsonl.head` for `audit.jsonl`."""
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
        """Return whether the file still has the bytes that this process wrote last."""
        found = stat_at(self.path)
        return (
            found is not None
            and (found.st_dev, found.st_ino) == self._identity
            and read_at(self._handle, 0, HEAD_BYTES + 1) == self._known[0]
        )

    def take(self, data: bytes, head: LogHead) -> None:
        """Know what was read."""
        self._known = (data, head)

    def written_ns(self) -> int:
        """Return when the file was last written, or changed in another way."""
        return os.fstat(self._handle).st_ctime_ns

    def known(self) -> LogHead:
        return self._known[1]

    def data(self, *, new_log: bool) -> bytes:
        """Return the bytes of the file, which is made where the log is new, else `head-missing`."""
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
        """Write the head of a new log, so that a power cut does not take the file."""
        self.write(LogHead(), keys)
        self.sync()
        sync_directory(self.path.parent)
        return LogHead()

    def write(self, head: LogHead, keys: LogKeys) -> None:
        """Write the head in place."""
        data = head_bytes(head, keys)
        write_at_start(self._handle, data)
        self._known = (data, head)

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1
            self._identity = (0, 0)


MAX_BEHIND = 16 * 1024 * 1024
"""Bytes by which a crash may leave a side file behind its log."""

_FIRST_LOOK = 4_096


class Tail(Struct, kw_only=True):
    """The end of the log, as an append finds it under the lock. Not frozen, as `LogHead` is not."""

    seq: int = 0
    hash: str = ZEROS
    id: str = ""
    size: int
    """Bytes of the file, those of `torn` included."""
    torn: bytes = b""
    """Bytes after the last record: an append that a power cut stopped."""
    is_open: bool = False
    """Whether the file does not end with a newline."""
    lost: int = 0
    """Records that were written but not durable, and are gone."""
    line: bytes = b""
    """The last line if this process wrote it; if an append finds another one, it reads again."""


def read_tail(handle: int, head: LogHead, path: Path, keys: LogKeys) -> Tail:
    """Return the end of the file, compared with the side file.

    `AuditError` if the end is not one that appends and a power cut leave.
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
    """Return the tail of a log that is at least as long as in the side file."""
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
    """Return the tail of a log that is shorter than in the side file."""
    data = read_at(handle, max(0, size - 2 * MAX_LINE), 2 * MAX_LINE)
    whole = data.rfind(b"\n") + 1
    last = last_record(handle, size - len(data) + whole, keys)
    if last is None or last.seq < head.durable:
        raise AuditError("log-truncated", f"expected {head.seq} records, the end is gone", path)
    tail = Tail(seq=last.seq, hash=last.hash, id=last.id, size=size, torn=data[whole:])
    tail = _ended(tail, keys)
    return replace(tail, lost=head.seq - tail.seq)


def _ended(tail: Tail, keys: LogKeys) -> Tail:
    """Accept a last record that only lacks its newline, which a repair adds."""
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
    """Return the facts about torn bytes in a repair record, by which `verify_log` accepts them."""
    return {"torn_bytes": len(torn), "torn_sha256": hashlib.sha256(torn).hexdigest()}


CHECKPOINT_EVERY = 1_000
"""Records from one checkpoint to the next; one more is made at the end of a process."""
_MAX_CHECKPOINT = 512
"""Bytes of a line."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A position of the chain."""

    seq: int
    hash: str
    """Hash of the record `seq`, which was on the disk."""
    ts: str
    prev: str
    """`mac` of the checkpoint before, zeros for the first."""
    mac: str = ""


def checkpoint_path(directory: Path, keys: LogKeys) -> Path:
    """Return the file of a log's checkpoints: logs with other keys may use the same directory."""
    return directory / f"audit-{keys.name}.checkpoints"


def default_directory(log: Path) -> Path:
    """Return where the checkpoints of `audit.jsonl` are by default: `audit-checkpoints`."""
    return log.with_name(f"{log.stem}-checkpoints")


def checkpoint_line(checkpoint: Checkpoint, keys: LogKeys) -> bytes:
    body = (
        f'{{"seq":{checkpoint.seq},"hash":"{checkpoint.hash}","ts":"{checkpoint.ts}",'
        f'"prev":"{checkpoint.prev}"'
    )
    return f'{body},"mac":"{seal(keys.checkpoints, body.encode())}"}}\n'.encode()


def checkpoint_of(line: bytes, keys: LogKeys) -> Checkpoint | None:
    """Return the checkpoint of a line with its newline, or None where it was changed."""
    try:
        found = shaped(json.loads(line), Checkpoint)
    except (ValueError, RecursionError, DecodeError):
        return None
    return found if checkpoint_line(found, keys) == line else None


def read_checkpoints(path: Path, keys: LogKeys) -> list[Checkpoint | None]:
    """Return the checkpoints of a file, None for each line that was changed."""
    try:
        handle = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    with descriptor(handle):
        data = read_at(handle, 0, os.fstat(handle).st_size)
    found: list[Checkpoint | None] = []
    before = ZEROS
    for line in data.splitlines(keepends=True):
        one = checkpoint_of(line, keys)
        found.append(one if one is not None and one.prev == before else None)
        before = one.mac if one is not None else ""
    return found


class CheckpointFile:
    """Signed positions of the chain, kept in a second place and used under the log's lock.

    They reveal what the log and its side file cannot: that both were put back to an earlier
    state, or rewritten by a person who has the key of the records but cannot write in this place.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def last(self, keys: LogKeys) -> Checkpoint | None:
        """Return the newest checkpoint, or raise `checkpoint-changed`.

        An unfinished last line, left by a power cut, is ignored.
        """
        path = checkpoint_path(self._directory, keys)
        try:
            handle = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with descriptor(handle):
            return self._last(handle, path, keys)[0]

    def write(self, seq: int, record_hash: str, ts: str, keys: LogKeys) -> None:
        """Add a checkpoint durably, unless the last one was changed."""
        path = checkpoint_path(self._directory, keys)
        make_private(self._directory)
        with descriptor(open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)) as handle:
            last, end = self._last(handle, path, keys)
            if os.fstat(handle).st_size > end:
                os.ftruncate(handle, end)
            made = Checkpoint(seq=seq, hash=record_hash, ts=ts, prev=last.mac if last else ZEROS)
            write_all(handle, checkpoint_line(made, keys))
            os.fsync(handle)
        if last is None:
            sync_directory(self._directory)

    def _last(self, handle: int, path: Path, keys: LogKeys) -> tuple[Checkpoint | None, int]:
        size = os.fstat(handle).st_size
        start = max(0, size - 2 * _MAX_CHECKPOINT)
        data = read_at(handle, start, size - start)
        whole = data.rfind(b"\n") + 1
        if not whole and not start:
            return None, 0
        line = data[data.rfind(b"\n", 0, whole - 1) + 1 : whole]
        found = checkpoint_of(line, keys)
        if found is None:
            message = "the checkpoints were changed; look at them, then move them aside"
            raise AuditError("checkpoint-changed", message, path)
        return found, start + whole
