"""Which directories are work trees of one git repository, by files that prove it both ways.

git is not run: it obeys the configuration of the directory, which is not trusted yet. Its files are
documented in gitrepository-layout(5) and git-worktree(1), "DETAILS": a linked worktree has a file
`.git` that names its own directory `worktrees/NAME` in the repository, whose files `gitdir` and
`commondir` lead back to the worktree and to the repository. An archive brings a `.git` file of any
text; only who can write in the repository makes the way back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

# By its name, so that a listing loads what finds git's directories only where it is needed.
from skillhouse import sandbox
from skillhouse.floor import PathError, file_problem


def same_repository(project: Path, others: Iterable[str]) -> tuple[str, ...]:
    """Return those of `others`, sorted, that are now work trees of the project's repository.

    The project itself is none of them. A submodule and what `--separate-git-dir` makes are no work
    trees of the repository that they are in or beside: nothing there leads back.
    """
    real = os.path.realpath(project)
    rest = sorted({os.path.realpath(other) for other in others} - {real})
    common = common_directory(real) if rest else ""
    return tuple(other for other in rest if common and common_directory(other) == common)


def common_directory(place: str) -> str:
    """Return the directory of the repository that a real path is proven to be a work tree of.

    Empty where nothing is proven, and for a repository that never had a linked worktree.
    """
    dot = os.path.join(place, ".git")
    try:
        mode = os.lstat(dot).st_mode
        if stat.S_ISDIR(mode):
            proof = (dot, os.path.join(dot, "worktrees"))
            is_proven = stat.S_ISDIR(os.lstat(proof[1]).st_mode)
            return dot if is_proven and sandbox.of_one_owner(place, *proof) else ""
        return _common_of_linked(place, dot) if stat.S_ISREG(mode) else ""
    except (OSError, ValueError, PathError):
        return ""


def _common_of_linked(place: str, dot: str) -> str:
    common, own = sandbox.linked_directories(place)
    if not common:
        return ""
    files = (dot, os.path.join(own, "gitdir"), os.path.join(own, "commondir"))
    is_proven = sandbox.of_one_owner(place, own, os.path.dirname(own), common, *files)
    return common if is_proven and not any(file_problem(Path(file)) for file in files) else ""
