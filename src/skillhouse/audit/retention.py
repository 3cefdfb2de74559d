"""Packs archives and shortens the old ones, on a thread beside the log."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.archives import (
    SEAL_LINE,
    STAGES,
    Archive,
    Gap,
    archive_directory,
    archive_lines,
    archives_of,
    gap_of,
    pack_archive,
    replace_packed,
    tidying,
)
from skillhouse.audit.line import LineError, opened, summary_of
from skillhouse.audit.log_files import LogKeys
from skillhouse.audit.record import AuditDraft, AuditError, AuditRecord, day_number, day_of
from skillhouse.audit.verify import archive_problem
from skillhouse.floor.structs import asdict, replace


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
    problem = archive_problem(archive, keys)
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
