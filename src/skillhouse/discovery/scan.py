"""The entries of one root: read from its files, or taken from the snapshot that still fits."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from skillhouse.discovery.snapshot import Snapshot, Snapshots
from skillhouse.discovery.walk import Walk, not_regular
from skillhouse.floor import DecodeError, decode, encode
from skillhouse.skill import Finding, Metadata, Profile, ScopeRule, read_metadata

FRESH_NANOSECONDS = 100_000_000
"""A file changed less than this ago may change again without a new time stamp (kernel ticks)."""

Signature = tuple[int, int, int, int]
"""(mtime, ctime, size, inode) of a file; four zeros never match a file."""

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NOT_TRUSTED: Signature = (0, 0, 0, 0)


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
    """What a snapshot is compared with: one digest over all paths and signatures of a walk."""

    digest: bytes
    refused: dict[str, Signature]
    """Files that are no skills, below whose directories the walk goes on."""


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
    snapshot = snapshots.get(key) if snapshots else None
    fresh = clock() - FRESH_NANOSECONDS

    def new_walk() -> Walk:
        return Walk(root, rule.max_depth, rule.max_directories, profile.skipped_directories)

    known: dict[str, Entry] = {}
    if snapshot is not None:
        try:
            walk = new_walk()
            if _unchanged(walk, decode(snapshot.observed, Observed), profile, fresh):
                return Scanned(lambda: decode(snapshot.entries, list[Entry]), walk)
            known = {entry.path: entry for entry in decode(snapshot.entries, list[Entry])}
        except DecodeError:
            known = {}
    walk = new_walk()
    entries = _read_all(walk, known, profile, fresh)
    if snapshots is not None:
        observed = Observed(
            _digest([(entry.path, entry.signature) for entry in entries]),
            {entry.path: entry.signature for entry in entries if entry.packed_fields is None},
        )
        entries.sort()
        snapshots.put(key, Snapshot(encode(observed), encode(entries)))
    return Scanned(lambda: sorted(entries), walk)


def _unchanged(walk: Walk, observed: Observed, profile: Profile, fresh: int) -> bool:
    """Walk by stat alone; whether everything is as the snapshot has it."""
    seen: list[tuple[str, Signature]] = []
    refused = observed.refused
    nested = profile.nested_skills

    def look(path: str, name: str, *, follow: bool) -> bool:
        info = os.stat(path) if follow else os.lstat(path)
        if not stat.S_ISREG(info.st_mode):
            raise not_regular(path)
        signature = _signature(info, fresh)
        seen.append((path, signature))
        return nested or (path in refused and refused[path] == signature)

    walk.run(look)
    return _digest(seen) == observed.digest


def _read_all(walk: Walk, known: dict[str, Entry], profile: Profile, fresh: int) -> list[Entry]:
    entries: list[Entry] = []
    policy = profile.parse_policy

    def look(path: str, name: str, *, follow: bool) -> bool:
        # O_NONBLOCK: a FIFO in the file's place must not hang us.
        handle = os.open(path, _READ if follow else _READ | _NOFOLLOW)
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                raise not_regular(path)
            signature = _signature(info, fresh)
            entry = known.get(path)
            if entry is None or entry.signature != signature or signature == _NOT_TRUSTED:
                found, findings = read_metadata(handle, info.st_size, name, policy)
                entry = _entry(path, signature, found, findings)
        finally:
            os.close(handle)
        entries.append(entry)
        # A file that is no skill must not hide the skills below it.
        return entry.packed_fields is None or profile.nested_skills

    walk.run(look)
    return entries


def _entry(
    path: str, signature: Signature, found: Metadata | None, findings: list[Finding]
) -> Entry:
    if found is None:
        return Entry("", path, signature, "", None, tuple(findings))
    packed = encode(found.fields)
    return Entry(found.name, path, signature, found.description, packed, tuple(findings))


def _signature(info: os.stat_result, fresh: int) -> Signature:
    changed = info.st_ctime_ns
    if changed > fresh:
        return _NOT_TRUSTED
    return (info.st_mtime_ns, changed, info.st_size, info.st_ino)


def _digest(seen: list[tuple[str, Signature]]) -> bytes:
    return hashlib.blake2b(encode(seen), digest_size=32).digest()


def _key(root: str, rule: ScopeRule, profile: Profile) -> str:
    """Return what a snapshot depends on besides the files; the root comes first, for people."""
    policy = profile.parse_policy
    return "\n".join(
        (
            root,
            f"{rule.max_depth} {rule.max_directories} {policy.yaml_repair} {profile.nested_skills}",
            " ".join(sorted(profile.skipped_directories)),
        )
    )
