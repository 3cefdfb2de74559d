"""Keeps the files of an installed skill that a person edited, before others take their place.

Apart from the installer, which holds as much as a file should.
"""

from __future__ import annotations

from pathlib import Path

from skillhouse import registry
from skillhouse.floor import TreeError, matching_tree, structs
from skillhouse.registry import LockEntry, PackageStore


def keep_edits(store: PackageStore, target: Path, expected: tuple[str, ...]) -> str:
    """Keep the files of a directory if they are others than expected; return their digest.

    Empty for files that are as expected, and for what is no tree, which nothing replaces.
    """
    if not target.is_dir() or target.is_symlink():
        return ""
    try:
        if matching_tree(target, expected, store.tree).digest in expected:
            return ""
        tree, members = registry.directory_members(target)
    except TreeError:
        return ""
    store.put(members, tree.digest)
    return tree.digest


def with_edits(store: PackageStore, target: Path, entry: LockEntry) -> LockEntry:
    """Return a lock's entry under which a rollback gives the edits that are at `target` now."""
    edits = keep_edits(store, target, (entry.tree_digest,))
    if not edits:
        return entry
    before = structs.replace(entry, accepted=edits, previous=None)
    return structs.replace(entry, accepted="", previous=registry.entry_value(before))
