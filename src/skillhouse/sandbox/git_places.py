"""Where the git directories of a workspace are, and which of them a run may use.

They are found as git finds them (gitrepository-layout(5), git-worktree(1) "DETAILS",
gitsubmodules(7)), and git is not run, as it obeys the configuration that it finds. A `.git` file is
text that any archive brings, so what it names counts only where a file there leads back, which only
its owner can have written. `--separate-git-dir` and borrowed objects have no way back: a person is
asked about them.
"""

from __future__ import annotations

import enum
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from skillhouse.floor import PathError, dataclass, open_beneath
from skillhouse.floor.regex import regex

POINTER_MAX = 8_192
"""Bytes of a file that holds a path, twice PATH_MAX of Linux."""
CONFIG_MAX = 262_144
"""Bytes of a `config` that is looked through for `core.worktree`."""
ALTERNATES_DEPTH_MAX = 5
"""Repositories that borrow objects of each other in a row, as in git (object-file.c)."""
ALTERNATES_MAX = 16
SUBMODULES_MAX = 40
"""Work trees below a workspace whose own git directories are mounted."""
_LINE = regex(r"\s*(?:\[\s*([A-Za-z0-9.-]+)\s*(\"[^\"]*\")?\s*\])?\s*(.*)", re.DOTALL)
_WORKTREE = regex(r"(?i)worktree\s*=\s*(.*)")


class GitRole(enum.StrEnum):
    """What a git directory is to the work trees that use it."""

    WHOLE = "whole"
    """All of one work tree: of a submodule, of a repository around the workspace, or separate."""
    COMMON = "common"
    """What the linked work trees of a repository share; the rest of it belongs to the main one."""
    LINKED = "linked"
    """What one linked work tree has of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDirectory:
    """A git directory that a run may write, but for what git obeys there."""

    path: str
    """Real path."""
    role: GitRole


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPlaces:
    """The git directories of one workspace besides a plain `.git` in it."""

    workspace: str
    top: str = ""
    """The top of the work tree, where the workspace is a directory below it; else empty."""
    own: str = ""
    """The git directory of the work tree; empty where there is none."""
    directories: tuple[GitDirectory, ...] = ()
    """Outermost first."""
    separate: str = ""
    """`own`, where nothing there leads back to the work tree."""
    alternates: tuple[str, ...] = ()
    """Directories of objects outside of the others, from which the repository borrows."""
    masks: tuple[str, ...] = ()
    """What is hidden of the work tree around the workspace, by real path."""
    read_only: bool = False
    """Whether the directories are only read."""
    opens_config: bool = False
    """Whether the run may write `config`, in which `branch.*` and `remote.*` may change."""
    configs: tuple[str, ...] = ()
    """Further files that it may write then, of other repositories in the workspace."""
    problem: str = ""
    """Why git's directory is not used; then there are no others."""

    @property
    def is_linked(self) -> bool:
        return any(one.role is GitRole.COMMON for one in self.directories)


def find_git(workspace: str) -> GitPlaces:
    """Return the git directories of a workspace, given by its real path."""
    found = GitPlaces(workspace=workspace)
    try:
        device = os.stat(workspace).st_dev
        for place in (workspace, *map(str, Path(workspace).parents)):
            if os.stat(place).st_dev != device:
                # As git does without GIT_DISCOVERY_ACROSS_FILESYSTEM.
                break
            own = _named_by(place)
            if own:
                top = place if place != workspace else ""
                return _with_alternates(_placed(replace(found, own=own, top=top), place))
    except (OSError, ValueError, PathError):
        return found
    return found


def with_submodules(places: GitPlaces, below: Iterable[str]) -> GitPlaces:
    """Return the places with those of work trees in the workspace that belong to its repository.

    Args:
        below: Directories of the workspace, relative to it, that have a `.git` file.
    """
    if not places.own or places.problem:
        return places
    roots = [places.own, *(one.path for one in places.directories)]
    more: dict[str, GitDirectory] = {}
    for relative in below:
        try:
            found = _below(os.path.join(places.workspace, relative), roots)
        except (OSError, ValueError, PathError):
            continue
        if found is not None and len(more) < SUBMODULES_MAX:
            more[found.path] = found
    known = {one.path for one in places.directories}
    inner = sorted(path for path in more if path not in known)
    return replace(places, directories=(*places.directories, *(more[path] for path in inner)))


def _named_by(place: str) -> str:
    """Return the real path of the git directory that a `.git` there is or names, or ""."""
    dot = os.path.join(place, ".git")
    try:
        mode = os.stat(dot).st_mode
    except OSError:
        return ""
    if stat.S_ISDIR(mode):
        own = os.path.realpath(dot)
    elif stat.S_ISREG(mode):
        target = read_pointer_file(os.path.dirname(os.path.realpath(dot)), ".git", "gitdir: ")
        own = os.path.realpath(os.path.join(place, target)) if target else ""
    else:
        return ""
    return own if own and _is_git_directory(own) else ""


def _is_git_directory(path: str) -> bool:
    if not os.path.lexists(f"{path}/HEAD"):
        return False
    if os.path.isfile(f"{path}/commondir"):
        return True
    return os.path.isdir(f"{path}/objects") and os.path.isdir(f"{path}/refs")


def _placed(found: GitPlaces, place: str) -> GitPlaces:
    """Return the places with the directories, or with the problem, of the work tree at `place`."""
    own, dot = found.own, os.path.join(place, ".git")
    is_plain = own == dot
    if os.path.isfile(f"{own}/commondir") and not is_plain:
        common, _ = linked_directories(place)
        if not common:
            return replace(found, problem=_no_way_back(dot, own))
        directories: tuple[GitDirectory, ...] = (
            GitDirectory(path=common, role=GitRole.COMMON),
            GitDirectory(path=own, role=GitRole.LINKED),
        )
    else:
        directories = (GitDirectory(path=own, role=GitRole.WHOLE),)
    if not of_one_owner(place, found.workspace, dot, *(one.path for one in directories)):
        owners = "not all of one owner: the work tree and its git directory"
        return replace(found, problem=f"{owners} `{own}`")
    if is_inside(own, found.workspace) and not any(
        one.role is GitRole.COMMON for one in directories
    ):
        # The workspace's own mounts are about it.
        return replace(found, directories=())
    found = replace(found, directories=directories)
    if is_plain or directories[0].role is GitRole.COMMON:
        return found
    back = work_tree_of(own)
    if back and back != place:
        return replace(found, directories=(), problem=_no_way_back(dot, own))
    return found if back else replace(found, separate=own)


def _no_way_back(dot: str, own: str) -> str:
    mended = ""
    if os.path.basename(os.path.dirname(own)) == "worktrees":
        mended = "; if the work tree was moved, `git worktree repair` there mends it"
    return f"`{dot}` names `{own}`, and nothing there leads back to it{mended}"


def is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def linked_directories(place: str) -> tuple[str, str]:
    """Return the repository that a real path is a linked work tree of, and the directory there that
    is the work tree's own; proven both ways, else two empty texts.

    Its `.git` file names `worktrees/NAME` in the repository, where `commondir` leads to the
    repository and `gitdir` back to the file. Raises OSError, ValueError and PathError for what
    cannot be read.
    """
    dot = os.path.join(place, ".git")
    target = read_pointer_file(place, ".git", "gitdir: ")
    own = os.path.realpath(os.path.join(place, target)) if target else ""
    worktrees = os.path.dirname(own)
    common = os.path.dirname(worktrees)
    if os.path.basename(worktrees) != "worktrees":
        return "", ""
    to_common, back = read_pointer_file(own, "commondir"), read_pointer_file(own, "gitdir")
    if not to_common or os.path.realpath(os.path.join(own, to_common)) != common:
        return "", ""
    # INVARIANT: the way back is compared as it is written. git writes a real path, and a link put
    # where an old worktree was would lead to any directory.
    is_proven = back and os.path.normpath(os.path.join(own, back)) == dot
    return (common, own) if is_proven else ("", "")


def work_tree_of(own: str) -> str:
    """Return the work tree that the `config` of a git directory names, or ""."""
    with os.fdopen(open_beneath(Path(own), "config"), "rb") as opened:
        text = os.fsdecode(opened.read(CONFIG_MAX))
    section, value = "", ""
    for line in text.splitlines():
        parts = _LINE.fullmatch(line)
        assert parts is not None  # noqa: S101 - it matches any text.
        header, subsection, rest = parts.groups()
        if header is not None:
            section = header.casefold() + (subsection or "")
        named = _WORKTREE.fullmatch(rest) if section == "core" else None
        if named is not None:
            value = named[1].strip().strip('"').replace('\\"', '"').replace("\\\\", "\\")
    return os.path.normpath(os.path.join(own, value)) if value else ""


def leads_back(own: str, place: str) -> bool:
    """Whether a git directory is that of the work tree at `place`, and not just named by it."""
    if is_inside(own, place):
        return True
    try:
        return linked_directories(place)[1] == own or work_tree_of(own) == place
    except (OSError, ValueError, PathError):
        return False


def read_pointer_file(directory: str, file: str, prefix: str = "") -> str:
    """Return the path that a file holds; empty where it is no file of one such line."""
    with os.fdopen(open_beneath(Path(directory), file), "rb") as opened:
        data = opened.read(POINTER_MAX + 1)
    text = os.fsdecode(data).rstrip("\r\n")
    if len(data) > POINTER_MAX or not text.startswith(prefix) or "\0" in text or "\n" in text:
        return ""
    return text.removeprefix(prefix)


def of_one_owner(*paths: str) -> bool:
    return len({os.lstat(path).st_uid for path in paths}) == 1


def _below(place: str, roots: Iterable[str]) -> GitDirectory | None:
    """Return the git directory of a work tree in the workspace, if it is in one of `roots`."""
    own = _named_by(place)
    root = next((root for root in roots if is_inside(own, f"{root}/modules")), "")
    linked = next((root for root in roots if is_inside(own, f"{root}/worktrees")), "")
    if linked and linked_directories(place)[0] == linked and of_one_owner(place, linked, own):
        return GitDirectory(path=own, role=GitRole.LINKED)
    if root and work_tree_of(own) == place and of_one_owner(place, root, own):
        return GitDirectory(path=own, role=GitRole.WHOLE)
    return None


def _with_alternates(places: GitPlaces) -> GitPlaces:
    if places.problem:
        return places
    common = places.directories[0].path if places.directories else places.own
    seen = (places.workspace, places.top, *(one.path for one in places.directories))
    shown = tuple(filter(None, seen))
    found = dict.fromkeys(_borrowed(os.path.join(common, "objects"), 0))
    beyond = tuple(path for path in found if not any(is_inside(path, one) for one in shown))
    if len(beyond) > ALTERNATES_MAX:
        return replace(places, directories=(), problem="it borrows objects of too many others")
    return replace(places, alternates=beyond)


def _borrowed(objects: str, depth: int) -> Iterator[str]:
    """Yield the directories of objects that one of them names, and those that these name."""
    try:
        with os.fdopen(open_beneath(Path(objects), "info/alternates"), "rb") as opened:
            text = os.fsdecode(opened.read(CONFIG_MAX))
    except (OSError, PathError):
        return
    for line in text.splitlines()[: ALTERNATES_MAX + 1]:
        if not line or line[0] == "#" or "\0" in line:
            continue
        target = os.path.realpath(os.path.join(objects, line.strip('"')))
        if os.path.basename(target) == "objects" and os.path.isdir(target):
            yield target
            if depth < ALTERNATES_DEPTH_MAX:
                yield from _borrowed(target, depth + 1)
