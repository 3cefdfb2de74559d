"""The persistent index: which files of a root were seen how, and what their heads said.

It has two rows for each root, shared by all processes of a user. The smaller row has what changes
with every file, so that a change is written quickly.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from skillhouse.floor import DecodeError, StateError, decode, encode
from skillhouse.skill import Finding
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
