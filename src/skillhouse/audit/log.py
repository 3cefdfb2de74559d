"""Appends records: one writer at a time, all of a record or nothing."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from skillhouse.audit.files import is_at, open_file, write_all
from skillhouse.audit.head import Head, HeadFile
from skillhouse.audit.line import said, sealed
from skillhouse.audit.record import (
    KINDS,
    STATUSES,
    AuditDraft,
    AuditError,
    AuditRecord,
    timestamp,
    ulid,
)
from skillhouse.audit.tail import Tail, read_tail, torn_facts
from skillhouse.floor import DecodeError
from skillhouse.floor.lock import lock, unlock

MAX_BUFFERED = 1_000
"""Records kept in memory while the log is down (decision 9)."""

_OPEN_TRIES = 8


@dataclass(frozen=True, slots=True)
class _Pending:
    """A record that still lacks its place in the chain."""

    milliseconds: int
    fields: dict[str, object]
    id: str = ""
    """Given while the record waits, so that its outcome can name it."""


class AuditLog:
    """The log of a house. Threads and processes may share it; each process opens its own files."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Name the log; nothing is opened before the first append.

        Args:
            path: The JSONL file; `<name>.head` stands beside it.
            clock: Seconds since 1970.
            random_bytes: Returns that many bytes that nobody can guess.
        """
        self.path = path
        self._clock = clock
        self._random_bytes = random_bytes
        self._buffer: deque[_Pending] = deque(maxlen=MAX_BUFFERED)
        self._dropped = 0
        self._degraded = False
        self._start()

    @property
    def is_degraded(self) -> bool:
        """Whether the last attempt to write failed, or records wait to be written."""
        return self._degraded or bool(self._buffer)

    @property
    def buffered(self) -> int:
        """Records that wait in memory."""
        return len(self._buffer)

    @property
    def dropped(self) -> int:
        """Records that found no room in memory and whose number the log does not say yet."""
        return self._dropped

    def append(self, draft: AuditDraft, *, durable: bool) -> AuditRecord:
        """Write a record, after those that wait; when this returns it is in the log.

        Args:
            draft: What to remember.
            durable: Whether it must be on the disk (fsync) rather than only written.

        Raises:
            AuditError: nothing was recorded, and what needs the record must not happen.
        """
        pending = self._pending(draft)
        with self._mine():
            return self._write(pending, durable=durable)

    def append_read(self, draft: AuditDraft) -> AuditRecord:
        """Write a record that nothing waits for; where the log is down it is kept in memory.

        For reads inside the allowed places, and for the outcome of an effect that has happened.
        A record that was kept has its id, and 0 as `seq` until it is written.

        Raises:
            AuditError: `record-invalid`, the draft cannot be recorded by any log.
        """
        pending = self._pending(draft)
        with self._mine():
            try:
                return self._write(pending, durable=False)
            except AuditError as error:
                if error.code == "record-invalid":
                    raise
                return self._keep(pending)

    def flush(self) -> None:
        """Write the records that wait.

        Raises:
            AuditError: the log is still down.
        """
        with self._mine():
            if self._buffer:
                self._write(self._buffer.pop(), durable=False)

    def close(self) -> None:
        """Close the files; a later append opens them again."""
        with self._mine():
            self._close()

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self._process = os.getpid()
        self._mutex = threading.Lock()
        self._handle = -1
        self._head = HeadFile(self.path)

    @contextmanager
    def _mine(self) -> Iterator[None]:
        if self._process != os.getpid():
            # A lock belongs to the open file, which a forked child shares with its parent: the
            # child opens its own. The records that wait are the parent's to write.
            self._close()
            self._start()
            self._buffer.clear()
            self._dropped = 0
        with self._mutex:
            yield

    def _pending(self, draft: AuditDraft) -> _Pending:
        if draft.kind not in KINDS or draft.status not in STATUSES:
            message = f"no such record: kind {draft.kind!r}, status {draft.status!r}"
            raise AuditError("record-invalid", message, self.path)
        try:
            return _Pending(round(self._clock() * 1_000), said(draft))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            message = f"arguments of `{draft.tool}` cannot be recorded"
            raise AuditError("record-invalid", message, self.path) from error

    def _keep(self, pending: _Pending) -> AuditRecord:
        record = self._sealed(pending, Tail(size=0))[0]
        if len(self._buffer) == MAX_BUFFERED:
            self._dropped += 1
        self._buffer.append(replace(pending, id=record.id))
        return replace(record, seq=0, prev="", hash="")

    def _write(self, pending: _Pending, *, durable: bool) -> AuditRecord:
        """Write what waits and then `pending`; what could not be written goes on waiting."""
        try:
            with self._locked() as head:
                tail = read_tail(self._handle, head, self.path)
                if tail.is_open or tail.lost:
                    _, head, tail = self._append(self._repair(tail), head, tail, durable=durable)
                if self._dropped:
                    _, head, tail = self._append(self._gap(), head, tail, durable=False)
                    self._dropped = 0
                while self._buffer:
                    _, head, tail = self._append(self._buffer[0], head, tail, durable=False)
                    self._buffer.popleft()
                record, head, tail = self._append(pending, head, tail, durable=durable)
        except AuditError as error:
            self._degraded = self._degraded or error.code != "record-invalid"
            raise
        except OSError as error:
            self._degraded = True
            message = f"the audit log cannot be written ({error.strerror or error})"
            raise AuditError("log-unwritable", message, self.path) from error
        self._degraded = False
        return record

    def _append(
        self, pending: _Pending, head: Head, tail: Tail, *, durable: bool
    ) -> tuple[AuditRecord, Head, Tail]:
        record, line = self._sealed(pending, tail)
        # Torn bytes stay where they are, on a line of their own: the log is only appended to.
        data = b"\n" + line if tail.is_open else line
        size = tail.size + len(data)
        after = Head(
            seq=record.seq,
            size=size,
            hash=record.hash,
            durable=record.seq if durable else head.durable,
        )
        # INVARIANT: the record is whole, and on the disk where it must be, before the side file
        # says so and before the caller acts; on any failure the log is as it was.
        try:
            write_all(self._handle, data)
            if durable:
                os.fsync(self._handle)
            self._head.write(after)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._handle, tail.size)
                self._head.write(head)
            raise
        return record, after, Tail(seq=record.seq, hash=record.hash, id=record.id, size=size)

    def _sealed(self, pending: _Pending, tail: Tail) -> tuple[AuditRecord, bytes]:
        milliseconds = pending.milliseconds
        try:
            return sealed(
                {
                    **pending.fields,
                    "id": pending.id or ulid(milliseconds, self._random_bytes(10), after=tail.id),
                    "seq": tail.seq + 1,
                    "ts": timestamp(milliseconds),
                    "prev": tail.hash,
                }
            )
        except (TypeError, ValueError, OverflowError, DecodeError) as error:
            message = f"a call of `{pending.fields['tool']}` cannot be recorded"
            raise AuditError("record-invalid", message, self.path) from error

    def _repair(self, tail: Tail) -> _Pending:
        detail = torn_facts(tail.torn) | {"lost_records": tail.lost}
        draft = AuditDraft(
            kind="repair", tool="audit", reason="the log ended in a torn record", detail=detail
        )
        return self._pending(draft)

    def _gap(self) -> _Pending:
        detail = {"dropped_records": self._dropped}
        reason = "reads found no room in memory while the log was down"
        return self._pending(AuditDraft(kind="repair", tool="audit", reason=reason, detail=detail))

    @contextmanager
    def _locked(self) -> Iterator[Head]:
        """Hold the lock of the file that stands at the path now, and read its side file."""
        for _ in range(_OPEN_TRIES):
            if self._handle == -1:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._handle = open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            lock(self._handle)
            try:
                if is_at(self._handle, self.path):
                    yield self._head.read(new_log=os.fstat(self._handle).st_size == 0)
                    return
            finally:
                unlock(self._handle)
            # Rotated or replaced since it was opened.
            self._close()
        raise AuditError("log-replaced", "the audit log is replaced all the time", self.path)

    def _close(self) -> None:
        self._head.close()
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1
