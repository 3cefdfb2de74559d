"""Unpacks an untrusted archive: plain files only, into a new directory, or nothing.

The libraries are used as parsers; names, kinds and sizes are judged here and every file is written
by us (reference on registries, "Archive safety").
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from skillhouse.floor import PathError, SkillhouseError, checked_parts, dataclass
from skillhouse.remote.source import DEPTH_MAX, PATH_MAX, is_safe_name

ARCHIVE_MAX = 50 * 1024 * 1024
"""Bytes of an archive, and of what is in it (DESIGN, bounds: package 50 MB)."""
FILES_MAX = 1_000
"""Files of a package (DESIGN, bounds)."""
FILE_MAX = 10 * 1024 * 1024
RATIO_MAX = 100
"""How many times larger the content may be than the archive, beyond 1 MiB."""

_RATIO_FREE = 1024 * 1024
_CHUNK = 65_536
_FORBIDDEN_ROOTS = frozenset({".git", ".skill"})
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, ValueError)
"""What the parsers raise on bytes that they cannot read; NotImplementedError comes with zip."""


class ArchiveError(SkillhouseError):
    """An archive is refused; `code` says why, and nothing of it is left."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class _ArchiveMember:
    name: str
    is_directory: bool
    size: int
    read: Callable[[], Iterator[bytes]]


def unpack(data: bytes, target: Path) -> tuple[str, ...]:
    """Write the files of a `.tar.gz` or `.zip` below the new directory `target`; return the paths.

    Args:
        data: The archive; which kind it is, its first bytes say.
        target: Does not exist yet; removed again when anything is wrong.

    Raises:
        ArchiveError: the archive is broken, too large, or holds what is no plain file.
    """
    if len(data) > ARCHIVE_MAX:
        raise ArchiveError("too-large", f"expected at most {ARCHIVE_MAX} bytes, got {len(data)}")
    try:
        members = list(_zip(data) if data[:4] == b"PK\x03\x04" else _tar(data))
    except (*_BROKEN, NotImplementedError, RuntimeError) as error:
        raise ArchiveError("archive-broken", f"cannot be read: {error}") from error
    paths = _checked(members)
    budget = max(_RATIO_FREE, min(ARCHIVE_MAX, len(data) * RATIO_MAX))
    if sum(member.size for member in members) > budget:
        raise ArchiveError("archive-bomb", f"expected at most {budget} bytes of content")
    target.mkdir(mode=0o700)
    written: list[str] = []
    try:
        for path, member in zip(paths, members, strict=True):
            if member.is_directory:
                (target / path).mkdir(parents=True, exist_ok=True)
            else:
                budget -= _write(target / path, member, budget)
                written.append(path)
    except (*_BROKEN, NotImplementedError, RuntimeError) as error:
        shutil.rmtree(target)
        if isinstance(error, OSError):
            raise
        raise ArchiveError("archive-broken", f"cannot be read: {error}") from error
    except BaseException:
        shutil.rmtree(target)
        raise
    return tuple(sorted(written))


def _zip(data: bytes) -> Iterator[_ArchiveMember]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    end = 0
    for info in infos[: FILES_MAX + 1]:
        if info.header_offset != end and (not end or info.header_offset < end):
            raise ArchiveError("archive-overlap", f"entries overlap at `{info.filename}`")
        end = info.header_offset + 30 + info.compress_size
        if info.flag_bits & 1:
            raise ArchiveError("archive-encrypted", f"encrypted: `{info.filename}`")
        kind = info.external_attr >> 16 & 0o170000
        if kind not in (0, 0o100000, 0o040000):
            raise ArchiveError("archive-link", f"no plain file: `{info.filename}`")
        # `orig_filename`: the parser cuts names at a NUL and turns separators.
        if info.orig_filename != info.filename:
            raise ArchiveError("path-nul", f"refused name {info.orig_filename!r}")
        yield _ArchiveMember(
            info.filename.removesuffix("/"),
            info.is_dir(),
            info.file_size,
            lambda info=info: _chunks(archive.open(info)),  # type: ignore[misc]
        )


def _tar(data: bytes) -> Iterator[_ArchiveMember]:
    archive = tarfile.open(fileobj=io.BytesIO(_inflated(data)), mode="r:")  # noqa: SIM115 memory
    for info in archive:
        if not (info.isreg() or info.isdir()) or info.issparse():
            raise ArchiveError("archive-link", f"no plain file: `{info.name}`")
        if info.isdir() and info.name in (".", "./"):
            continue
        yield _ArchiveMember(
            info.name,
            info.isdir(),
            info.size,
            lambda info=info: _chunks(archive.extractfile(info)),  # type: ignore[misc]
        )


def _inflated(data: bytes) -> bytes:
    """Return the tar inside a gzip stream, which is one member and nothing behind it."""
    stream = zlib.decompressobj(wbits=31)
    limit = max(_RATIO_FREE, min(ARCHIVE_MAX, len(data) * RATIO_MAX)) + 1_024 * FILES_MAX
    tar = stream.decompress(data, limit)
    if stream.unconsumed_tail:
        raise ArchiveError("archive-bomb", f"expected at most {limit} bytes of content")
    if not stream.eof or stream.unused_data:
        raise ArchiveError("archive-broken", "cut short, or more than one gzip member")
    return tar


def _checked(members: list[_ArchiveMember]) -> list[str]:
    """Return the safe path of each member, all different also where case does not count."""
    if len(members) > FILES_MAX:
        raise ArchiveError("too-many-files", f"expected at most {FILES_MAX} files")
    paths: list[str] = []
    kinds: dict[str, bool] = {}
    for member in members:
        path = _path(member.name)
        folded = unicodedata.normalize("NFKC", path).casefold()
        if folded in kinds and not (kinds[folded] and member.is_directory and path in paths):
            raise ArchiveError("path-twice", f"the same path twice: `{path}`")
        if member.size > FILE_MAX:
            raise ArchiveError("too-large", f"expected at most {FILE_MAX} bytes of `{path}`")
        kinds[folded] = member.is_directory
        paths.append(path)
    for folded in kinds:
        above = folded.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            if kinds.get("/".join(above[:depth])) is False:
                raise ArchiveError("path-twice", f"below a file: `{folded}`")
    return paths


def _path(name: str) -> str:
    try:
        parts = checked_parts(name.removeprefix("./"), Path("archive"))
        size = len(name.encode())
    except (PathError, UnicodeEncodeError) as error:
        code = error.code if isinstance(error, PathError) else "path-encoding"
        raise ArchiveError(code, f"refused name {name!r}") from error
    if not parts or parts[0].lower() in _FORBIDDEN_ROOTS:
        raise ArchiveError("path-reserved", f"refused name {name!r}")
    if size > PATH_MAX or len(parts) > DEPTH_MAX:
        raise ArchiveError("path-long", f"refused name {name!r}")
    if not all(map(is_safe_name, parts)):
        raise ArchiveError("path-reserved", f"refused name {name!r}")
    return "/".join(parts)


def _write(path: Path, member: _ArchiveMember, budget: int) -> int:
    """Write one new file and return its size, counted as it comes and not as it is claimed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        for chunk in member.read():
            size += len(chunk)
            if size > min(member.size, budget):
                raise ArchiveError("archive-bomb", f"more than it claims: `{member.name}`")
            file.write(chunk)
        if size != member.size:
            raise ArchiveError("archive-broken", f"less than it claims: `{member.name}`")
    return size


def _chunks(file: IO[bytes] | None) -> Iterator[bytes]:
    if file is None:
        raise ArchiveError("archive-broken", "an entry without content")
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk
