"""The entries of one root: read from its files, or taken from the snapshot that still fits.

A snapshot says which files of a root were seen how, and what their heads were.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import skillhouse.skill as skill_package
from skillhouse.discovery.roots import Following, LinkPlaces
from skillhouse.discovery.walk import RootWalk, not_regular
from skillhouse.floor import (
    DecodeError,
    InternalFaultError,
    PathError,
    StateError,
    as_error,
    decode,
    encode,
    open_beneath,
)
from skillhouse.floor.structs import astuple, replace
from skillhouse.skill import Finding, ParsePolicy, Profile, ScopeRule
from skillhouse.store import CACHE, Store

T = TypeVar("T")

CACHE_FILE = "index.sqlite3"
ROOTS_KEPT = 256
"""Roots whose snapshots are kept; the one written longest ago is deleted first."""

# In a damaged file a value can have any type, and text can be invalid.
_SELECT = """
    SELECT CAST(small.observed AS BLOB), CAST(large.entries AS BLOB), CAST(small.entries AS BLOB)
    FROM snapshot AS small JOIN snapshot AS large ON large.root = small.root || ' entries'
    WHERE small.root = ?
"""


class Snapshot(NamedTuple):
    observed: bytes
    entries: bytes
    patch: bytes = b""
    """Entries that changed since."""


class ScanSnapshots:
    """The snapshots in a cache directory. A fault ends their use, but never the discovery."""

    def __init__(self, directory: Path) -> None:
        self.fault: StateError | None = None
        """Why the cache is no longer used."""
        self._store: Store | None = None
        try:
            self._store = Store(directory / CACHE_FILE, CACHE)
        except StateError as error:
            self.fault = error

    def get(self, root: str) -> Snapshot | None:
        rows = self._use(lambda store: store.rows(_SELECT, (root,))) or ()
        return next((Snapshot(*row) for row in rows if None not in row), None)

    def put(self, root: str, snapshot: Snapshot) -> None:
        small = (root, snapshot.observed, snapshot.patch)
        large = (f"{root} entries", b"", snapshot.entries)

        def write(store: Store) -> None:
            with store.transaction() as connection:
                for row in (large, small):
                    connection.execute("DELETE FROM snapshot WHERE root = ?", row[:1])
                    connection.execute("INSERT INTO snapshot VALUES (?, ?, ?)", row)
                connection.execute(
                    "DELETE FROM snapshot WHERE rowid <= (SELECT max(rowid) FROM snapshot) - ?",
                    (2 * ROOTS_KEPT,),
                )

        self._use(write)

    def patch(self, root: str, snapshot: Snapshot) -> None:
        """Replace the small row of a root.

        If another process replaced the large row meanwhile, the next reader finds the mismatch.
        """

        def write(store: Store) -> None:
            with store.transaction() as connection:
                connection.execute(
                    "UPDATE snapshot SET observed = ?, entries = ? WHERE root = ?",
                    (snapshot.observed, snapshot.patch, root),
                )

        self._use(write)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _use(self, action: Callable[[Store], T]) -> T | None:
        """Return the result of an action; None when the cache is of no use (any more)."""
        if self._store is None:
            return None
        try:
            return action(self._store)
        except StateError as error:
            self.fault = error
            self.close()
            return None


PART_FILES = 256
"""Files whose signatures are compared, and decoded if they differ, together."""
PATCH_MAX = 256
"""Entries of a patch, at most; more of them make a new snapshot."""

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

    @property
    def opens(self) -> bool:
        """Whether the walk goes on below: a file that is refused, or has no frontmatter, must not
        hide skills."""
        return self.packed_fields is None or self.packed_fields == _NO_FIELDS


_NO_FIELDS = encode({})


class CachedScan(NamedTuple):
    """What a snapshot is compared with before its entries are believed."""

    parts: list[bytes]
    """What was seen, `PART_FILES` files each, in our own format."""
    refused: dict[str, Signature]
    """Files that are no skills or have no frontmatter, below whose directories the walk goes on."""
    entries_crc: int
    """CRC-32 of the entries: SQLite does not notice a damaged value."""
    patch_crc: int


TIME_BITS = 2**63 - 1
"""What is kept of a time: some file systems have years beyond those of 64 bits of nanoseconds."""


def parts_of(seen: Seen) -> list[bytes]:
    """Return what was seen in the form in which it is compared."""
    length = PART_FILES * FIELDS
    return [encode(seen[at : at + length]) for at in range(0, len(seen), length)]


def packed(entries: list[ScanEntry]) -> Snapshot:
    """Return what to keep of `entries`, which come in the order of the walk."""
    data = encode(sorted(entries))
    observed = CachedScan(
        parts_of([item for entry in entries for item in (entry.path, *entry.signature)]),
        {entry.path: entry.signature for entry in entries if entry.opens},
        zlib.crc32(data),
        zlib.crc32(b""),
    )
    return Snapshot(encode(observed), data, b"")


def unpacked(snapshot: Snapshot) -> list[ScanEntry]:
    """Return the entries of a snapshot as its patch has them, sorted."""
    entries = decode(snapshot.entries, list[ScanEntry])
    if not snapshot.patch:
        return entries
    changed = {entry.path: entry for entry in decode(snapshot.patch, list[ScanEntry])}
    return sorted(changed.get(entry.path, entry) for entry in entries)


def believed(snapshot: Snapshot) -> CachedScan:
    """Return what a snapshot was observed as; DecodeError when it is damaged."""
    observed = decode(snapshot.observed, CachedScan)
    crcs = (zlib.crc32(snapshot.entries), zlib.crc32(snapshot.patch))
    if crcs != (observed.entries_crc, observed.patch_crc):
        raise DecodeError("a damaged snapshot")
    return observed


def changed_places(seen: Seen, parts: list[bytes], observed: CachedScan) -> list[int] | None:
    """Return where in `seen` files begin that are otherwise; None if there are other files."""
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

    `parts` are the files now, the changed ones by the signatures of their entries.
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
    snapshot: Snapshot | None = None
    """Of which the entries are made, where it is kept: of equal ones they are equal."""


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
                return ScannedRoot(lambda: unpacked(current), walk, current)
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
        extend((path, info.st_mtime_ns & TIME_BITS, info.st_ctime_ns, info.st_size, info.st_ino))
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
    return (info.st_mtime_ns & TIME_BITS, info.st_ctime_ns, info.st_size, info.st_ino)


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
