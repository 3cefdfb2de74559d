"""Protected names below the top of a workspace: what there is of them, at a bounded cost."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from skillhouse.floor import SECRET_NAMES
from skillhouse.sandbox.profile import names_like

DIRECTORIES_MAX = 500
"""Directories that are looked into before a run, nearest first."""
ENTRIES_MAX = 10_000
"""Names in them that are looked at; this and the bound above are some 8 ms."""
PATHS_MAX = 48
"""Protected paths below the top that are covered; bubblewrap needs 0.1 ms for each."""
REPOSITORY = ("/hooks", "/config", "/modules", "/worktrees")
"""Of the git directory of a repository inside the workspace, also what does not exist yet."""


@dataclass(slots=True)
class Found:
    """What `nested` found."""

    paths: list[tuple[str, str, bool]] = field(default_factory=list)
    """A directory of the workspace, the protected path below it, and whether it is a secret."""
    is_all: bool = True
    """False: a bound was reached first, and the rest is not covered."""


def nested(workspace: str, protected: Sequence[str]) -> Found:
    """Return the protected paths below the top-level names of a workspace, nearest first.

    Links are not followed, and protected directories are not entered.
    """
    is_protected = names_like(tuple(p for p in protected if "/" not in p)).fullmatch
    is_secret = names_like(SECRET_NAMES).fullmatch
    found = Found()
    waiting = deque([""])
    directories = entries = 0
    while waiting and found.is_all:
        place = waiting.popleft()
        directories += 1
        for name, is_directory in _entries(f"{workspace}/{place}"):
            entries += 1
            told = name.casefold()
            if told == ".git":
                paths = tuple(name + path for path in REPOSITORY) if is_directory else (name,)
            else:
                paths = (name,) if is_protected(told) else ()
            if paths and place:
                secret = is_secret(told) is not None
                found.paths += [(place, path, secret) for path in paths]
            elif is_directory and not paths:
                waiting.append(f"{place}/{name}" if place else name)
        # A repository is covered whole, so the bounds are looked at between directories.
        found.is_all = (
            directories < DIRECTORIES_MAX and entries < ENTRIES_MAX and len(found.paths) < PATHS_MAX
        )
    found.is_all = found.is_all or not waiting
    return found


def _entries(path: str) -> list[tuple[str, bool]]:
    """Return the names in a directory, sorted, and whether each is one; none if it is closed."""
    try:
        with os.scandir(path) as entries:
            return sorted((found.name, found.is_dir(follow_symlinks=False)) for found in entries)
    except OSError:
        return []
