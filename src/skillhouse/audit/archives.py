"""The closed files of a log: their names, their content, and all files of a log at one moment.

They are packed, and old ones shortened, on a thread beside the log.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from skillhouse import audit
from skillhouse.audit.line import LineError, opened, summary_of
from skillhouse.audit.log_end import HEAD_BYTES, head_path
from skillhouse.audit.log_files import (
    LogKeys,
    identity,
    lines_of,
    open_file,
    open_lines,
    pack,
    read_at,
    stat_at,
)
from skillhouse.audit.record import AuditDraft, AuditError, AuditRecord, day_number, day_of
from skillhouse.floor import DecodeError, descriptor, shaped, sync_directory
from skillhouse.floor.lock import lock, try_lock, unlock
from skillhouse.floor.structs import asdict, replace


class Archive(Struct, frozen=True, kw_only=True):
    """One closed file of the log."""

    log: Path
    """The active file."""
    path: Path
    day: str
    """UTC day of its first record; all of its records are of that day unless the clock was set."""
    number: int
    """Position among the archives, which is the order of the chain."""
    stage: str = ""
    """Empty while it is whole; "summary" without previews, "kept" with permanent records only."""

    @property
    def is_packed(self) -> bool:
        return self.path.suffix == ".gz"


def archive_directory(log: Path) -> Path:
    """Return the directory of closed files: `audit-archive` for `audit.jsonl`."""
    return log.with_name(f"{log.stem}-archive")


def archives_of(log: Path) -> tuple[Archive, ...]:
    """Return the closed files of a log, the oldest first; of one left twice, the older file."""
    pattern = re.compile(
        re.escape(log.stem)
        + r"-([0-9]{4}-[0-9]{2}-[0-9]{2})-([0-9]{6,12})(?:\.(summary|kept))?\.jsonl(\.gz)?"
    )
    found: dict[int, Archive] = {}
    try:
        names = os.listdir(archive_directory(log))
    except FileNotFoundError:
        return ()
    for name in names:
        if match := pattern.fullmatch(name):
            one = Archive(
                log=log,
                path=archive_directory(log) / name,
                day=match[1],
                number=int(match[2]),
                stage=match[3] or "",
            )
            other = found.get(one.number)
            if other is None or _age(one) < _age(other):
                found[one.number] = one
    return tuple(found[number] for number in sorted(found))


_TRIES = 3
STAGES = ("", "summary", "kept")


def _age(archive: Archive) -> tuple[int, bool, str]:
    return (STAGES.index(archive.stage), archive.is_packed, archive.path.name)


def next_archive(log: Path, day: str) -> Path:
    """Return the path of the archive that comes next; makes its directory."""
    directory = archive_directory(log)
    directory.mkdir(exist_ok=True, mode=0o700)
    if directory.is_symlink():
        raise AuditError("log-link", "a symbolic link is no directory of archives", directory)
    before = archives_of(log)
    number = before[-1].number + 1 if before else 1
    return directory / f"{log.stem}-{day}-{number:06}.jsonl"


def open_archive(archive: Archive) -> tuple[Archive, int]:
    """Return a descriptor of an archive, and the archive as it is now."""
    for _ in range(_TRIES):
        try:
            return archive, open_file(archive.path, os.O_RDONLY)
        except FileNotFoundError:
            # Packed or shortened since it was listed.
            same = [one for one in archives_of(archive.log) if one.number == archive.number]
            if not same:
                raise
            archive = same[0]
    return archive, open_file(archive.path, os.O_RDONLY)


def size_of(archive: Archive) -> int:
    """Return the bytes of an archive, 0 where it is just being replaced."""
    found = stat_at(archive.path)
    return 0 if found is None else found.st_size


def last_lines(archive: Archive) -> list[bytes]:
    """Return the last lines of an archive, without their newlines."""
    archive, handle = open_archive(archive)
    lines = deque(lines_of(handle, archive.path), maxlen=2)
    return [line.rstrip(b"\n") for line in lines]


def pack_archive(archive: Archive) -> Archive:
    """Compress an archive; a complete file exists at every moment."""
    packed = archive.path.with_name(archive.path.name + ".gz")
    replace_packed(packed, open_lines(archive.path))
    archive.path.unlink()
    return replace(archive, path=packed)


def replace_packed(path: Path, lines: Iterator[bytes]) -> None:
    """Write lines to a packed file and put it in place of an existing one."""
    # Not `write_atomically`: under the lock one name is enough, and what a crash left goes at the
    # next try.
    made = path.with_name(path.name + ".new")
    made.unlink(missing_ok=True)
    pack(lines, made)
    os.replace(made, path)
    sync_directory(path.parent)


@contextmanager
def tidying(log: Path) -> Iterator[bool]:
    """Hold the lock for work on the archives; yield False if another process has it."""
    with descriptor(open_file(archive_directory(log) / "lock", os.O_RDWR | os.O_CREAT)) as handle:
        yield try_lock(handle)


_REMOVED = b'{"removed":'
SEAL_LINE = b'{"reduced":{"stage":"%b"},"mac":"%b"}\n'


class Gap(Struct, frozen=True, kw_only=True):
    """The line that replaces removed records."""

    first: int
    last: int
    prev: str
    """Hash of the record before the first."""
    hash: str
    """Hash of the last."""


def archive_lines(archive: Archive, keys: LogKeys | None) -> tuple[Archive, Iterator[bytes]]:
    """Return an archive as it is now, and its lines but the seal of one that was shortened.

    `AuditError` is `archive-changed`, after the lines, or `key-missing`.
    """
    archive, handle = open_archive(archive)
    lines = lines_of(handle, archive.path)
    if archive.stage and keys is None:
        os.close(handle)
        raise AuditError("key-missing", "the log's key is gone", archive.path)
    return archive, _unsealed(archive, keys, lines) if archive.stage and keys else lines


def _unsealed(archive: Archive, keys: LogKeys, lines: Iterator[bytes]) -> Iterator[bytes]:
    mac = keys.archives.copy()
    held = b""
    for line in lines:
        if held:
            mac.update(held)
            yield held
        held = line
    if held != SEAL_LINE % (archive.stage.encode(), mac.hexdigest().encode()):
        raise AuditError("archive-changed", "the archive does not fit its seal", archive.path)


def gap_of(line: bytes) -> Gap | None:
    """Return the gap on a line without its newline, or None."""
    if not line.startswith(_REMOVED):
        return None
    try:
        return shaped(json.loads(line)["removed"], Gap)
    except (ValueError, KeyError, RecursionError, DecodeError):
        return None


_SNAPSHOT_TRIES = 64


class LogSnapshot(Struct, frozen=True, kw_only=True):
    """Files that belong together; the caller closes the descriptor."""

    handle: int
    """Of the active file, -1 where there is none."""
    size: int
    """Its bytes at that moment; later bytes are not read."""
    head: bytes | None
    """Content of the side file, None where there is none."""
    archives: tuple[Archive, ...]


def take_snapshot(path: Path) -> LogSnapshot:
    """Return the files of a log; a rotation meanwhile neither hides nor repeats one."""
    for _ in range(_SNAPSHOT_TRIES):
        head = _head(path)
        try:
            handle = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            archives = archives_of(path)
            # Between two files of a log there is none to lock. Any record since the file was
            # looked for changed the head that was read before.
            if _head(path) == head:
                return LogSnapshot(handle=-1, size=0, head=head, archives=archives)
            continue
        try:
            lock(handle, shared=True)
            try:
                there, here = stat_at(path), os.fstat(handle)
                # A file that was archived since it was opened would be met twice.
                if there is not None and identity(there) == identity(here):
                    found = archives_of(path)
                    return LogSnapshot(
                        handle=handle, size=here.st_size, head=_head(path), archives=found
                    )
            finally:
                unlock(handle)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise AuditError("log-replaced", "the audit log is replaced all the time", path)


def _head(path: Path) -> bytes | None:
    try:
        handle = open_file(head_path(path), os.O_RDONLY)
    except FileNotFoundError:
        return None
    with descriptor(handle):
        return read_at(handle, 0, HEAD_BYTES + 1)


class Retention(Struct, frozen=True, kw_only=True):
    """How long records are kept; those of the permanent classes always are, and whole."""

    summary_days: int = 30
    """Days after which arguments and details are taken out (S000-127)."""
    keep_days: int = 90
    """Days after which records are removed (S000-126)."""


def tidy(log: Path, keys: LogKeys, retention: Retention, *, now: int) -> tuple[AuditDraft, ...]:
    """Pack the archives of a log and shorten those whose time has come; return a record of each.

    At each moment, crash or not, each record is in one file that verifies. Where the day is
    further from the newest archive than `Retention.summary_days`, nothing is shortened this time:
    a clock that was set must not cost the log. `now` is milliseconds since 1970. An archive that
    does not verify (`archive-changed`) is left as it is.
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
    # INVARIANT: only an archive that verifies is sealed again, or a change would be sealed too.
    problem = audit.archive_problem(archive, keys)
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


WAIT_SECONDS = 60.0
"""Time that the end of a process waits for it; the next process does the rest."""


class ArchiveCompactor:
    """Runs one thread at a time, which may be stopped at any moment."""

    def __init__(
        self,
        log: Path,
        retention: Retention,
        clock: Callable[[], float],
        record: Callable[[AuditDraft], object],
    ) -> None:
        """`clock` returns seconds since 1970; `record` receives a record of each change."""
        self.error = ""
        """Why archives are not as they should be; empty when they are."""
        self._log = log
        self._retention = retention
        self._clock = clock
        self._record = record
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_running = False
        self._is_due = False
        """Whether a file was closed since the thread looked which there are."""

    def start(self, keys: LogKeys) -> None:
        """Start the thread if there are archives; one that runs looks once more at its end."""
        if not archive_directory(self._log).is_dir():
            return
        with self._lock:
            self._is_due = True
            if self._is_running:
                return
            self._is_running = True
            self._thread = threading.Thread(target=self._run, args=(keys,), daemon=True)
            self._thread.start()

    def wait(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(WAIT_SECONDS)

    def _run(self, keys: LogKeys) -> None:
        try:
            while self._takes():
                self._tidy(keys)
        except BaseException:
            # The next file that is closed starts another thread.
            with self._lock:
                self._is_running = False
            raise

    def _takes(self) -> bool:
        """Whether there is work to do now; if not, the thread has ended for `start`."""
        with self._lock:
            self._is_running, self._is_due = self._is_due, False
            return self._is_running

    def _tidy(self, keys: LogKeys) -> None:
        try:
            done = tidy(self._log, keys, self._retention, now=round(self._clock() * 1_000))
            for each in done:
                self._record(each)
            self.error = ""
        except (OSError, AuditError) as error:
            self.error = f"the archives cannot be packed or shortened: {error}"


def reduced_lines(
    lines: Iterable[bytes], stage: str, keys: LogKeys, *, kept_ids: frozenset[str]
) -> Iterator[bytes]:
    """Yield the lines of an archive without the parts that its stage removes, and a seal.

    The lines were verified. `kept_ids` are of permanent records and of their intents.
    """
    if stage not in STAGES[1:]:
        raise ValueError(f"expected summary or kept, got {stage}")
    mac = keys.archives.copy()
    for line in _reduced(lines, stage, keys, kept_ids):
        mac.update(line)
        yield line
    yield SEAL_LINE % (stage.encode(), mac.hexdigest().encode())


def _reduced(
    lines: Iterable[bytes], stage: str, keys: LogKeys, kept_ids: frozenset[str]
) -> Iterator[bytes]:
    gap: Gap | None = None
    for line in lines:
        found = gap_of(line[:-1])
        if found is None:
            try:
                record = opened(line[:-1], keys, summaries=True)
            except LineError:
                record = None
            if record is not None and stage == "kept" and not _is_kept(record, kept_ids):
                found = Gap(first=record.seq, last=record.seq, prev=record.prev, hash=record.hash)
        if found is not None:
            gap = found if gap is None else replace(gap, last=found.last, hash=found.hash)
            continue
        if gap is not None:
            yield _gap_line(gap)
            gap = None
        if record is None or _is_kept(record, kept_ids):
            # Torn bytes stay as they are: the record behind them has their digest.
            yield line
        else:
            yield summary_of(line[:-1]) + b"\n"
    if gap is not None:
        yield _gap_line(gap)


def _is_kept(record: AuditRecord, kept_ids: frozenset[str]) -> bool:
    return is_permanent(record) or record.id in kept_ids or record.intent in kept_ids


def is_permanent(record: AuditRecord) -> bool:
    """Return whether a record is kept whole for good (S000-126).

    Tier 1 in any form, denials of tier 2, whatever signs or was to sign, what has a transaction,
    emergency stops, and the events and marks of the log itself: policy, trust, keys, repairs.
    """
    tiers = (record.tier, record.effective_tier)
    return (
        record.kind in ("event", "repair", "rotation")
        or "1" in tiers
        or (record.status == "denied" and "2" in tiers)
        or record.status in ("emergency-stopped", "stopped")
        or record.security_level == "sign"
        or record.tool == "sign"
        or any(each.action == "sign" for each in record.permissions)
        or (record.transaction is not None and record.transaction.tx_hash != "")
    )


def _gap_line(gap: Gap) -> bytes:
    return json.dumps({"removed": asdict(gap)}, separators=(",", ":")).encode() + b"\n"
