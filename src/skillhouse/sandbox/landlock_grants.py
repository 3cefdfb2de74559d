"""What Landlock is to allow in a workspace, so that its protected paths stay as they are.

A rule of Landlock holds for everything beneath a directory, and no other rule takes something out
of it. So a directory is granted as a whole only if no protected path is in it; one that holds a
protected path, or could, is granted entry by entry. Nothing can be made, renamed or removed
directly in such a directory: the run's result names them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from skillhouse.sandbox.landlock_inside import CHANGE, LIST, WRITE
from skillhouse.sandbox.landlock_rules import READ
from skillhouse.sandbox.profile import SandboxError
from skillhouse.sandbox.protected_mounts import MountCover

GRANTS_MAX = 50_000
"""Rules of one run, 4 µs each; a workspace that needs more is refused."""
_HIDING = (MountCover.CLOSED_FILE, MountCover.CLOSED_DIRECTORY)


class Grants(Struct):
    """Rules for paths below one workspace."""

    workspace: str
    rules: list[tuple[str, int, bool]] = field(default_factory=list)
    """A relative path, the rights, and whether it is a directory; all of one directory in a row."""
    fixed: list[str] = field(default_factory=list)
    """Directories in which nothing can be made, renamed or removed, the workspace's own as `.`."""
    _kept: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of the protected files that have several names."""


class _Node(Struct):
    """A path that is covered, or has covered ones below it."""

    cover: MountCover | None = None
    below: dict[str, _Node] = field(default_factory=dict)

    def hides(self) -> bool:
        return self.cover in _HIDING or any(node.hides() for node in self.below.values())


def grants_for(
    workspace: str, covers: Mapping[str, MountCover], *, read_only: bool = False
) -> Grants:
    """Return the grants for a workspace.

    Args:
        workspace: Its real path.
        covers: What would be mounted over its protected paths, as `shield` finds it.
        read_only: Allow no change at all.

    Raises:
        SandboxError: "protect-failed", it would take too many rules or cannot be read.
    """
    root = _tree(workspace, covers)
    grants = Grants(workspace, _kept=frozenset(_linked(covers)))
    try:
        _grant(grants, root, "", may_read=False, may_change=not read_only)
    except OSError as error:
        message = f"cannot read the workspace to protect its files: {error}"
        raise SandboxError("protect-failed", message) from error
    return grants


def _tree(workspace: str, covers: Mapping[str, MountCover]) -> _Node:
    root = _Node()
    for path, cover in covers.items():
        node = root
        for name in os.path.relpath(path, workspace).split("/"):
            node = node.below.setdefault(name, _Node())
        node.cover = cover
    return root


def _linked(covers: Mapping[str, MountCover]) -> Iterable[tuple[int, int]]:
    for path, cover in covers.items():
        if cover in (MountCover.READ_ONLY, MountCover.CLOSED_FILE) and os.path.lexists(path):
            info = os.lstat(path)
            if info.st_nlink > 1 and stat.S_ISREG(info.st_mode):
                yield info.st_dev, info.st_ino


def _grant(grants: Grants, node: _Node, relative: str, *, may_read: bool, may_change: bool) -> None:
    """Add the rules of a directory that has protected paths, or places of some, below it.

    Args:
        may_read: Whether a rule above it allows to read everything below it already.
        may_change: Whether what is not protected below it may be changed.
    """
    if not may_read:
        may_read = not node.hides()
        _add(grants, relative, READ if may_read else LIST, is_directory=True)
    if not may_change and may_read:
        return
    if may_change:
        grants.fixed.append(relative or ".")
    within = []
    with os.scandir(f"{grants.workspace}/{relative}" if relative else grants.workspace) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            path = f"{relative}/{entry.name}" if relative else entry.name
            known = node.below.get(entry.name)
            if known is None:
                _grant_entry(grants, entry, path, may_read=may_read, may_change=may_change)
            elif known.cover not in _HIDING and not entry.is_symlink():
                within.append((path, known, entry.is_dir()))
    # After the entries of this directory, so that it is opened once.
    for path, known, is_directory in within:
        free = may_change and known.cover in (None, MountCover.PIN)
        if is_directory and (free or known.hides()):
            _grant(grants, known, path, may_read=may_read, may_change=free)
        elif not may_read:
            _add(grants, path, READ, is_directory=is_directory)


def _grant_entry(
    grants: Grants, entry: os.DirEntry[str], path: str, *, may_read: bool, may_change: bool
) -> None:
    """Add the rule of an entry that is not protected, and has nothing protected below it."""
    if entry.is_symlink():
        return
    is_directory = entry.is_dir()
    rights = 0 if may_read else READ
    if may_change and is_directory:
        rights = WRITE
    elif may_change and entry.is_file() and not _is_kept(grants, entry):
        rights = CHANGE
    if rights and (is_directory or entry.is_file()):
        _add(grants, path, rights, is_directory=is_directory)


def _is_kept(grants: Grants, entry: os.DirEntry[str]) -> bool:
    """Whether it is another name of a protected file: a rule is about the file, not its name."""
    if not grants._kept:  # noqa: SLF001 - made by this module.
        return False
    info = entry.stat(follow_symlinks=False)
    return (info.st_dev, info.st_ino) in grants._kept  # noqa: SLF001


def _add(grants: Grants, path: str, rights: int, *, is_directory: bool) -> None:
    if len(grants.rules) >= GRANTS_MAX:
        message = f"expected at most {GRANTS_MAX} entries beside protected files in the workspace"
        raise SandboxError("protect-failed", message)
    grants.rules.append((path, rights if is_directory else rights & ~LIST, is_directory))
