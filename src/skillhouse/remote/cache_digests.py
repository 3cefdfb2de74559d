"""Holds what is in the cache against what was synced into it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from skillhouse.floor import SkillhouseError, TreeError, decode, tree_digest

DIGESTS = "digests"
"""The file beside the skills of one sync with the tree digest of each, swapped in with them."""


def read_digests(synced: Path) -> Mapping[str, str]:
    """Return the digests of one sync, by the name of the skill's directory; none if unreadable."""
    try:
        return decode((synced / DIGESTS).read_bytes(), dict[str, str])
    except (OSError, SkillhouseError):
        return {}


def cache_fault(root: str, file: str) -> str:
    """Return why a cached skill is not what was synced; empty where it is.

    Args:
        root: The directory `skills` of a sync, by its real path.
        file: A file below one of its skills.
    """
    name = os.path.relpath(file, root).split("/", 1)[0]
    expected = read_digests(Path(root).parent).get(name)
    if expected is None:
        return "it is not known which files were synced"
    try:
        digest = tree_digest(Path(root, name))
    except (TreeError, OSError) as error:
        return f"its files cannot be compared with those that were synced: {error}"
    return "" if digest == expected else "its files are not those that were synced"
