"""Archives from which something was taken out after its time, without breaking the chain.

A summarised record lacks its preview, of which its hash knows the digest. In place of removed
records stands one line with the hashes at both ends of the gap. The last line seals the file: who
has no key cannot take anything out, and no byte of what is left can be changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from skillhouse.audit.archives import STAGES, Archive, open_archive
from skillhouse.audit.keys import LogKeys
from skillhouse.audit.line import opened, summary_of
from skillhouse.audit.lines import lines_of
from skillhouse.audit.record import AuditError, AuditRecord
from skillhouse.audit.unreadable import LineError
from skillhouse.floor import DecodeError, shaped

_REMOVED = b'{"removed":'
_SEAL = b'{"reduced":{"stage":"%b"},"mac":"%b"}\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What stands in place of records that were removed."""

    first: int
    last: int
    prev: str
    """Hash of the record before the first."""
    hash: str
    """Hash of the last."""


def archive_lines(archive: Archive, keys: LogKeys | None) -> tuple[Archive, Iterator[bytes]]:
    """Return an archive as it is now, and its lines but the seal of one that was shortened.

    Raises:
        AuditError: `archive-changed`, after the lines, or `key-missing`.
        OSError: it cannot be opened.
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
    if held != _SEAL % (archive.stage.encode(), mac.hexdigest().encode()):
        raise AuditError("archive-changed", "the archive does not fit its seal", archive.path)


def gap_of(line: bytes) -> Gap | None:
    """Return the gap that a line (without its newline) stands for, or None."""
    if not line.startswith(_REMOVED):
        return None
    try:
        return shaped(json.loads(line)["removed"], Gap)
    except (ValueError, KeyError, RecursionError, DecodeError):
        return None


def reduced_lines(
    lines: Iterable[bytes], stage: str, keys: LogKeys, *, kept_ids: frozenset[str]
) -> Iterator[bytes]:
    """Yield the lines of an archive without what its stage has no room for, and a seal.

    Args:
        lines: Those of the archive before, which were verified.
        stage: summary or kept.
        keys: The keys of the log.
        kept_ids: Ids of permanent records and of their intents.
    """
    if stage not in STAGES[1:]:
        raise ValueError(f"expected summary or kept, got {stage}")
    mac = keys.archives.copy()
    for line in _reduced(lines, stage, keys, kept_ids):
        mac.update(line)
        yield line
    yield _SEAL % (stage.encode(), mac.hexdigest().encode())


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
            # Nothing of before there was a key can be summarised: its hash covers all of it.
            if record is not None and stage == "kept" and not _is_kept(record, kept_ids):
                found = Gap(first=record.seq, last=record.seq, prev=record.prev, hash=record.hash)
        if found is not None:
            gap = found if gap is None else _joined(gap, found)
            continue
        if gap is not None:
            yield _gap_line(gap)
            gap = None
        if record is None or record.version == 1 or _is_kept(record, kept_ids):
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


def _joined(first: Gap, second: Gap) -> Gap:
    return Gap(first=first.first, last=second.last, prev=first.prev, hash=second.hash)


def _gap_line(gap: Gap) -> bytes:
    said = {"first": gap.first, "last": gap.last, "prev": gap.prev, "hash": gap.hash}
    return json.dumps({"removed": said}, separators=(",", ":")).encode() + b"\n"
