"""Writes files of another machine into a new directory: all of them, or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from skillhouse.floor import descriptor, open_directory_beneath
from skillhouse.skill.archive import ARCHIVE_MAX, ArchiveError, ArchiveMember, read_archive

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FLAGS |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def unpack(data: bytes, target: Path) -> tuple[str, ...]:
    """Write the files of a `.tar.gz` or `.zip` below the new directory `target`; return the paths.

    Args:
        data: The archive; which kind it is, its first bytes say.
        target: Does not exist yet; removed again when anything is wrong.

    Raises:
        ArchiveError: the archive is broken, too large, or holds what is no plain file.
    """
    return write_members(read_archive(data), target)


def write_members(members: Iterable[ArchiveMember], target: Path) -> tuple[str, ...]:
    """Write files below the new directory `target`, which goes again when anything is wrong.

    Each is opened relative to the descriptor of its directory, new and without links, so that
    nothing that appears meanwhile leads a file elsewhere. Errors as of `unpack`.
    """
    target.mkdir(mode=0o700)
    written: list[str] = []
    left = ARCHIVE_MAX
    try:
        for member in members:
            if member.is_directory:
                os.close(open_directory_beneath(target, member.path, create=True))
            else:
                left -= _write(target, member, left)
                written.append(member.path)
    except BaseException:
        shutil.rmtree(target)
        raise
    return tuple(sorted(written))


def _write(target: Path, member: ArchiveMember, left: int) -> int:
    """Write one new file and return its size, counted as it comes and not as it is claimed."""
    directory, _, name = member.path.rpartition("/")
    size = 0
    with descriptor(open_directory_beneath(target, directory or ".", create=True)) as handle:
        mode = 0o755 if member.is_executable else 0o644
        with os.fdopen(os.open(name, _FLAGS, mode, dir_fd=handle), "wb") as file:
            for chunk in _bounded(member, left):
                size += len(chunk)
                file.write(chunk)
    return size


def _bounded(member: ArchiveMember, left: int) -> Iterator[bytes]:
    for chunk in member.read():
        left -= len(chunk)
        if left < 0:
            raise ArchiveError("archive-bomb", f"expected at most {ARCHIVE_MAX} bytes of content")
        yield chunk
