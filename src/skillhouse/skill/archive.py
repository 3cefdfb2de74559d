"""Reads an untrusted archive: which plain files are in it, or why it is refused.

The libraries are used as parsers; names, kinds, sizes and the structure are judged here, so that no
other program reads other files out of the same bytes (reference on registries, "Archive safety").
A name means the same file on every system, or it is refused; the files are written into a new
directory, all of them or nothing.
"""

from __future__ import annotations

import io
import os
import shutil
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from skillhouse.floor import (
    PathError,
    SkillhouseError,
    checked_parts,
    descriptor,
    open_directory_beneath,
)
from skillhouse.skill.hidden import find_hidden

DEPTH_MAX = 16
"""Parts of a path (reference/registry.md section 3, rule 1; likewise those below)."""
PATH_MAX = 255
"""Bytes of a path."""
SEGMENT_MAX = 120
"""Bytes of one name."""

_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
)
_GIT = frozenset({".git", "git~1"})
_NOWHERE = Path("package")
_FORBIDDEN_TOPS = frozenset({".git", ".skill"})


def is_safe_name(part: str) -> bool:
    r"""Whether a name that another machine gave means the same file on every system.

    `.git` in any spelling means what git runs (CVE-2014-9390), at any depth.

    >>> [is_safe_name(name) for name in ("a.md", ".git", ".GIT", "GIT~1", "con.txt", "a.", "b ")]
    [True, False, False, False, False, False, False]

    Blanks of all scripts are ordinary: macOS names a screenshot with U+202F before `AM`.

    >>> [is_safe_name(f"a{blank}b.png") for blank in ("\u202f", "\u3000", "\u2028", "\n")]
    [True, True, False, False]
    """
    is_ascii = part.isascii()
    return (
        all(one.isprintable() or unicodedata.category(one) == "Zs" for one in part)
        and ":" not in part
        and part == part.rstrip(". ")
        and not _is_git(part)
        and part.split(".", maxsplit=1)[0].rstrip().lower() not in _RESERVED
        and len(part.encode()) <= SEGMENT_MAX
        # Printable ASCII is in NFC, and hides nothing.
        and (is_ascii or (unicodedata.normalize("NFC", part) == part and find_hidden(part) is None))
    )


def _is_git(part: str) -> bool:
    seen = part
    if not part.isascii():
        seen = "".join(one for one in part if unicodedata.category(one) != "Cf")
    return seen.casefold() in _GIT


def package_path(relative: str) -> str:
    """Return the path of a file of a package in its one spelling.

    Raises:
        PathError: it is refused; `code` says why.

    >>> package_path("./a//b")
    'a/b'
    """
    nowhere = _NOWHERE
    try:
        parts = checked_parts(relative, nowhere)
        size = len(relative.encode())
    except UnicodeEncodeError as error:
        raise PathError("path-encoding", relative, nowhere) from error
    if not parts or parts[0].lower() in _FORBIDDEN_TOPS or not all(map(is_safe_name, parts)):
        # A long name is refused by `is_safe_name`, too.
        raise PathError("path-reserved", relative, nowhere)
    if size > PATH_MAX or len(parts) > DEPTH_MAX:
        raise PathError("path-long", relative, nowhere)
    return "/".join(parts)


def clash(paths: Iterable[str]) -> bool:
    """Whether a file system may take two paths for one, or one is a directory of another.

    >>> clash(["a/B", "A/b"]), clash(["a", "a/b"]), clash(["a/b", "a/c"])
    (True, True, False)
    """
    folded = [_folded(path) for path in paths]
    places = {
        "/".join(path.split("/")[:count])
        for path in folded
        for count in range(1, path.count("/") + 1)
    }
    return len(set(folded)) < len(folded) or not places.isdisjoint(folded)


ARCHIVE_MAX = 50 * 1024 * 1024
"""Bytes of an archive, and of what is in it (docs/reference/limits.md)."""
FILES_MAX = 1_000
"""Files of a package (docs/reference/limits.md)."""
SOURCE_FILES_MAX = 20_000
"""Files of an archive that holds a whole collection: each skill of it is a package of its own."""
SOURCE_PATH_MAX = 512
"""Bytes of a path in such an archive; each skill of it has the bounds of a package."""
SOURCE_DEPTH_MAX = 24
"""Parts of it: the archive's own directory, those down to a skill, and those of a package."""
FILE_MAX = 10 * 1024 * 1024
RATIO_MAX = 100
"""How many times larger the content may be than the archive, beyond 1 MiB."""

_RATIO_FREE = 1024 * 1024
_CHUNK = 65_536
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    struct.error,
    NotImplementedError,
    RuntimeError,
)
"""What the parsers raise on bytes that they cannot read."""


class ArchiveError(SkillhouseError):
    """An archive is refused; `code` says why, and nothing of it is left."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ArchiveMember(Struct, frozen=True):
    """One file or directory of an archive."""

    path: str
    """Relative, with `/`; safe on every system."""
    is_directory: bool
    is_executable: bool
    size: int
    """As the archive claims it; `read` gives exactly as much or raises."""
    open: Callable[[], Iterator[bytes]]
    link: str | None = None
    """What a symbolic link says; only in an archive that is a source, never in a package."""

    def read(self) -> Iterator[bytes]:
        """Yield the content.

        Raises:
            ArchiveError: it is longer or shorter than it claims, or cannot be read.
        """
        size = 0
        try:
            for chunk in self.open():
                size += len(chunk)
                if size > self.size:
                    raise ArchiveError("archive-bomb", f"more than it claims: `{self.path}`")
                yield chunk
        except _BROKEN as error:
            raise ArchiveError("archive-broken", f"cannot be read: {error}") from error
        if size != self.size:
            raise ArchiveError("archive-broken", f"less than it claims: `{self.path}`")


def read_archive(data: bytes, *, is_source: bool = False) -> tuple[ArchiveMember, ...]:
    """Return what is in a `.tar.gz` or `.zip`, as its first bytes say; no content is read yet.

    Args:
        is_source: Whether it is what a forge makes of a repository, and no package: then it may
            have symbolic links, through which no other entry goes, more files, and names that no
            package may have, or that are one where case does not count: who takes a package out of
            it judges those.

    Raises:
        ArchiveError: the archive is broken, too large, or holds what is no plain file.
    """
    if len(data) > ARCHIVE_MAX:
        raise ArchiveError("too-large", f"expected at most {ARCHIVE_MAX} bytes, got {len(data)}")
    try:
        entries = _zip if data[:4] == _LOCAL else _tar
        members = list(entries(data, is_source=is_source))
    except _BROKEN as error:
        raise ArchiveError("archive-broken", f"cannot be read: {error}") from error
    _check(members, is_source=is_source)
    budget = max(_RATIO_FREE, min(ARCHIVE_MAX, len(data) * RATIO_MAX))
    if sum(member.size for member in members) > budget:
        raise ArchiveError("archive-bomb", f"expected at most {budget} bytes of content")
    return tuple(members)


_LOCAL, _END = b"PK\x03\x04", b"PK\x05\x06"
_ZIP64_EXTRA, _NAME_EXTRA = 0x0001, 0x7075
_DESCRIBED, _UTF8 = 1 << 3, 1 << 11
_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
_KINDS = {0: None, 0o100000: False, 0o040000: True}
_LINK = 0o120000
_LINK_MAX = 4_096
"""Bytes of a link, as of Linux."""
_RIGHTS = 0o7000
"""Set-user-id, set-group-id and sticky bits."""


def _zip(data: bytes, *, is_source: bool) -> Iterator[ArchiveMember]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    _check_end(data, archive)
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    for info, after in zip(infos, [*infos[1:], None], strict=True):
        _check_entry(info, is_source=is_source)
        end = archive.start_dir if after is None else after.header_offset
        _check_local(data, info, end)
    if infos and infos[0].header_offset:
        raise ArchiveError("archive-overlap", "bytes before the first entry")
    safe = _path_in_source if is_source else _safe
    for info in infos[: _files_max(is_source=is_source) + 1]:
        mode = info.external_attr >> 16
        yield ArchiveMember(
            safe(info.orig_filename.removesuffix("/")),
            info.is_dir(),
            bool(mode & 0o100) and not info.is_dir(),
            info.file_size,
            lambda info=info: _chunks(archive.open(info)),  # type: ignore[misc]
            _zip_link(archive, info),
        )


def _files_max(*, is_source: bool) -> int:
    return SOURCE_FILES_MAX if is_source else FILES_MAX


def _zip_link(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str | None:
    if info.external_attr >> 16 & 0o170000 != _LINK:
        return None
    if info.file_size > _LINK_MAX:
        raise ArchiveError("archive-link", f"too long for a link: {info.orig_filename!r}")
    return os.fsdecode(archive.read(info))


def _check_end(data: bytes, archive: zipfile.ZipFile) -> None:
    """Refuse what another reader would take another directory of entries from."""
    place = data.rfind(_END)
    if data.count(_END, archive.start_dir) != 1 or b"PK\x06\x07" in data[archive.start_dir :]:
        raise ArchiveError("archive-overlap", "more than one end of the directory")
    numbers = struct.unpack_from("<4s4H2LH", data, place)
    _, disk, start_disk, here, total, size, start, comment = numbers
    if disk or start_disk or here != total:
        raise ArchiveError("archive-parts", "an archive of several parts")
    if place + 22 + comment != len(data):
        raise ArchiveError("archive-overlap", "bytes behind the end")
    if start != archive.start_dir or start + size != place:
        raise ArchiveError("archive-overlap", "bytes between the entries and their directory")


def _check_entry(info: zipfile.ZipInfo, *, is_source: bool) -> None:
    name, mode = info.orig_filename, info.external_attr >> 16
    if info.flag_bits & _ENCRYPTED:
        raise ArchiveError("archive-encrypted", f"encrypted: {name!r}")
    kinds = {**_KINDS, _LINK: False} if is_source else _KINDS
    kind = mode & 0o170000
    if kind not in kinds:
        raise ArchiveError("archive-link", f"no plain file: {name!r}")
    if kinds[kind] not in (None, info.is_dir()) or (info.is_dir() and info.file_size):
        raise ArchiveError("archive-link", f"a file and a directory at once: {name!r}")
    _check_rights(mode, name)
    # The parser cuts names at a NUL and turns separators.
    if name != info.filename:
        raise ArchiveError("path-nul", f"refused name {name!r}")
    if not name.isascii() and not info.flag_bits & _UTF8:
        raise ArchiveError("path-encoding", f"a name that is not marked as UTF-8: {name!r}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError("archive-method", f"unknown compression of {name!r}")
    _check_extra(info.extra, name)


def _check_local(data: bytes, info: zipfile.ZipInfo, end: int) -> None:
    """Hold an entry's own header against the directory, and its end against what follows."""
    at, name = info.header_offset, info.orig_filename
    mark, _, flags, method, _, _, crc, packed, size, names, extras = struct.unpack_from(
        "<4s5H3L2H", data, at
    )
    begin = at + 30 + names + extras
    raw = name.encode("utf-8" if info.flag_bits & _UTF8 else "ascii")
    if mark != _LOCAL or data[at + 30 : at + 30 + names] != raw:
        raise ArchiveError("archive-differs", f"two names of one entry: {name!r}")
    _check_extra(data[begin - extras : begin], name)
    here, there = (crc, packed, size), (info.CRC, info.compress_size, info.file_size)
    is_later = bool(flags & _DESCRIBED) and here == (0, 0, 0)
    if (flags, method) != (info.flag_bits, info.compress_type) or not (is_later or here == there):
        raise ArchiveError("archive-differs", f"the two headers differ: {name!r}")
    if not info.compress_type and info.compress_size != info.file_size:
        raise ArchiveError("archive-differs", f"two sizes of one entry: {name!r}")
    gap = end - begin - info.compress_size
    # With or without a signature of its own (APPNOTE 4.3.9.3).
    described = struct.pack("<3L", *there)
    rest = data[end - gap : end] if gap > 0 else b""
    allowed = (described, b"PK\x07\x08" + described) if flags & _DESCRIBED else (b"",)
    if gap < 0 or rest not in allowed:
        raise ArchiveError("archive-overlap", f"entries overlap, or bytes between, at {name!r}")


def _check_extra(extra: bytes, name: str) -> None:
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind in (_ZIP64_EXTRA, _NAME_EXTRA):
            raise ArchiveError("archive-differs", f"a second size or name of {name!r}")
        extra = extra[4 + size :]


def _check_rights(mode: int, name: str) -> None:
    if mode & _RIGHTS:
        raise ArchiveError("archive-mode", f"a mode that lends rights: {name!r}")


def _tar(data: bytes, *, is_source: bool) -> Iterator[ArchiveMember]:
    tar = _inflated(data, _files_max(is_source=is_source))
    archive = tarfile.open(fileobj=io.BytesIO(tar), mode="r:")  # noqa: SIM115 memory
    safe = _path_in_source if is_source else _safe
    for info in archive:
        is_link = is_source and info.issym()
        if not (info.isreg() or info.isdir() or is_link) or info.issparse():
            raise ArchiveError("archive-link", f"no plain file: {info.name!r}")
        _check_tar_entry(tar, info)
        if info.isdir() and info.name in (".", "./", ""):
            continue
        yield ArchiveMember(
            safe(info.name.removeprefix("./")),
            info.isdir(),
            bool(info.mode & 0o100) and not info.isdir(),
            info.size,
            lambda info=info: _chunks(archive.extractfile(info)),  # type: ignore[misc]
            info.linkname if is_link else None,
        )
    # The parser ends silently at a header that it cannot read, where others go on.
    if tar[archive.offset :].strip(b"\0"):
        raise ArchiveError("archive-overlap", "bytes behind the last entry")


def _check_tar_entry(tar: bytes, info: tarfile.TarInfo) -> None:
    """Refuse extended headers that make another file of an entry than its own header."""
    if info.pax_headers.keys() & {"size", "hdrcharset"}:
        raise ArchiveError("archive-differs", f"a second size or encoding of {info.name!r}")
    _check_rights(info.mode, info.name)
    header = tar[info.offset_data - 512 : info.offset_data]
    raw = header[:100].split(b"\0")[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].split(b"\0")[0]):
        raw = prefix + b"/" + raw
    name = info.name.encode("utf-8", "surrogateescape")
    # An extended name is for what does not fit a header: longer, or no ASCII.
    fits = len(name) < 100 and name.isascii()
    if fits and raw.rstrip(b"/") != name.rstrip(b"/"):
        raise ArchiveError("archive-differs", f"two names of one entry: {info.name!r}")


def _inflated(data: bytes, files_max: int) -> bytes:
    """Return the tar inside a gzip stream, which is one member and nothing behind it."""
    stream = zlib.decompressobj(wbits=31)
    limit = max(_RATIO_FREE, min(ARCHIVE_MAX, len(data) * RATIO_MAX)) + 1_024 * files_max
    tar = stream.decompress(data, limit)
    if stream.unconsumed_tail:
        raise ArchiveError("archive-bomb", f"expected at most {limit} bytes of content")
    if not stream.eof or stream.unused_data:
        raise ArchiveError("archive-broken", "cut short, or more than one gzip member")
    return tar


def _check(members: list[ArchiveMember], *, is_source: bool) -> None:
    """Refuse too many or too large members, and paths that are one: of a package where case does
    not count, too."""
    most = _files_max(is_source=is_source)
    if len(members) > most:
        raise ArchiveError("too-many-files", f"expected at most {most} files")
    folding = str if is_source else _folded
    _check_links(members)
    paths: set[str] = set()
    kinds: dict[str, bool] = {}
    for member in members:
        path = member.path
        folded = folding(path)
        if folded in kinds and not (kinds[folded] and member.is_directory and path in paths):
            raise ArchiveError("path-twice", f"the same path twice: `{path}`")
        if member.size > FILE_MAX and not is_source:
            raise ArchiveError("too-large", f"expected at most {FILE_MAX} bytes of `{path}`")
        kinds[folded] = member.is_directory
        paths.add(path)
    for folded in kinds:
        above = folded.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            if kinds.get("/".join(above[:depth])) is False:
                raise ArchiveError("path-twice", f"below a file: `{folded}`")


def _check_links(members: list[ArchiveMember]) -> None:
    """Refuse a link that another entry goes through: readers find different files there."""
    links = {one.path for one in members if one.link is not None}
    for member in members if links else ():
        parts = member.path.split("/")
        for count in range(1, len(parts)):
            if (through := "/".join(parts[:count])) in links:
                raise ArchiveError("archive-link", f"no plain file: {through!r}")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()


def _path_in_source(name: str) -> str:
    """Return a path that leads nowhere else, whatever its names; ArchiveError for others."""
    try:
        parts = checked_parts(name, _NOWHERE)
        size = len(name.encode())
    except (PathError, UnicodeEncodeError) as error:
        raise ArchiveError(
            getattr(error, "code", "path-encoding"), f"refused name {name!r}"
        ) from error
    if any(map(_is_git, parts)) or not parts:
        raise ArchiveError("path-reserved", f"refused name {name!r}")
    if size > SOURCE_PATH_MAX or len(parts) > SOURCE_DEPTH_MAX:
        raise ArchiveError("path-long", f"refused name {name!r}")
    return "/".join(parts)


def _safe(name: str) -> str:
    try:
        return package_path(name)
    except PathError as error:
        raise ArchiveError(error.code, f"refused name {name!r}") from error


def _chunks(file: IO[bytes] | None) -> Iterator[bytes]:
    if file is None:
        raise ArchiveError("archive-broken", "an entry without content")
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk


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
