"""The files of a directory as members of a package, judged like those of an archive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from skillhouse.floor import (
    EXECUTABLE_MODE,
    SIGNATURE_FILE,
    PathError,
    Tree,
    open_beneath,
    read_tree,
)
from skillhouse.skill import FILE_MAX, ArchiveError, ArchiveMember, clash, package_path

_CHUNK = 65_536


def directory_members(directory: Path) -> tuple[Tree, tuple[ArchiveMember, ...]]:
    """Return the tree below a directory, and its files with `skill.sig` as members.

    What no archive may hold is refused here too, so that whatever is packed can be installed.

    Raises:
        TreeError: the directory holds a link, a device or too much.
        ArchiveError: a name or a size is refused.
    """
    tree = read_tree(directory)
    members = [
        _member(directory, one.path, one.size, is_executable=one.mode == EXECUTABLE_MODE)
        for one in tree.files
    ]
    signature = directory / SIGNATURE_FILE
    if signature.is_file() and not signature.is_symlink():
        size = os.lstat(signature).st_size
        members.append(_member(directory, SIGNATURE_FILE, size, is_executable=False))
    if clash(member.path for member in members):
        message = "two files have names that are one on other systems"
        raise ArchiveError("path-twice", message)
    return tree, tuple(members)


def _member(directory: Path, path: str, size: int, *, is_executable: bool) -> ArchiveMember:
    try:
        is_spelled = package_path(path) == path
    except PathError as error:
        raise ArchiveError(error.code, f"no package may hold {path!r}") from error
    if not is_spelled or not (path.isascii() or os.path.lexists(directory / path)):
        # A tree has names in NFC, and on the disk it is another one.
        raise ArchiveError("path-reserved", f"no package may hold {path!r}")
    if size > FILE_MAX:
        raise ArchiveError("too-large", f"expected at most {FILE_MAX} bytes of `{path}`")
    return ArchiveMember(
        path=path,
        is_directory=False,
        is_executable=is_executable,
        size=size,
        open=partial(content, directory, path),
    )


def content(directory: Path, path: str) -> Iterator[bytes]:
    """Yield the content of a file below a directory; ArchiveError where it cannot be read."""
    try:
        handle = open_beneath(directory, path)
    except PathError as error:
        raise ArchiveError(error.code, f"cannot be read: `{path}`") from error
    with os.fdopen(handle, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
