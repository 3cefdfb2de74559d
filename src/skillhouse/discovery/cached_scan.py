"""What is kept of a root: which files were seen how, and what their heads said."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from skillhouse.discovery.scan_snapshots import Snapshot
from skillhouse.floor import DecodeError, decode, encode
from skillhouse.skill import Finding

PART_FILES = 256
"""Files whose signatures are compared, and decoded if they differ, together."""
PATCH_MAX = 256
"""Entries of a patch; with more of them everything is written anew."""

Signature = tuple[int, int, int, int]
"""(mtime, ctime, size, inode) of a file."""
NOT_TRUSTED: Signature = (0, 0, 0, 0)
"""Kept in place of a fresh file's signature; no file has it."""

Seen = list[str | int]
"""Path and signature of each possible skill, in the order of the walk, one after the other: ten
thousand tuples more would be looked through by the garbage collector again and again."""
FIELDS = 5
"""Items of `Seen` that a file has."""


class ScanEntry(NamedTuple):
    """What the head of one SKILL.md says."""

    name: str
    """Empty when the file is refused. Name and path come first, so that entries sort by them."""
    path: str
    signature: Signature
    description: str
    packed_fields: bytes | None
    """The frontmatter in our own format; None when the file is refused, the findings say why."""
    findings: tuple[Finding, ...] = ()


class CachedScan(NamedTuple):
    """What a snapshot is compared with before its entries are believed."""

    parts: list[bytes]
    """What was seen, `PART_FILES` files each, in our own format."""
    refused: dict[str, Signature]
    """Files that are no skills, below whose directories the walk goes on."""
    entries_crc: int
    """CRC-32 of the entries: SQLite does not notice a damaged value."""
    patch_crc: int


def parts_of(seen: Seen) -> list[bytes]:
    """Return what was seen in the form in which it is compared."""
    length = PART_FILES * FIELDS
    return [encode(seen[at : at + length]) for at in range(0, len(seen), length)]


def packed(entries: list[ScanEntry]) -> Snapshot:
    """Return what to keep of `entries`, which come in the order of the walk."""
    data = encode(sorted(entries))
    observed = CachedScan(
        parts_of([item for entry in entries for item in (entry.path, *entry.signature)]),
        {entry.path: entry.signature for entry in entries if entry.packed_fields is None},
        zlib.crc32(data),
        zlib.crc32(b""),
    )
    return Snapshot(encode(observed), data, b"")


def unpacked(snapshot: Snapshot) -> list[ScanEntry]:
    """Return the entries of a snapshot as its patch has them, sorted.

    Raises:
        DecodeError: they are not in our format.
    """
    entries = decode(snapshot.entries, list[ScanEntry])
    if not snapshot.patch:
        return entries
    changed = {entry.path: entry for entry in decode(snapshot.patch, list[ScanEntry])}
    return sorted(changed.get(entry.path, entry) for entry in entries)


def believed(snapshot: Snapshot) -> CachedScan:
    """Return what a snapshot was observed as.

    Raises:
        DecodeError: it is damaged.
    """
    observed = decode(snapshot.observed, CachedScan)
    crcs = (zlib.crc32(snapshot.entries), zlib.crc32(snapshot.patch))
    if crcs != (observed.entries_crc, observed.patch_crc):
        raise DecodeError("a damaged snapshot")
    return observed


def changed_places(seen: Seen, parts: list[bytes], observed: CachedScan) -> list[int] | None:
    """Return where in `seen` files begin that are otherwise; None if there are other files.

    Raises:
        DecodeError: what was observed is not in our format.
    """
    if len(parts) != len(observed.parts):
        return None
    places: list[int] = []
    for number, (now, before) in enumerate(zip(parts, observed.parts, strict=True)):
        if now == before:
            continue
        first = number * PART_FILES * FIELDS
        current = seen[first : first + PART_FILES * FIELDS]
        earlier = decode(before, Seen)
        if current[::FIELDS] != earlier[::FIELDS]:
            return None
        places += [
            first + at
            for at in range(0, len(current), FIELDS)
            if current[at : at + FIELDS] != earlier[at : at + FIELDS]
        ]
        if len(places) > PATCH_MAX:
            return None
    return places


def patched(
    snapshot: Snapshot, observed: CachedScan, parts: list[bytes], changed: list[ScanEntry]
) -> Snapshot | None:
    """Return the snapshot with these entries, all of skills; None if they are too many.

    Args:
        snapshot: What was kept.
        observed: The same, decoded.
        parts: The files now, the changed ones by the signatures of their entries.
        changed: What the changed files say.
    """
    before = decode(snapshot.patch, list[ScanEntry]) if snapshot.patch else []
    patch = {entry.path: entry for entry in before}
    patch |= {entry.path: entry for entry in changed}
    if len(patch) > PATCH_MAX:
        return None
    data = encode(list(patch.values()))
    paths = {entry.path for entry in changed}
    refused = {path: kept for path, kept in observed.refused.items() if path not in paths}
    now = CachedScan(parts, refused, observed.entries_crc, zlib.crc32(data))
    return Snapshot(encode(now), snapshot.entries, data)
