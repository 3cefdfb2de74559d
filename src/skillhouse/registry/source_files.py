"""The files that a source names: those it holds, its links, and what it does not hold.

A directory is listed here; a Git repository and an archive list theirs where they are read.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from skillhouse.floor.structs import replace
from skillhouse.floor.trees import INSTALL_DIRECTORY, holds_leftovers, is_cached, is_leftover
from skillhouse.registry.package import content
from skillhouse.registry.page_addresses import SourceError
from skillhouse.skill import SKILL_FILE, ArchiveMember

EXPANDED_MAX = 200_000
"""Files of a source after its links were followed."""
_HOPS_MAX = 40
"""Links on the way to one file, as of Linux."""
_POINTER_MAX = 1024
_POINTER_START = b"version https://git-lfs.github.com/spec/"
POINTER = (
    "a Git LFS pointer, whose content the source does not hold; `git lfs pull` in a clone gets it, "
    "then install from the clone's directory"
)
UNSAFE = "a name that means another file, or none, on one of the systems; rename it at the source"
SUBMODULE = "a submodule, which is another repository"
ENTRIES_MAX = 200_000
DEPTH_MAX = 22
"""Directories: six down to a skill, and 16 in it (docs/reference/limits.md)."""
_SKIPPED = (".git", "node_modules")
_MODULES = ".gitmodules"
_MODULES_MAX = 1_000_000
_MODULE_PATH = re.compile(rb"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)


class SourceFile(Struct, frozen=True, kw_only=True):
    """One file of a source, before anything of it is judged."""

    path: str
    member: ArchiveMember | None
    """None for what the source does not hold."""
    link: str | None = None
    """What a symbolic link says, until it was followed."""
    missing: str = ""
    """What it is instead of a file: the end of a sentence."""
    is_directory: bool = False
    """Whether a directory is missing."""
    real: str = ""
    """The path that a link led to; empty for a file that is where it says."""


def join(above: str, path: str) -> str:
    return "/".join(filter(None, (above, path)))


def places_above(path: str) -> Iterator[str]:
    """Yield the directories above a path, from the top of the source on.

    >>> list(places_above("a/b/c"))
    ['', 'a', 'a/b']
    """
    parts = path.split("/") if path else []
    return ("/".join(parts[:count]) for count in range(len(parts)))


def shown_path(path: str) -> str:
    return path if path.isprintable() else repr(path)


def is_pointer(member: ArchiveMember) -> bool:
    """Whether a file only says what Git LFS has elsewhere."""
    if not len(_POINTER_START) < member.size <= _POINTER_MAX:
        return False
    return b"".join(member.read()).startswith(_POINTER_START)


def follow_links(files: Iterable[SourceFile]) -> list[SourceFile]:
    """Return the files of a source with each link as what it leads to inside the source.

    A link out of it, to nothing, or in a circle stays, as a file that is missing.

    Raises:
        SourceError: there are too many files.
    """
    every = list(files)
    if all(one.link is None for one in every):
        return every
    return list(_Links(every).followed())


class _Links:
    """The files of one source by path, and what is in each directory."""

    def __init__(self, files: list[SourceFile]) -> None:
        self._files = {one.path: one for one in files}
        self._inside: dict[str, list[str]] = {}
        for path in self._files:
            parts = path.split("/")
            for count in range(len(parts)):
                names = self._inside.setdefault("/".join(parts[:count]), [])
                if not names or names[-1] != parts[count]:
                    names.append(parts[count])
        self._left = EXPANDED_MAX

    def followed(self) -> Iterator[SourceFile]:
        for path, one in self._files.items():
            if one.link is None:
                yield one
            else:
                yield from self._expanded(path, path, frozenset(places_above(path)))

    def _expanded(self, path: str, real: str, seen: frozenset[str]) -> Iterator[SourceFile]:
        """Yield what is at `real` as being at `path`.

        Args:
            seen: The directories that are being shown around it.
        """
        self._left -= 1
        if self._left < 0:
            raise SourceError(f"expected at most {EXPANDED_MAX} files behind the links of a source")
        end, why = self._end(real)
        if end is None:
            yield SourceFile(path=path, member=None, missing=why, is_directory=True)
        elif end in self._inside:
            if end in seen:
                why = "a symbolic link in a circle"
                yield SourceFile(path=path, member=None, missing=why, is_directory=True)
                return
            for name in dict.fromkeys(self._inside[end]):
                yield from self._expanded(join(path, name), join(end, name), seen | {end})
        else:
            yield replace(self._files[end], path=path, real=end)

    def _end(self, path: str) -> tuple[str | None, str]:
        """Return the path behind all links on the way, or None and why there is none."""
        hops = 0
        done, left = "", path.split("/")
        while left:
            place = join(done, left.pop(0))
            one = self._files.get(place)
            if one is None or one.link is None:
                done = place
                continue
            hops += 1
            if hops > _HOPS_MAX:
                return None, "a symbolic link in a circle"
            target = posixpath.normpath(posixpath.join(posixpath.dirname(place) or ".", one.link))
            if target.startswith("/") or target.split("/")[0] == "..":
                return None, f"a symbolic link out of the source, to {one.link[:200]!r}"
            done, left = "", [*([] if target == "." else target.split("/")), *left]
        if done in self._files or done in self._inside:
            return done, ""
        return None, "a symbolic link to nothing"


def local_files(top: Path) -> Iterator[SourceFile]:
    """Yield what is below a directory, without what git, npm and other programs keep there.

    Raises:
        SourceError: there is too much.
        OSError: a directory cannot be read.
    """
    modules = _modules(top)
    left = ENTRIES_MAX
    pending = [("", 0, ("", 0))]
    while pending:
        prefix, depth, cache = pending.pop()
        with os.scandir(top / prefix) as found:
            entries = list(found)
        left -= len(entries)
        if left < 0:
            message = f"expected at most {ENTRIES_MAX} files in `{top}`: name a directory in it"
            raise SourceError(message)
        if not entries and prefix.rstrip("/") in modules:
            path = prefix.rstrip("/")
            yield SourceFile(path=path, member=None, missing=SUBMODULE, is_directory=True)
        is_skill = any(entry.name == SKILL_FILE for entry in entries)
        for entry in entries:
            path = prefix + entry.name
            if entry.name in _SKIPPED or (is_skill and entry.name == INSTALL_DIRECTORY):
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < DEPTH_MAX:
                    is_cache = not cache[0] and holds_leftovers(entry.name)
                    inside = (entry.name, len(path) + 1) if is_cache else cache
                    pending.append((f"{path}/", depth + 1, inside))
                continue
            below = path[cache[1] :]
            if not (is_cached(cache[0], below, entry) if cache[0] else is_leftover(entry)):
                yield _file(top, path, entry)


def _file(top: Path, path: str, entry: os.DirEntry[str]) -> SourceFile:
    if entry.is_symlink():
        return SourceFile(path=path, member=None, link=os.readlink(entry.path))
    info = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(info.st_mode):
        return SourceFile(path=path, member=None, missing="no plain file")
    member = ArchiveMember(
        path=path,
        is_directory=False,
        is_executable=bool(info.st_mode & stat.S_IXUSR),
        size=info.st_size,
        open=partial(content, top, path),
    )
    return SourceFile(path=path, member=member)


def _modules(top: Path) -> frozenset[str]:
    """Return the directories that are submodules of a work tree."""
    try:
        with open(top / _MODULES, "rb") as file:
            data = file.read(_MODULES_MAX)
    except OSError:
        return frozenset()
    return frozenset(os.fsdecode(path) for path in _MODULE_PATH.findall(data))
