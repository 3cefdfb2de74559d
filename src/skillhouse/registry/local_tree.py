"""Lists the files of a directory that is a source."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from skillhouse.floor.trees import INSTALL_DIRECTORY, holds_leftovers, is_cached, is_leftover
from skillhouse.registry.members import content
from skillhouse.registry.source import SourceError
from skillhouse.registry.source_files import SUBMODULE, SourceFile
from skillhouse.skill import SKILL_FILE, ArchiveMember

ENTRIES_MAX = 200_000
DEPTH_MAX = 22
"""Directories: six down to a skill, and 16 in it (DESIGN, bounds)."""
_SKIPPED = (".git", "node_modules")
_MODULES = ".gitmodules"
_MODULES_MAX = 1_000_000
_MODULE_PATH = re.compile(rb"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)


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
