"""`pack`: one skill as an archive whose bytes depend on nothing but its files."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from skillhouse.floor import Digest, SkillError, Tree, dataclass, digest, tree_of
from skillhouse.floor.trees import EXECUTABLE_MODE, FILE_MODE, SIGNATURE_FILE, TreeFile
from skillhouse.registry.facts import SkillFacts, read_facts
from skillhouse.registry.members import directory_members
from skillhouse.skill import ARCHIVE_MAX, ArchiveError, ArchiveMember

BLOCK_MAX = 65_535
"""Bytes of a stored block (RFC 1951, 3.2.4)."""
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""No name, no time, and no system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A skill as one archive."""

    facts: SkillFacts
    tree: Tree
    archive: bytes
    digest: Digest
    """Of the archive."""

    @property
    def file_name(self) -> str:
        version = f"-{self.facts.version}" if self.facts.version else ""
        return f"{self.facts.name}{version}.tar.gz"


def pack(directory: Path) -> Package:
    """Return the skill in `directory` as a package; equal files give equal bytes everywhere.

    Raises:
        SkillError: it is no skill, or its name is not that of the directory.
        TreeError, ArchiveError: it holds what no package may hold.
    """
    place = directory.resolve()
    tree, members = directory_members(place)
    facts = read_facts(place, place.name)
    if facts.name != place.name:
        message = f"expected a directory named `{facts.name}`, got `{place.name}`"
        raise SkillError("name-directory", place, message)
    archive = write_archive(members)
    # INVARIANT: no file that changed meanwhile is in a package with the digest of another.
    if tree_digest_of(members) != tree.digest:
        raise SkillError("unsteady", place, "changed while it was packed")
    return Package(facts=facts, tree=tree, archive=archive, digest=digest(archive))


def tree_digest_of(members: Iterable[ArchiveMember]) -> str:
    """Return the digest of the tree that members make."""
    return member_tree(members).digest


def member_tree(members: Iterable[ArchiveMember]) -> Tree:
    """Return the tree that members make; ArchiveError as of `ArchiveMember.read`."""
    files = []
    for member in members:
        if member.is_directory or member.path == SIGNATURE_FILE:
            continue
        hasher = hashlib.sha256()
        for chunk in member.read():
            hasher.update(chunk)
        mode = EXECUTABLE_MODE if member.is_executable else FILE_MODE
        files.append(
            TreeFile(path=member.path, mode=mode, size=member.size, sha256=hasher.hexdigest())
        )
    return tree_of(files)


def write_archive(members: Iterable[ArchiveMember]) -> bytes:
    """Return files as a `.tar.gz`, sorted, without times, owners or compression.

    Stored blocks, because compressors differ: zlib and zlib-ng make other bytes of one file.
    """
    out = io.BytesIO()
    for member in sorted(members, key=lambda one: one.path.encode()):
        info = tarfile.TarInfo(member.path)
        info.size = member.size
        info.mode = 0o755 if member.is_executable else 0o644
        out.write(_header(info))
        for chunk in member.read():
            out.write(chunk)
        out.write(bytes(-member.size % tarfile.BLOCKSIZE))
    out.write(bytes(2 * tarfile.BLOCKSIZE))
    archive = b"".join(_stored(out.getbuffer()))
    if len(archive) > ARCHIVE_MAX:
        raise ArchiveError("too-large", f"expected at most {ARCHIVE_MAX} bytes as one archive")
    return archive


def _header(info: tarfile.TarInfo) -> bytes:
    """Return what comes before a file: with its name in UTF-8 there, where it has room.

    The extended header of POSIX 2001 would be right for all names, but installers pass it over:
    `skills` 1.5.18 of npm then writes `Gro?e.md`, and cuts names after 100 bytes.
    """
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError:
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _stored(data: memoryview) -> Iterator[bytes]:
    """Yield a gzip stream of stored blocks (RFC 1951, RFC 1952)."""
    yield _GZIP_HEAD
    for start in range(0, len(data), BLOCK_MAX):
        block = data[start : start + BLOCK_MAX]
        is_last = start + BLOCK_MAX >= len(data)
        yield struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF)
        yield bytes(block)
    yield struct.pack("<LL", zlib.crc32(data), len(data) & 0xFFFFFFFF)
