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

from skillhouse.floor import PathError, file_problem, open_beneath

POINTER_MAX = 8_192
"""Bytes of a file that holds a path, twice PATH_MAX of Linux."""


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
            return dot if is_proven and _of_one_owner(place, *proof) else ""
        return _common_of_linked(place, dot) if stat.S_ISREG(mode) else ""
    except (OSError, ValueError, PathError):
        return ""


def _common_of_linked(place: str, dot: str) -> str:
    target = _pointer(place, ".git", prefix="gitdir: ")
    own = os.path.realpath(os.path.join(place, target)) if target else ""
    worktrees = os.path.dirname(own)
    common = os.path.dirname(worktrees)
    if os.path.basename(worktrees) != "worktrees":
        return ""
    to_common, back = _pointer(own, "commondir"), _pointer(own, "gitdir")
    if not to_common or os.path.realpath(os.path.join(own, to_common)) != common:
        return ""
    # INVARIANT: the way back is compared as it is written. git writes a real path, and a link put
    # where an old worktree was would lead to any directory.
    if not back or os.path.normpath(os.path.join(own, back)) != dot:
        return ""
    files = (dot, os.path.join(own, "gitdir"), os.path.join(own, "commondir"))
    is_proven = _of_one_owner(place, own, worktrees, common, *files)
    return common if is_proven and not any(file_problem(Path(file)) for file in files) else ""


def _of_one_owner(*paths: str) -> bool:
    return len({os.lstat(path).st_uid for path in paths}) == 1


def _pointer(directory: str, file: str, *, prefix: str = "") -> str:
    """Return the path that a file holds; empty where it is no file of one such line."""
    with os.fdopen(open_beneath(Path(directory), file), "rb") as opened:
        data = opened.read(POINTER_MAX + 1)
    text = os.fsdecode(data).rstrip("\r\n")
    if len(data) > POINTER_MAX or not text.startswith(prefix) or "\0" in text or "\n" in text:
        return ""
    return text.removeprefix(prefix)
