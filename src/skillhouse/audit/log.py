"""Appends records: one writer at a time, each record completely or not at all.

A change that a person makes is recorded before and after it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.audit.chain import MAX_FILE_BYTES, ChainFile, LockHeldError
from skillhouse.audit.line import encode_record, id_of, record_of, unsealed
from skillhouse.audit.log_end import default_directory, torn_facts
from skillhouse.audit.record import (
    KINDS,
    STATUSES,
    AuditDraft,
    AuditError,
    AuditRecord,
    timestamp,
    ulid,
)
from skillhouse.audit.redaction import LONG_TEXT, KnownSecrets, Secrets, clean_text, redacted
from skillhouse.audit.retention import ArchiveCompactor, Retention
from skillhouse.audit.state_heads import HeadsByLog, HeadWriter, StateHead, StateHeads
from skillhouse.audit.verify import (
    Degraded,
    Pending,
    gap_note,
    repair_note,
    to_stderr,
    verify_log,
)
from skillhouse.floor import lock as locks
from skillhouse.floor.machine import short_boot_id, state_advice
from skillhouse.floor.threads import finish_in_thread, in_thread

if TYPE_CHECKING:
    from skillhouse.audit.verify import Progress, Verification

MAX_BUFFERED = 1_000
"""Records kept in memory while the log is down (decision 9, S000-115)."""
RETRY_SECONDS = 10.0
"""Time after which records that wait are tried again, without a call that does it (S000-116)."""
READ_WAIT_SECONDS = 1.0
"""Time that a read waits for the lock before its record is kept in memory and it goes on."""
_WRITE_TRIES = 16


class AuditLog:
    """The audit log. Threads and processes may share it; each process opens its own files.

    An append may wait `LOCK_SECONDS` for another process: never on the thread of an event loop.
    """

    _chain: ChainFile
    _mutex: threading.Lock
    _timer: threading.Timer | None
    _compactor: ArchiveCompactor

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        random_bytes: Callable[[int], bytes] = os.urandom,
        key: bytes | None = None,
        checkpoints: Path | None = None,
        secrets: Secrets | None = None,
        retention: Retention | None = None,
        server: str = "",
        heads: StateHeads | None = None,
        max_bytes: int = MAX_FILE_BYTES,
        retry_seconds: float = RETRY_SECONDS,
        warn: Callable[[str], None] = to_stderr,
    ) -> None:
        """Name the log; nothing is opened before the first append.

        Args:
            path: The JSONL file; `<name>.head` and `<name>.key` are beside it.
            clock: Seconds since 1970.
            random_bytes: Returns that many unpredictable bytes.
            key: The secret that seals the log; made once and kept beside the log when None.
            checkpoints: Directory for signed checkpoints, best on another machine or for another
                user; one beside the log when None.
            secrets: Returns the values that must not be recorded; called before each record.
            retention: 30 and 90 days when None.
            server: The name of this server, in each record; "" for none.
            heads: Where the log's heads are kept away from it.
            max_bytes: Bytes after which a file is closed and the next one begun.
            retry_seconds: Time after which records that wait are tried again.
            warn: Receives a line when the log goes down, and each record of an effect that could
                not be written, without its secrets.
        """
        self.path = path
        self.checkpoints = checkpoints or default_directory(path)
        self._clock = clock
        self._random_bytes = random_bytes
        self.key = key
        self._secrets = secrets
        self._known = KnownSecrets()
        self._retention = retention or Retention()
        self._max_bytes = max_bytes
        self._retry_seconds = retry_seconds
        self._warn = warn
        self._buffer: deque[Pending] = deque(maxlen=MAX_BUFFERED)
        self._dropped = 0
        self._refused = 0
        self._down: tuple[str, str, str] | None = None
        self._boot = short_boot_id()
        self._heads = None if heads is None else HeadWriter(heads)
        self._server = server
        self._start()

    @property
    def degraded(self) -> Degraded | None:
        """Why the log cannot be written, or None; meanwhile no call with a tier may run."""
        if self._down is None:
            return None
        code, message, since = self._down
        return Degraded(
            code=code,
            message=message,
            since=since,
            buffered=len(self._buffer),
            dropped=self._dropped,
            refused=self._refused,
        )

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    @property
    def dropped(self) -> int:
        """Records lost for lack of memory, whose number is not in the log yet."""
        return self._dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that stop no record but need a person: checkpoints or archives that fail."""
        chain = self._chain
        of_heads = chain.head_error or ("" if self._heads is None else self._heads.error)
        own = (chain.checkpoint_error, chain.rotation_error)
        found = (*own, of_heads, self._compactor.error)
        return tuple(each for each in found if each)

    def preview(self, arguments: Mapping[str, object]) -> dict[str, object]:
        return redacted(arguments, known=self._known_secrets())

    def clean(self, text: str) -> str:
        """Return a text without secrets; only a very long one is cut."""
        return clean_text(text, limit=LONG_TEXT, kept=LONG_TEXT, known=self._known_secrets())

    def append(self, draft: AuditDraft, *, durable: bool) -> AuditRecord:
        """Write a record, after those waiting in memory.

        With `durable`, it is on the disk (fsync) when this returns. After `AuditError` nothing was
        recorded, and what needs the record must not happen.
        """
        return record_of(self._append(draft, durable=durable))

    def write(self, draft: AuditDraft, *, durable: bool) -> str:
        """Do as `append`, but return only the id, which is faster."""
        return id_of(self._append(draft, durable=durable))

    def _append(self, draft: AuditDraft, *, durable: bool) -> bytes:
        pending = self._pending(draft)
        try:
            return self._write(pending, durable=durable, seconds=locks.LOCK_SECONDS)
        except AuditError as error:
            with self._mutex:
                self._refused += error.code != "record-invalid"
            raise

    def append_or_keep(self, draft: AuditDraft) -> AuditRecord:
        """Write a record that no effect depends on; while the log is down, keep it in memory.

        For reads inside the allowed places, and for the outcome of an effect that has happened.
        A record that was kept has its id, and 0 as `seq` until it is written. An intent with a
        tier is never kept: its effect must not happen (S000-117), so any `AuditError` is raised.
        Else only `record-invalid` is: no log can record the draft.
        """
        found = self._append_or_keep(draft)
        return record_of(found) if isinstance(found, bytes) else found

    def write_or_keep(self, draft: AuditDraft) -> str:
        """Do as `append_or_keep`, but return only the id, which is faster."""
        found = self._append_or_keep(draft)
        return id_of(found) if isinstance(found, bytes) else found.id

    def _append_or_keep(self, draft: AuditDraft) -> bytes | AuditRecord:
        if draft.kind == "intent" and "none" not in (draft.tier or "none", draft.effective_tier):
            return self._append(draft, durable=True)
        pending = self._pending(draft)
        # The outcome of an effect is worth waiting for; while the log is down no call waits.
        seconds = locks.LOCK_SECONDS if draft.kind == "outcome" else READ_WAIT_SECONDS
        seconds = 0 if self._down else seconds
        try:
            return self._write(pending, durable=False, seconds=seconds)
        except AuditError as error:
            if error.code == "record-invalid":
                raise
            with self._mutex:
                return self._keep(pending)

    def flush(self) -> None:
        """Write the records that wait; `AuditError` if the log is still down."""
        self._write_waiting(seconds=locks.LOCK_SECONDS)

    def state_heads(self) -> HeadsByLog | None:
        """Return what the state knows of every log; None where it keeps no heads (StateError)."""
        return None if self._heads is None else self._heads.known()

    def verify(self, *, progress: Progress | None = None) -> Verification:
        """Do as `verify_log` for this log."""
        return verify_log(
            self.path,
            key=self.key,
            checkpoints=self.checkpoints,
            heads=self.state_heads(),
            progress=progress,
        )

    def close(self) -> None:
        """Write waiting records and a checkpoint, and close the files; an append reopens them.

        Records that cannot be written yet stay in memory.
        """
        self._claim()
        self._compactor.wait()
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        with suppress(AuditError):
            self._write_waiting(seconds=locks.LOCK_SECONDS)
        with self._mutex:
            self._last_checkpoint()
        if self._heads is not None:
            self._heads.end(self._durable_head)
        with self._mutex:
            self._chain.close()

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self._process = os.getpid()
        self._mutex = threading.Lock()
        self._timer = None
        self._is_tidied = False
        self._compactor = ArchiveCompactor(
            self.path, self._retention, self._clock, self.append_or_keep
        )
        self._chain = ChainFile(
            self.path,
            key=self.key,
            checkpoints=self.checkpoints,
            max_bytes=self._max_bytes,
            random_bytes=self._random_bytes,
            server=self._server,
            heads=None if self._heads is None else self._heads.heads,
        )
        if self._heads is not None:
            self._heads.restart()

    def _claim(self) -> None:
        if self._process == os.getpid():
            return
        # A lock belongs to the open file, which a forked child shares with its parent: the
        # child opens its own. The records that wait are the parent's to write.
        self._chain.close()
        self._start()
        self._buffer.clear()
        self._dropped = self._refused = 0

    def _pending(self, draft: AuditDraft) -> Pending:
        if draft.kind not in KINDS or draft.status not in STATUSES:
            message = f"no such record: kind {draft.kind!r}, status {draft.status!r}"
            raise AuditError("record-invalid", message, self.path)
        try:
            milliseconds = round(self._clock() * 1_000)
            ts = timestamp(milliseconds)
            encoded = encode_record(draft, self._known_secrets(), boot=self._boot)
            return Pending(milliseconds, ts, encoded)
        except (TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            message = f"arguments of `{draft.tool}` cannot be recorded"
            raise AuditError("record-invalid", message, self.path) from error

    def _known_secrets(self) -> KnownSecrets:
        if self._secrets is not None:
            values = tuple(self._secrets())
            if values != self._known.values:
                self._known = KnownSecrets(values)
        return self._known

    def _keep(self, pending: Pending) -> AuditRecord:
        after = self._buffer[-1].id if self._buffer else ""
        made = ulid(pending.milliseconds, self._random_bytes(10), after=after)
        if len(self._buffer) == MAX_BUFFERED:
            self._dropped += 1
        self._buffer.append(pending._replace(id=made))
        if b',"kind":"outcome",' in pending.encoded.front:
            # The effect has happened: should this process end now, this line is what is left.
            front, behind = pending.encoded.front.decode(), pending.encoded.behind.decode()
            self._warn(f'[AUDIT-DEGRADED] {{"id":"{made}",{front},{behind}}}')
        self._retry_later()
        return unsealed(pending.encoded, record_id=made, ts=pending.ts)

    def _write(self, pending: Pending, *, durable: bool, seconds: float) -> bytes:
        """Write waiting records and then `pending`; those that fail stay in memory."""
        self._claim()
        end = time.monotonic() + seconds
        while True:
            # Free while another process has the file: each thread gives up when its time is over.
            with self._mutex:
                try:
                    return self._written_now(pending, durable=durable)
                except LockHeldError:
                    if time.monotonic() >= end:
                        message = f"another process holds the lock of `{self.path.name}`"
                        raise self._fail("log-locked", message, pending) from None
            time.sleep(locks.LOCK_PAUSE_SECONDS)

    def _written_now(self, pending: Pending, *, durable: bool) -> bytes:
        try:
            line = self._written(pending, durable=durable)
        except AuditError as error:
            if error.code != "record-invalid":
                self._fail(error.code, error.message, pending)
            raise
        except OSError as error:
            message = f"the audit log cannot be written ({error.strerror or error})"
            advice = state_advice(error)
            raise self._fail("log-unwritable", message, pending, advice=advice) from error
        if self._down is not None:
            self._down = None
            self._warn("[AUDIT-DEGRADED] over: the audit log is written again")
        if not self._is_tidied:
            self._is_tidied = True
            self._compactor.start(self._chain.keys)
        if self._heads is not None:
            self._heads.note(self._durable_head)
        return line

    def _written(self, pending: Pending, *, durable: bool) -> bytes:
        chain, milliseconds = self._chain, pending.milliseconds
        for _ in range(_WRITE_TRIES):
            tail = chain.begin()
            try:
                if tail.is_open or tail.lost:
                    detail = torn_facts(tail.torn) | {"lost_records": tail.lost}
                    repair = repair_note("the log ended in a torn record", detail, self._boot)
                    chain.append(repair, milliseconds, durable=durable)
                if tail.size == 0 and tail.seq:
                    chain.open_next(milliseconds)
                elif chain.is_due(milliseconds):
                    chain.rotate(milliseconds)
                    self._is_tidied = False
                    if not chain.rotation_error:
                        continue
                if self._dropped or self._refused:
                    since = self._down[2] if self._down else ""
                    lost = gap_note(since, self._dropped, self._refused, self._boot)
                    chain.append(lost, milliseconds, durable=False)
                    self._dropped = self._refused = 0
                while self._buffer:
                    first = self._buffer[0]
                    chain.append(
                        first.encoded, first.milliseconds, record_id=first.id, durable=False
                    )
                    self._buffer.popleft()
                line = chain.append(
                    pending.encoded, milliseconds, record_id=pending.id, durable=durable
                )
                chain.checkpoint(milliseconds)
                return line
            finally:
                chain.end()
        raise AuditError("log-replaced", "the audit log is rotated all the time", self.path)

    def _fail(self, code: str, message: str, pending: Pending, *, advice: str = "") -> AuditError:
        if self._down is None:
            self._warn(f"[AUDIT-DEGRADED] {code}: {message}; effects are refused until it is")
            self._down = (code, message, pending.ts)
        else:
            self._down = (code, message, self._down[2])
        return AuditError(code, message, self.path, advice=advice)

    def _retry_later(self) -> None:
        if self._timer is None and self._retry_seconds > 0:
            self._timer = threading.Timer(self._retry_seconds, self._retry)
            self._timer.daemon = True
            self._timer.start()

    def _retry(self) -> None:
        with self._mutex:
            self._timer = None
        try:
            self._write_waiting(seconds=0)
        except AuditError:
            with self._mutex:
                self._retry_later()

    def _write_waiting(self, *, seconds: float) -> None:
        self._claim()
        with self._mutex:
            if not self._buffer:
                return
            last = self._buffer.pop()
        try:
            self._write(last, durable=False, seconds=seconds)
        except BaseException:
            with self._mutex:
                self._dropped += len(self._buffer) == MAX_BUFFERED
                self._buffer.append(last)
            raise

    def _durable_head(self) -> StateHead | None:
        """Return the log's head as the state is to have it; None while another process writes."""
        with self._mutex:
            return self._chain.durable_head(round(self._clock() * 1_000))

    def _last_checkpoint(self) -> None:
        with suppress(AuditError, OSError, LockHeldError):
            if self._chain.has_news:
                self._chain.begin()
                try:
                    self._chain.checkpoint(round(self._clock() * 1_000), now=True)
                finally:
                    self._chain.end()


@contextmanager
def recorded(audit: AuditLog, action: str, arguments: Mapping[str, object]) -> Iterator[None]:
    """Record a change before and after it; after `AuditError` the block does not run."""
    intent = _begin(audit, action, arguments)
    failed = True
    try:
        yield
        failed = False
    finally:
        _end(audit, action, intent, sys.exc_info()[1] if failed else None)


@contextmanager
def recorded_set(
    audit: AuditLog, action: str, each: Sequence[Mapping[str, object]]
) -> Iterator[list[BaseException | None]]:
    """Like `recorded` for several changes that are made together: the disk is waited for once.

    The block puts into the list that it is given why one of them was not made.
    """
    last = len(each) - 1
    intents = [
        _begin(audit, action, arguments, durable=number == last)
        for number, arguments in enumerate(each)
    ]
    faults: list[BaseException | None] = [None] * len(intents)
    failed = True
    try:
        yield faults
        failed = False
    finally:
        fault = sys.exc_info()[1] if failed else None
        for intent, own in zip(intents, faults, strict=True):
            _end(audit, action, intent, own or fault)


@asynccontextmanager
async def recorded_async(
    audit: AuditLog, action: str, arguments: Mapping[str, object]
) -> AsyncIterator[None]:
    """Like `recorded`, without blocking the event loop while the log is written."""
    intent = await in_thread(lambda: _begin(audit, action, arguments))
    failed = True
    try:
        yield
        failed = False
    finally:
        fault = sys.exc_info()[1] if failed else None
        # Also when it is cancelled: each intent gets an outcome.
        await finish_in_thread(lambda: _end(audit, action, intent, fault))


def _begin(
    audit: AuditLog, action: str, arguments: Mapping[str, object], *, durable: bool = True
) -> str:
    tool = f"manage:{action}"
    draft = AuditDraft(kind="intent", tool=tool, user="local", arguments=arguments)
    return audit.write(draft, durable=durable)


def _end(audit: AuditLog, action: str, intent: str, fault: BaseException | None) -> None:
    draft = AuditDraft(
        kind="outcome",
        tool=f"manage:{action}",
        user="local",
        status="ok" if fault is None else "error",
        error="" if fault is None else str(fault) or type(fault).__name__,
        intent=intent,
    )
    audit.append_or_keep(draft)
