"""The entries of one root: read from its files, or taken from the snapshot that still fits."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import skillhouse.skill as skill_room
from skillhouse.discovery.snapshot import Snapshot, Snapshots
from skillhouse.discovery.walk import Walk, not_regular
from skillhouse.floor import DecodeError, PathError, decode, encode, open_beneath
from skillhouse.skill import Finding, Profile, ScopeRule

READING = 1
"""Raise it when the same bytes are read otherwise than before: older snapshots then fit no more."""
FRESH_NANOSECONDS = 100_000_000
"""A file changed less than this ago may change again without a new time stamp (kernel ticks)."""

Signature = tuple[int, int, int, int]
"""(mtime, ctime, size, inode) of a file."""

# O_NONBLOCK: a FIFO in the file's place must not hang us.
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)
_NOT_TRUSTED: Signature = (0, 0, 0, 0)
"""Kept in place of a fresh file's signature; no file has it."""


class Entry(NamedTuple):
    """What the head of one SKILL.md says."""

    name: str
    """Empty when the file is refused. Name and path come first, so that entries sort by them."""
    path: str
    signature: Signature
    description: str
    packed_fields: bytes | None
    """The frontmatter in our own format; None when the file is refused, the findings say why."""
    findings: tuple[Finding, ...] = ()


class Observed(NamedTuple):
    """What a snapshot is compared with before its entries are believed."""

    digest: bytes
    """Over all paths and signatures of a walk."""
    refused: dict[str, Signature]
    """Files that are no skills, below whose directories the walk goes on."""
    entries_crc: int
    """CRC-32 of the entries: SQLite does not notice a damaged value."""


class Scanned(NamedTuple):
    """One scanned root."""

    entries: Callable[[], list[Entry]]
    """The entries by name and path, refused ones first; decoded at the call."""
    walk: Walk


def scan(
    root: str,
    rule: ScopeRule,
    profile: Profile,
    snapshots: Snapshots | None,
    clock: Callable[[], int],
) -> Scanned:
    """Return the entries of the real path `root`; no unchanged file of a snapshot is opened."""
    key = _key(root, rule, profile)
    fresh = clock() - FRESH_NANOSECONDS

    def new_walk() -> Walk:
        return Walk(root, rule.max_depth, rule.max_directories, profile.skipped_directories)

    known: dict[str, Entry] = {}
    snapshot = snapshots.get(key) if snapshots else None
    if snapshot is not None:
        try:
            observed = decode(snapshot.observed, Observed)
            if zlib.crc32(snapshot.entries) == observed.entries_crc:
                walk = new_walk()
                if _is_unchanged(walk, observed, profile):
                    return Scanned(lambda: decode(snapshot.entries, list[Entry]), walk)
                known = {entry.path: entry for entry in decode(snapshot.entries, list[Entry])}
        except DecodeError:
            known = {}
    walk = new_walk()
    entries = _read_all(walk, known, profile, fresh)
    if snapshots is not None:
        snapshots.put(key, _snapshot(entries))
    return Scanned(lambda: sorted(entries), walk)


def _snapshot(entries: list[Entry]) -> Snapshot:
    """Return what to keep of `entries`, which come in the order of the walk."""
    packed = encode(sorted(entries))
    observed = Observed(
        _digest([(entry.path, entry.signature) for entry in entries]),
        {entry.path: entry.signature for entry in entries if entry.packed_fields is None},
        zlib.crc32(packed),
    )
    return Snapshot(encode(observed), packed)


def _is_unchanged(walk: Walk, observed: Observed, profile: Profile) -> bool:
    """Walk by stat alone; whether everything is as the snapshot has it."""
    seen: list[tuple[str, Signature]] = []
    refused = observed.refused
    nested = profile.nested_skills

    def look(path: str, _: str, end: str | None) -> bool:
        signature = _signature(os.lstat(end or path), path)
        seen.append((path, signature))
        return nested or refused.get(path) == signature

    walk.run(look)
    return _digest(seen) == observed.digest


def _read_all(walk: Walk, known: dict[str, Entry], profile: Profile, fresh: int) -> list[Entry]:
    """Return the entries in the order of the walk; files as `known` has them are not opened."""
    entries: list[Entry] = []
    policy = profile.parse_policy
    nested = profile.nested_skills
    # Looked up here, so that a start which reads nothing does not load what reads.
    read_metadata = skill_room.read_metadata

    def look(path: str, name: str, end: str | None) -> bool:
        entry = known.get(path) if known else None
        if entry is None or entry.signature != _signature(os.lstat(end or path), path):
            handle = _open_end(end, walk.root) if end else os.open(path, _READ)
            try:
                info = os.fstat(handle)
                signature = _signature(info, path)
                found, findings = read_metadata(handle, info.st_size, name, policy)
            finally:
                os.close(handle)
            if info.st_ctime_ns > fresh:
                signature = _NOT_TRUSTED
            entry = _entry(path, signature, found, findings)
        entries.append(entry)
        # A file that is no skill must not hide the skills below it.
        return nested or entry.packed_fields is None

    walk.run(look)
    return entries


def _open_end(end: str, root: str) -> int:
    """Return a descriptor of what a link led to, opened without links on the way.

    Whoever can write here may have turned the link, or a directory behind it, elsewhere since.
    """
    try:
        return open_beneath(Path(root), Path(end).relative_to(root).as_posix())
    except PathError as error:
        raise OSError(errno.ELOOP, f"cannot follow the link: {error.code}", end) from error


def _entry(
    path: str, signature: Signature, found: skill_room.Metadata | None, findings: list[Finding]
) -> Entry:
    if found is None:
        return Entry("", path, signature, "", None, tuple(findings))
    packed = encode(found.fields)
    return Entry(found.name, path, signature, found.description, packed, tuple(findings))


def _signature(info: os.stat_result, path: str) -> Signature:
    """Return what changes when a file does.

    Raises:
        OSError: it is no regular file.
    """
    if not stat.S_ISREG(info.st_mode):
        raise not_regular(path)
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)


def _digest(seen: list[tuple[str, Signature]]) -> bytes:
    return hashlib.blake2b(encode(seen), digest_size=32).digest()


def _key(root: str, rule: ScopeRule, profile: Profile) -> str:
    """Return what a snapshot depends on besides the files; the root comes first, for people."""
    return repr(
        (
            root,
            rule.max_depth,
            rule.max_directories,
            sorted(profile.skipped_directories),
            profile.nested_skills,
            profile.parse_policy.yaml_repair,
            READING,
        )
    )
