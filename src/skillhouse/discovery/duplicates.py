"""Which of several skills of one name below one root is used, and what the others are called."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from skillhouse.floor.regex import regex

if TYPE_CHECKING:
    from skillhouse.discovery.scan_snapshots import ScanEntry
    from skillhouse.skill import Skill

USUAL_PARENTS = frozenset({".claude", ".agents", ".skillhouse", ".config"})
"""Directories with a dot that hold a `skills` which agents read."""
ASIDE = frozenset(
    """doc docs documentation example examples sample samples demo demos test tests __tests__
    testing fixture fixtures testdata archive archives archived deprecated old i18n locales
    translations vendor third_party""".split()
)
"""Directories that hold copies: what is used is elsewhere (a published collection keeps 228
translations of its own skills below `docs`)."""
_COPY = regex(r"(?:^|[-_. ~])(?:backups?|bak|orig|copy|old)(?:$|[-_. ~0-9])|~$")
"""The name of a directory that is a copy of another one, such as `skills.bak` or `backup-2025`."""

Rank = tuple[bool, bool, int, bool, str]


def usual_first(entries: Iterable[ScanEntry], root: str) -> Iterator[ScanEntry]:
    """Yield entries, which are sorted by name, those of one name with the one to use first."""
    base = root.rstrip("/") + "/"

    def rank(entry: ScanEntry) -> Rank:
        return place_rank(entry.path.removeprefix(base), entry.name)

    for _, group in groupby(entries, key=attrgetter("name")):
        alike = list(group)
        yield from sorted(alike, key=rank) if len(alike) > 1 else alike


def place_rank(relative: str, name: str) -> Rank:
    """Return how unusual the place of a SKILL.md below its root is; the lowest is used.

    A place aside, then one that is not in a `skills` directory, then the deeper one come last.

    >>> paths = ["docs/ja/skills/pdf/SKILL.md", "pdf/SKILL.md", "skills/pdf/SKILL.md"]
    >>> sorted(paths, key=lambda path: place_rank(path, "pdf"))
    ['skills/pdf/SKILL.md', 'pdf/SKILL.md', 'docs/ja/skills/pdf/SKILL.md']
    """
    *above, own = relative.split("/")[:-1] or [""]
    is_aside = is_usual = False
    for at, part in enumerate(above):
        if part == "skills":
            is_usual = is_usual or not is_aside
        elif part in USUAL_PARENTS and above[at + 1 : at + 2] == ["skills"]:
            continue
        else:
            is_aside = is_aside or is_place_aside(part)
    is_aside = is_aside or (own != name and bool(_COPY.search(own.lower())))
    return is_aside, not is_usual, len(above), own != name, relative


def is_place_aside(directory: str) -> bool:
    """Whether a directory of this name holds copies or is hidden."""
    folded = directory.lower()
    return folded[:1] == "." or folded in ASIDE or bool(_COPY.search(folded))


def variant_of(loser: Skill, winner: Skill, taken: Container[str]) -> str:
    """Return what makes the id of a shadowed skill its own; no id in `taken` has it.

    It is the path below the root; of a skill in another root than the winner's it begins with the
    end of that root's path, and with more of it where that is needed.
    """
    directory, above = os.path.dirname(loser.file), loser.root.rstrip("/")
    variant = os.path.relpath(directory, loser.root)
    parts = 0 if loser.root == winner.root else 2
    while above:
        if parts <= 0 and f"{loser.scope}:{loser.name}@{variant}" not in taken:
            return variant
        above, _, part = above.rpartition("/")
        variant = part if variant == "." else f"{part}/{variant}"
        parts -= 1
    return loser.file
