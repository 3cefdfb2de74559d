"""Appends to the active file: under its lock, chained to its end, completely or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from skillhouse.audit.archives import archives_of, last_lines, next_archive
from skillhouse.audit.line import EncodedRecord, LineError, encode_record, opened, sealed
from skillhouse.audit.log_end import (
    CHECKPOINT_EVERY,
    CheckpointFile,
    HeadFile,
    LogHead,
    Tail,
    head_of,
    read_tail,
)
from skillhouse.audit.log_files import (
    KEY_BYTES,
    LogKeys,
    chunks,
    identity,
    make_keys,
    open_file,
    read_at,
    read_keys,
    split,
    stat_at,
    write_all,
)
from skillhouse.audit.record import (
    DAY_MILLISECONDS,
    AuditDraft,
    AuditError,
    day_number,
    day_of,
    timestamp,
    ulid,
)
from skillhouse.audit.redaction import KnownSecrets
from skillhouse.audit.state_heads import StateHead, StateHeads, sealed_head
from skillhouse.audit.verify import active_problem
from skillhouse.floor import StateError, make_private, opened_problem, sync_directory
from skillhouse.floor.lock import try_lock, unlock
from skillhouse.floor.machine import SERVER_NAME
from skillhouse.floor.structs import replace

MAX_FILE_BYTES = 50_000_000
"""Bytes after which a file is closed and the next one begun (S000-125)."""
_OPEN_TRIES = 64
_RETRY_SECONDS = 10.0
"""Time after which a failed checkpoint or rotation is tried again."""
_NEVER = 1 << 62


class LockHeldError(Exception):
    """Another process holds the log's lock at this moment."""


class ChainFile:
    """The active file of a log and the files beside it. `begin` and `end` bracket each use."""

    def __init__(
        self,
        path: Path,
        *,
        key: bytes | None,
        checkpoints: Path,
        max_bytes: int,
        random_bytes: Callable[[int], bytes],
        server: str = "",
        heads: StateHeads | None = None,
    ) -> None:
        if server and not SERVER_NAME.fullmatch(server):
            raise AuditError("record-invalid", f"no name of a server: {server[:80]!r}", path)
        self.path = path
        self.server = server
        self.head_error = ""
        """Why the state could not give the log's head; empty when it could."""
        self._state_heads = heads
        self.checkpoint_error = ""
        """Why no checkpoint could be written; empty when it could."""
        self.rotation_error = ""
        """Why a file that was long enough could not be closed; empty when it could."""
        self._given = key
        self._keys: LogKeys | None = None
        self._max_bytes = max_bytes
        self._random_bytes = random_bytes
        self._handle = -1
        self._identity = (0, 0)
        self._head = HeadFile(path)
        self._tail: Tail | None = None
        self._day_end = _NEVER
        self._checkpoints = CheckpointFile(checkpoints)
        self._checked: int | None = None
        """`seq` of the newest checkpoint, once it was compared with the log."""
        self._durable = False
        self._retry_at = 0.0
        self._rotate_at = 0.0
        self._fault = (0, "")
        """What is wrong with the file, and since when; nothing where it was only touched."""

    @property
    def keys(self) -> LogKeys:
        """Known after the first `begin`."""
        if self._keys is None:
            raise AuditError("key-missing", "the log was not opened yet", self.path)
        return self._keys

    @property
    def has_news(self) -> bool:
        """Whether this process made a record durable that no checkpoint knows yet."""
        return self._durable

    def begin(self) -> Tail:
        """Lock the file at the path and return its end, or raise `LockHeldError`.

        `AuditError`: its end is not one that appends and a power cut leave, or its key is gone.
        """
        for _ in range(_OPEN_TRIES):
            if self._handle == -1:
                self._open()
            if not try_lock(self._handle):
                raise LockHeldError
            try:
                there = stat_at(self.path)
                if there is not None and (there.st_dev, there.st_ino) == self._identity:
                    tail = self._tail_of(there.st_size)
                    self._check_unchanged(there.st_ctime_ns)
                    return tail
            except BaseException:
                unlock(self._handle)
                raise
            unlock(self._handle)
            # Rotated or replaced since it was opened.
            self._close_log()
        raise AuditError("log-replaced", "the audit log is replaced all the time", self.path)

    def end(self) -> None:
        if self._handle != -1:
            unlock(self._handle)

    def append(
        self, encoded: EncodedRecord, milliseconds: int, *, record_id: str = "", durable: bool
    ) -> bytes:
        """Write a record, between `begin` and `end`; after `OSError` the file is as it was."""
        tail = self._known_tail()
        seq = tail.seq + 1
        record_id = record_id or self.new_id(milliseconds, after=tail.id)
        line, found = sealed(
            encoded,
            self.keys,
            record_id=record_id,
            seq=seq,
            ts=timestamp(milliseconds),
            prev=tail.hash,
            server=self.server,
        )
        # Torn bytes stay where they are, on a line of their own: the log is only appended to.
        data = b"\n" + line if tail.is_open else line
        size = tail.size + len(data)
        before = self._head.known()
        after = LogHead(seq=seq, size=size, hash=found, durable=seq if durable else before.durable)
        # INVARIANT: the record is whole, and on the disk where it must be, before the side file
        # says so and before the caller acts; on any failure the log is as it was.
        try:
            write_all(self._handle, data)
            if durable:
                os.fsync(self._handle)
            self._head.write(after, self.keys)
        except BaseException:
            self._tail = None
            with suppress(OSError):
                os.ftruncate(self._handle, tail.size)
                self._head.write(before, self.keys)
            raise
        if self._day_end == _NEVER:
            self._day_end = _end_of_day(milliseconds)
        self._durable = self._durable or durable
        self._tail = Tail(seq=seq, hash=found, id=record_id, size=size, line=line)
        return line

    def new_id(self, milliseconds: int, *, after: str = "") -> str:
        return ulid(milliseconds, self._random_bytes(10), after=after)

    def is_due(self, milliseconds: int) -> bool:
        """Return whether the file must be closed before the next record, for its size or age."""
        tail = self._known_tail()
        if tail.size < self._max_bytes and milliseconds < self._day_end:
            return False
        return tail.size > 0 and time.monotonic() >= self._rotate_at

    def rotate(self, milliseconds: int) -> None:
        """Close the file with a record and put it among the archives; `begin` starts the next.

        After a crash at any moment the log continues: `begin` sees that the side file describes the
        end of the newest archive. A file that cannot be moved stays the active one.
        """
        day = day_of(self._day_end - 1 if self._day_end != _NEVER else milliseconds)
        try:
            target = next_archive(self.path, day)
        except OSError as error:
            self._put_off(error)
            return
        detail = {"event": "closed", "archive": target.name}
        reason = "the log goes on in the next file"
        encoded = _own(AuditDraft(kind="rotation", tool="audit", reason=reason, detail=detail))
        self.append(encoded, milliseconds, durable=True)
        self._head.sync()
        try:
            os.rename(self.path, target)
        except OSError as error:
            self._put_off(error)
            return
        self.rotation_error = ""
        for directory in (target.parent, self.path.parent):
            with suppress(OSError):
                sync_directory(directory)
        self.end()
        self._close_log()

    def open_next(self, milliseconds: int) -> None:
        """Write the first record of a file that follows an archive, between `begin` and `end`."""
        tail = self._known_tail()
        before = archives_of(self.path)
        detail: dict[str, object] = {
            "event": "opened",
            "after": before[-1].path.name.removesuffix(".gz") if before else "",
            "last_seq": tail.seq,
            "last_hash": tail.hash,
        }
        reason = "the log goes on from the file before"
        encoded = _own(AuditDraft(kind="rotation", tool="audit", reason=reason, detail=detail))
        self.append(encoded, milliseconds, durable=True)

    def checkpoint(self, milliseconds: int, *, now: bool = False) -> None:
        """Write a checkpoint when one is due; needs the lock.

        Its error is kept in `checkpoint_error`, because the log itself is whole.
        """
        tail, checked = self._known_tail(), self._checked or 0
        due = tail.seq - checked >= CHECKPOINT_EVERY or (now and self._durable)
        if not due or tail.seq == checked or (not now and time.monotonic() < self._retry_at):
            return
        try:
            # INVARIANT: no checkpoint names a record that a power cut may still take.
            os.fsync(self._handle)
            self._checkpoints.write(tail.seq, tail.hash, timestamp(milliseconds), self.keys)
        except (OSError, AuditError) as error:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.checkpoint_error = f"no checkpoint can be written: {error}"
            return
        self.checkpoint_error = ""
        self._checked, self._durable = tail.seq, False
        if (head := self._head.known()).durable < tail.seq:
            self._head.write(replace(head, durable=tail.seq), self.keys)

    def close(self) -> None:
        self._head.close()
        self._close_log()

    def _open(self) -> None:
        make_private(self.path.parent)
        self._handle = open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        found = os.fstat(self._handle)
        if problem := opened_problem(found, self.path):
            self._close_log()
            raise AuditError("log-exposed", f"the log is not written: {problem}", self.path)
        self._identity = identity(found)
        self._tail = None
        self._day_end = _NEVER

    def _close_log(self) -> None:
        self._tail = None
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1

    def _put_off(self, error: OSError) -> None:
        self._rotate_at = time.monotonic() + _RETRY_SECONDS
        self.rotation_error = f"the log cannot be archived ({error.strerror or error})"

    def _known_tail(self) -> Tail:
        if self._tail is None:
            raise AuditError("log-unread", "the log's end is not known", self.path)
        return self._tail

    def _tail_of(self, size: int) -> Tail:
        """Return the end of the file: the last write if it is still there, else read again."""
        tail = self._tail
        if (
            tail is not None
            and tail.size == size
            and tail.line
            and self._head.is_known()
            and read_at(self._handle, size - len(tail.line), len(tail.line)) == tail.line
        ):
            return tail
        self._tail = None
        head = self._read_head(size)
        self._tail = tail = self._read_tail(head)
        if self._checked is None:
            self._compare(tail)
        if self._day_end == _NEVER and size:
            self._day_end = self._first_day_end(size)
        return tail

    def _check_unchanged(self, changed_ns: int) -> None:
        """Read the whole file where something touched it after its last record (`log-changed`).

        The side file is written after each record, so that the log is never younger. Programs can
        set when a file was modified, but not when its state changed (inode(7)).
        """
        head = self._head.known()
        if changed_ns <= self._head.written_ns():
            return
        if changed_ns != self._fault[0]:
            problem = active_problem(self._handle, head.size, self.keys)
            self._fault = (changed_ns, f"line {problem.line}: {problem.message}" if problem else "")
        if fault := self._fault[1]:
            message = f"the log was changed after it was written, {fault}; look at it with"
            message += " `skillhouse audit verify`, then move it aside to start a new one"
            raise AuditError("log-changed", message, self.path)
        self._head.write(head, self.keys)

    def _read_head(self, size: int) -> LogHead:
        """Return what the side file says, and know the keys after that."""
        archives = archives_of(self.path) if size == 0 else ()
        data = self._head.data(new_log=size == 0 and not archives)
        if self._keys is None:
            self._keys = read_keys(self.path, self._given)
        is_new = size == 0 and not archives and not data
        if self._keys is None:
            if not is_new:
                raise self._key_missing(data)
            self._keys = make_keys(self.path, self._random_bytes(KEY_BYTES))
        if is_new:
            return self._head.begin(self._keys)
        head = head_of(data, self._keys)
        if head is None:
            message = "the log's side file was changed, or belongs to another key"
            raise AuditError("head-unreadable", message, self._head.path)
        # What is written on a failure is this head.
        self._head.take(data, head)
        return head

    def _key_missing(self, data: bytes) -> AuditError:
        """Return why a log without a key, which has this side file, is not written."""
        if head_of(data, None) is None:
            return AuditError("head-unreadable", "the log's side file was changed", self._head.path)
        message = "the log was written with a key, which is gone; put it back, or move the log"
        return AuditError("key-missing", f"{message} aside to start a new one", self.path)

    def _read_tail(self, head: LogHead) -> Tail:
        try:
            return read_tail(self._handle, head, self.path, self.keys)
        except AuditError:
            # After a crash during a rotation the side file describes the newest archive.
            if not self._is_archived(head):
                raise
            return read_tail(self._handle, replace(head, size=0), self.path, self.keys)

    def _is_archived(self, head: LogHead) -> bool:
        archives = archives_of(self.path)
        if not archives:
            return False
        for line in last_lines(archives[-1]):
            with suppress(LineError):
                record = opened(line, self._keys, summaries=True)
                if (record.seq, record.hash) == (head.seq, head.hash):
                    return True
        return False

    def _compare(self, tail: Tail) -> None:
        """Compare the log with the newest checkpoint (`log-truncated`), once for each process."""
        try:
            last = self._checkpoints.last(self.keys)
        except OSError as error:
            self.checkpoint_error = f"no checkpoint can be read: {error}"
            return
        if last is not None and (
            last.seq > tail.seq or (last.seq == tail.seq and last.hash != tail.hash)
        ):
            message = f"a checkpoint knows {last.seq} records, the log has {tail.seq}"
            raise AuditError("log-truncated", message, self.path)
        self._checked = 0 if last is None else last.seq
        self._compare_state(tail)

    def _compare_state(self, tail: Tail) -> None:
        """Compare the log with its newest head in the state (`log-truncated`), likewise."""
        if self._state_heads is None:
            return
        try:
            head = self._state_heads.last(self.keys)
        except StateError as error:
            self.head_error = f"the heads of logs in the state cannot be read: {error}"
            return
        if head is None:
            return
        if head.seq > tail.seq or (head.seq == tail.seq and head.hash != tail.hash):
            message = f"the state knows {head.seq} records of this log, it has {tail.seq}"
            if head.seq == tail.seq:
                message = "the state knows another last record of this log"
            raise AuditError("log-truncated", message, self.path)

    def durable_head(self, milliseconds: int) -> StateHead | None:
        """Return the log's head once it is on the disk; None while another process writes."""
        try:
            tail = self.begin()
        except LockHeldError:
            return None
        try:
            # INVARIANT: the state names no record that a power cut may still take.
            os.fsync(self._handle)
            return sealed_head(
                self.keys,
                seq=tail.seq,
                server=self.server,
                record_hash=tail.hash,
                at_ms=milliseconds,
            )
        finally:
            self.end()

    def _first_day_end(self, size: int) -> int:
        for line in split(chunks(self._handle, min(size, 1 << 20))):
            with suppress(LineError):
                return (day_number(opened(line[:-1], self._keys).ts[:10]) + 1) * DAY_MILLISECONDS
        return _NEVER


def _end_of_day(milliseconds: int) -> int:
    return (milliseconds // DAY_MILLISECONDS + 1) * DAY_MILLISECONDS


def _own(draft: AuditDraft) -> EncodedRecord:
    return encode_record(draft, KnownSecrets())
