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
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import PathError, open_beneath
from skillhouse.floor.ownership import PathStateCache, trail
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace

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


class GitDirectory(Struct, frozen=True, kw_only=True):
    """A git directory that a run may write, but for what git obeys there."""

    path: str
    """Real path."""
    role: GitRole


class GitPlaces(Struct, frozen=True, kw_only=True):
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


class GitLooks(PathStateCache):
    """All that `find_git` goes by: what is at paths, and what files hold, each read once.

    INVARIANT: what is found follows from these alone, so that it holds as long as they do. No time
    is any part of it: files are read again, whatever theirs say.
    """

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[tuple[str, str, int], bytes | None] = {}

    def real(self, path: str) -> str:
        return trail(path, self).real

    def info(self, path: str) -> os.stat_result | None:
        """Return what a path leads to, links followed."""
        way = trail(path, self)
        return way.steps[-1][1] if way.steps and way.steps[-1][0] == way.real else None

    def is_file(self, path: str) -> bool:
        info = self.info(path)
        return info is not None and stat.S_ISREG(info.st_mode)

    def is_directory(self, path: str) -> bool:
        info = self.info(path)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def bytes_of(self, directory: str, file: str, most: int) -> bytes:
        """Return the beginning of a file below a real path; raises FileNotFoundError where there is
        none that can be read."""
        key = (directory, file, most)
        if key not in self._texts:
            self._texts[key] = _bytes_now(*key)
        data = self._texts[key]
        if data is None:
            raise FileNotFoundError(f"{directory}/{file}")
        return data

    def hold(self) -> bool:
        """Whether all is as it was, in what `find_git` goes by."""
        for path, fact in self._found.items():
            try:
                info = os.lstat(path)
            except (OSError, ValueError):
                if fact is not None:
                    return False
                continue
            if fact is None:
                return False
            old, target = fact
            if (info.st_mode, info.st_ino, info.st_dev, info.st_uid) != (
                *(old.st_mode, old.st_ino, old.st_dev, old.st_uid),
            ):
                return False
            if target and os.readlink(path) != target:
                return False
        return all(_bytes_now(*key) == data for key, data in self._texts.items())


def _bytes_now(directory: str, file: str, most: int) -> bytes | None:
    try:
        opened = open_beneath(Path(directory), file)
    except (OSError, PathError):
        return None
    try:
        return os.read(opened, most)
    except OSError:
        return None
    finally:
        os.close(opened)


class GitFinder:
    """Finds the git directories of a workspace as `find_git` does, and keeps what it found last."""

    def __init__(self) -> None:
        self._kept: tuple[str, GitLooks, GitPlaces] | None = None

    def find(self, workspace: str) -> GitPlaces:
        kept = self._kept
        if kept is None or kept[0] != workspace or not kept[1].hold():
            looks = GitLooks()
            kept = self._kept = workspace, looks, find_git(workspace, looks)
        return kept[2]


def find_git(workspace: str, looks: GitLooks | None = None) -> GitPlaces:
    """Return the git directories of a workspace, given by its real path."""
    found = GitPlaces(workspace=workspace)
    looks = looks or GitLooks()
    try:
        here = looks.info(workspace)
        for place in (workspace, *map(str, Path(workspace).parents)):
            around = looks.info(place)
            if here is None or around is None or around.st_dev != here.st_dev:
                # As git does without GIT_DISCOVERY_ACROSS_FILESYSTEM.
                break
            own = _named_by(place, looks)
            if own:
                top = place if place != workspace else ""
                placed = _placed(replace(found, own=own, top=top), place, looks)
                return _with_alternates(placed, looks)
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


def _named_by(place: str, looks: GitLooks) -> str:
    """Return the real path of the git directory that a `.git` there is or names, or ""."""
    dot = os.path.join(place, ".git")
    if looks.is_directory(dot):
        own = looks.real(dot)
    elif looks.is_file(dot):
        target = read_pointer_file(os.path.dirname(looks.real(dot)), ".git", "gitdir: ", looks)
        own = looks.real(os.path.join(place, target)) if target else ""
    else:
        return ""
    return own if own and _is_git_directory(own, looks) else ""


def _is_git_directory(path: str, looks: GitLooks) -> bool:
    if looks.at(f"{path}/HEAD") is None:
        return False
    if looks.is_file(f"{path}/commondir"):
        return True
    return looks.is_directory(f"{path}/objects") and looks.is_directory(f"{path}/refs")


def _placed(found: GitPlaces, place: str, looks: GitLooks) -> GitPlaces:
    """Return the places with the directories, or with the problem, of the work tree at `place`."""
    own, dot = found.own, os.path.join(place, ".git")
    is_plain = own == dot
    if looks.is_file(f"{own}/commondir") and not is_plain:
        common, _ = linked_directories(place, looks)
        if not common:
            return replace(found, problem=_no_way_back(dot, own))
        directories: tuple[GitDirectory, ...] = (
            GitDirectory(path=common, role=GitRole.COMMON),
            GitDirectory(path=own, role=GitRole.LINKED),
        )
    else:
        directories = (GitDirectory(path=own, role=GitRole.WHOLE),)
    paths = (place, found.workspace, dot, *(one.path for one in directories))
    if not of_one_owner(*paths, looks=looks):
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
    back = work_tree_of(own, looks)
    if back and back != place:
        return replace(found, directories=(), problem=_no_way_back(dot, own))
    return found if back else replace(found, separate=own)


def _no_way_back(dot: str, own: str) -> str:
    hint = ""
    if os.path.basename(os.path.dirname(own)) == "worktrees":
        hint = "; if the work tree was moved, `git worktree repair` there fixes it"
    return f"`{dot}` names `{own}`, and nothing there leads back to it{hint}"


def is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def linked_directories(place: str, looks: GitLooks | None = None) -> tuple[str, str]:
    """Return the repository that a real path is a linked work tree of, and the directory there that
    is the work tree's own; proven both ways, else two empty texts.

    Its `.git` file names `worktrees/NAME` in the repository, where `commondir` leads to the
    repository and `gitdir` back to the file. Raises OSError, ValueError and PathError for what
    cannot be read.
    """
    dot = os.path.join(place, ".git")
    looks = looks or GitLooks()
    target = read_pointer_file(place, ".git", "gitdir: ", looks)
    own = looks.real(os.path.join(place, target)) if target else ""
    worktrees = os.path.dirname(own)
    common = os.path.dirname(worktrees)
    if os.path.basename(worktrees) != "worktrees":
        return "", ""
    to_common = read_pointer_file(own, "commondir", looks=looks)
    back = read_pointer_file(own, "gitdir", looks=looks)
    if not to_common or looks.real(os.path.join(own, to_common)) != common:
        return "", ""
    # INVARIANT: the way back is compared as it is written. git writes a real path, and a link put
    # where an old worktree was would lead to any directory.
    is_proven = back and os.path.normpath(os.path.join(own, back)) == dot
    return (common, own) if is_proven else ("", "")


def work_tree_of(own: str, looks: GitLooks | None = None) -> str:
    """Return the work tree that the `config` of a git directory names, or ""."""
    text = os.fsdecode((looks or GitLooks()).bytes_of(own, "config", CONFIG_MAX))
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


def read_pointer_file(
    directory: str, file: str, prefix: str = "", looks: GitLooks | None = None
) -> str:
    """Return the path that a file holds; empty where it is no file of one such line."""
    data = (looks or GitLooks()).bytes_of(directory, file, POINTER_MAX + 1)
    text = os.fsdecode(data).rstrip("\r\n")
    if len(data) > POINTER_MAX or not text.startswith(prefix) or "\0" in text or "\n" in text:
        return ""
    return text.removeprefix(prefix)


def of_one_owner(*paths: str, looks: GitLooks | None = None) -> bool:
    found = [(looks or GitLooks()).at(path) for path in paths]
    return None not in found and len({fact[0].st_uid for fact in found if fact}) == 1


def _below(place: str, roots: Iterable[str]) -> GitDirectory | None:
    """Return the git directory of a work tree in the workspace, if it is in one of `roots`."""
    own = _named_by(place, GitLooks())
    root = next((root for root in roots if is_inside(own, f"{root}/modules")), "")
    linked = next((root for root in roots if is_inside(own, f"{root}/worktrees")), "")
    if linked and linked_directories(place)[0] == linked and of_one_owner(place, linked, own):
        return GitDirectory(path=own, role=GitRole.LINKED)
    if root and work_tree_of(own) == place and of_one_owner(place, root, own):
        return GitDirectory(path=own, role=GitRole.WHOLE)
    return None


def _with_alternates(places: GitPlaces, looks: GitLooks) -> GitPlaces:
    if places.problem:
        return places
    common = places.directories[0].path if places.directories else places.own
    seen = (places.workspace, places.top, *(one.path for one in places.directories))
    shown = tuple(filter(None, seen))
    found = dict.fromkeys(_borrowed(os.path.join(common, "objects"), 0, looks))
    beyond = tuple(path for path in found if not any(is_inside(path, one) for one in shown))
    if len(beyond) > ALTERNATES_MAX:
        return replace(places, directories=(), problem="it borrows objects of too many others")
    return replace(places, alternates=beyond)


def _borrowed(objects: str, depth: int, looks: GitLooks) -> Iterator[str]:
    """Yield the directories of objects that one of them names, and those that these name."""
    try:
        text = os.fsdecode(looks.bytes_of(objects, "info/alternates", CONFIG_MAX))
    except (OSError, PathError):
        return
    for line in text.splitlines()[: ALTERNATES_MAX + 1]:
        if not line or line[0] == "#" or "\0" in line:
            continue
        target = looks.real(os.path.join(objects, line.strip('"')))
        if os.path.basename(target) == "objects" and looks.is_directory(target):
            yield target
            if depth < ALTERNATES_DEPTH_MAX:
                yield from _borrowed(target, depth + 1, looks)
