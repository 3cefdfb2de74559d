"""The entries of one root: read from its files, or taken from the snapshot that still fits."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import skillhouse.skill as skill_package
from skillhouse.discovery.links import Following, LinkPlaces
from skillhouse.discovery.scan_snapshots import (
    FIELDS,
    NOT_TRUSTED,
    PART_FILES,
    ScanEntry,
    ScanSnapshots,
    Seen,
    Signature,
    Snapshot,
    believed,
    changed_places,
    packed,
    parts_of,
    patched,
    unpacked,
)
from skillhouse.discovery.walk import RootWalk, not_regular
from skillhouse.floor import (
    DecodeError,
    InternalFaultError,
    PathError,
    as_error,
    encode,
    open_beneath,
)
from skillhouse.floor.structs import astuple, replace
from skillhouse.skill import Finding, ParsePolicy, Profile, ScopeRule

READING = 6
"""Increase it when the same bytes give another result: older snapshots become invalid."""
FRESH_NANOSECONDS = 100_000_000
"""A file that changed more recently may change again without a new time stamp (kernel ticks)."""
UNSTEADY_NANOSECONDS = 2_000_000_000
"""A file that changed in this time before the scan, or since, may have changed while it was read;
its time stamp can be of another machine's clock."""
STEADY_TRIES = 5
"""How often a file is read that changes while it is read."""

# O_NONBLOCK: a FIFO in the file's place must not hang us.
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)


class ScannedRoot(NamedTuple):
    entries: Callable[[], list[ScanEntry]]
    """The entries by name and path, refused ones first; decoded at the call."""
    walk: RootWalk


def scan(
    root: str,
    rule: ScopeRule,
    profile: Profile,
    snapshots: ScanSnapshots | None,
    clock: Callable[[], int],
    *,
    takes_root: bool = False,
    following: Following = "within_root",
    places: LinkPlaces = LinkPlaces(),  # noqa: B008 - a frozen value.
) -> ScannedRoot:
    """Return the entries of the real path `root`; no unchanged file of a snapshot is opened.

    `takes_root` takes a SKILL.md in the root itself, too; `following` and `places` say which links
    are followed.
    """
    key = _key(root, rule, profile, takes_root=takes_root, following=following)
    fresh = clock() - FRESH_NANOSECONDS

    def new_walk() -> RootWalk:
        return RootWalk(
            root,
            rule.max_depth,
            rule.max_directories,
            profile.skipped_directories,
            following,
            profile.dotfiles,
            takes_root or profile.root_skill,
            profile.link_files,
            profile.any_case,
            places,
        )

    known: dict[str, ScanEntry] = {}
    snapshot = snapshots.get(key) if snapshots else None
    if snapshots is not None and snapshot is not None:
        try:
            walk = new_walk()
            current = _current(walk, snapshot, profile, fresh)
            if current is not None:
                if current is not snapshot:
                    snapshots.patch(key, current)
                return ScannedRoot(lambda: unpacked(current), walk)
            known = {entry.path: entry for entry in unpacked(snapshot)}
        except DecodeError:
            known = {}
    walk = new_walk()
    entries = _read_all(walk, known, profile, fresh)
    if snapshots is not None:
        snapshots.put(key, packed(entries))
    return ScannedRoot(lambda: sorted(entries), walk)


def _current(walk: RootWalk, snapshot: Snapshot, profile: Profile, fresh: int) -> Snapshot | None:
    """Return the snapshot as it is now, looking by stat and reading only what changed.

    None: directories changed so much that a new walk is needed.
    """
    observed = believed(snapshot)
    seen: Seen = []
    extend = seen.extend
    refused = observed.refused
    nested = profile.nested_skills

    def look(path: str, _: str, end: str | None) -> bool:
        # As `_signature` does: this is most of a warm start.
        info = os.lstat(end or path)
        if not stat.S_ISREG(info.st_mode):
            raise not_regular(path)
        extend((path, info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino))
        return nested or (path in refused and refused[path] == _signature(info, path))

    walk.run(look)
    parts = parts_of(seen)
    if parts == observed.parts:
        return snapshot
    places = changed_places(seen, parts, observed)
    if places is None:
        return None
    changed = []
    for place in places:
        path = str(seen[place])
        try:
            handle = os.open(path, _READ)
            name = os.path.basename(os.path.dirname(path))
            entry = _read_entry(handle, path, name, profile.parse_policy, fresh)
        except OSError:
            # A link, or gone again: the full walk handles both.
            return None
        if entry.opens:
            # There may be skills below it.
            return None
        changed.append(entry)
        seen[place : place + FIELDS] = (path, *entry.signature)
        number, length = place // (PART_FILES * FIELDS), PART_FILES * FIELDS
        (parts[number],) = parts_of(seen[number * length : (number + 1) * length])
    return patched(snapshot, observed, parts, changed)


def _read_all(
    walk: RootWalk, known: dict[str, ScanEntry], profile: Profile, fresh: int
) -> list[ScanEntry]:
    """Return the entries in the order of the walk; unchanged files of `known` are not opened."""
    entries: list[ScanEntry] = []
    policy = profile.parse_policy
    nested = profile.nested_skills

    def look(path: str, name: str, end: str | None) -> bool:
        entry = known.get(path) if known else None
        if entry is None or entry.signature != _signature(os.lstat(end or path), path):
            handle = _open_end(end, walk.root) if end else os.open(path, _READ)
            entry = _read_entry(handle, path, name, policy, fresh)
        entries.append(entry)
        # A file that is not a skill must not hide skills below it.
        return nested or entry.opens

    walk.run(look)
    return entries


def _read_entry(handle: int, path: str, name: str, policy: ParsePolicy, fresh: int) -> ScanEntry:
    """Return the entry of an open file, and close it; OSError when it is not regular."""
    try:
        head = os.read(handle, skill_package.HEAD_BYTES)
        info = os.fstat(handle)
        signature = _signature(info, path)
        metadata, findings = _metadata(handle, info.st_size, name, policy, head)
        # Whatever changes the bytes changes this too. One look is enough, after the read, where the
        # last change is older than the scan and nothing was read after the look.
        is_recent = signature[1] > fresh - UNSTEADY_NANOSECONDS
        if is_recent or (
            len(head) == skill_package.HEAD_BYTES
            and os.lseek(handle, 0, os.SEEK_CUR) != len(head)
            and _signature(os.fstat(handle), path) != signature
        ):
            signature, metadata, findings = _read_steadily(handle, path, name, policy)
    finally:
        os.close(handle)
    if signature[1] > fresh or any(one.code == InternalFaultError.code for one in findings):
        # What went wrong with a file is looked at again: the next version may read it.
        signature = NOT_TRUSTED
    if metadata is None:
        return ScanEntry("", path, signature, "", None, tuple(findings))
    fields = encode(metadata.fields)
    return ScanEntry(metadata.name, path, signature, metadata.description, fields, tuple(findings))


def _metadata(
    handle: int, size: int, name: str, policy: ParsePolicy, head: bytes | None = None
) -> tuple[skill_package.Metadata | None, list[Finding]]:
    """Return what a file says; one that cannot be read by a fault of ours costs no other."""
    try:
        return skill_package.read_metadata(handle, size, name, policy, head)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of one file of many.
        return None, [Finding(InternalFaultError.code, str(as_error(error)), fatal=True)]


def _read_steadily(
    handle: int, path: str, name: str, policy: ParsePolicy
) -> tuple[Signature, skill_package.Metadata | None, list[Finding]]:
    """Read a file that changes while it is read, until the result is of one state."""
    signature = _signature(os.fstat(handle), path)
    for _ in range(STEADY_TRIES):
        os.lseek(handle, 0, os.SEEK_SET)
        metadata, findings = _metadata(handle, signature[2], name, policy)
        before, signature = signature, _signature(os.fstat(handle), path)
        if signature == before:
            return signature, metadata, findings
    message = f"changed each of {STEADY_TRIES} times while it was read"
    return NOT_TRUSTED, None, [Finding("unsteady", message, None, fatal=True)]


def _open_end(end: str, root: str) -> int:
    """Open the target of a link without following further links.

    Another process may have changed the link, or a directory of its target, since. The target is
    outside the root only where such links are followed.
    """
    base = Path(root) if Path(end).is_relative_to(root) else Path(Path(end).anchor)
    try:
        return open_beneath(base, Path(end).relative_to(base).as_posix())
    except PathError as error:
        raise OSError(errno.ELOOP, f"cannot follow the link: {error.code}", end) from error


def _signature(info: os.stat_result, path: str) -> Signature:
    """Return the values that change with a file; raises OSError if it is not regular."""
    if not stat.S_ISREG(info.st_mode):
        raise not_regular(path)
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)


def _key(
    root: str, rule: ScopeRule, profile: Profile, *, takes_root: bool, following: Following
) -> str:
    """Return all that a snapshot depends on besides the files; the root is first, for readers."""
    return repr(
        (
            root,
            rule.max_depth,
            rule.max_directories,
            sorted(profile.skipped_directories),
            profile.nested_skills,
            following,
            profile.dotfiles,
            takes_root or profile.root_skill,
            profile.link_files,
            profile.any_case,
            # The fast parser gives the same result.
            astuple(replace(profile.parse_policy, yaml_fast_path=True)),
            READING,
        )
    )
