"""Packages: a skill's directory as an archive, and the archives of what is and was installed.

The bytes of an archive depend on nothing but the skill's files, which are judged like those of a
stranger's archive. Archives are kept, so that a version comes back without the network, by the
digest of the tree and that of the signature, which is no part of the tree: the same files are
signed again when a certificate is renewed.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import os
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import (
    EXECUTABLE_MODE,
    SIGNATURE_FILE,
    Digest,
    PathError,
    SkillError,
    Tree,
    digest,
    open_beneath,
    read_tree,
    tree_of,
    write_atomically,
)
from skillhouse.floor.trees import FILE_MODE, TreeFile
from skillhouse.registry.facts import SkillFacts, read_facts
from skillhouse.skill import (
    ARCHIVE_MAX,
    FILE_MAX,
    ArchiveError,
    ArchiveMember,
    clash,
    package_path,
    read_archive,
)

_CHUNK = 65_536
BLOCK_MAX = 65_535
"""Bytes of a stored block (RFC 1951, 3.2.4)."""
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""No name, no time, and no system."""
PACKAGES_MAX = 500
"""Packages that are kept; those used longest ago go first."""
_SUFFIX = ".tar.gz"


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


class Package(Struct, frozen=True, kw_only=True):
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


class PackageStore:
    """The packages of one state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(
        self, members: Iterable[ArchiveMember], tree_digest: str, *, durable: bool = True
    ) -> None:
        """Keep the files of a version; what is here already is not written again.

        Args:
            durable: Whether to wait for the disk; else the caller does, for several.
        """
        members = tuple(members)
        file = self._file(tree_digest, _signature(members))
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with write_atomically(file, durable=durable) as out:
                out.write(write_archive(members))
        self._prune()

    def get(self, tree_digest: str, *, signature: str = "") -> tuple[ArchiveMember, ...] | None:
        """Return the files of a version, or None where they are not here or are others.

        Args:
            signature: SHA-256 of its `skill.sig`; empty for an unsigned one, or else any.
        """
        for file in self._files(tree_digest, signature):
            try:
                with open(file, "rb") as stored:
                    members = read_archive(stored.read(ARCHIVE_MAX + 1))
                if tree_digest_of(members) != tree_digest:
                    continue
                if signature and _signature(members) != signature:
                    continue
                # Not what a link leads to: a dry run has links to packages of others.
                os.utime(file, follow_symlinks=False)
            except (OSError, ArchiveError):
                continue
            return members
        return None

    def tree(self, tree_digest: str) -> Tree | None:
        """Return the tree with a digest as it was packed, or None where it is not here."""
        members = self.get(tree_digest)
        return None if members is None else member_tree(members)

    def _files(self, tree_digest: str, signature: str) -> Iterator[Path]:
        """Yield where the files of a version may be."""
        if signature:
            yield self._file(tree_digest, signature)
        # Packages of older versions have no signature in their names, and may be signed.
        plain = self._file(tree_digest)
        yield plain
        if not signature:
            name = glob.escape(plain.name.removesuffix(_SUFFIX))
            yield from sorted(self.directory.glob(f"{name}-*{_SUFFIX}"))

    def _file(self, tree_digest: str, signature: str = "") -> Path:
        # Both are checked wherever they are read.
        name = tree_digest.rpartition(":")[2]
        signed = f"-{signature}" if signature else ""
        return self.directory / f"{name}{signed}{_SUFFIX}"

    def _prune(self) -> None:
        found = [entry for entry in os.scandir(self.directory) if entry.name.endswith(_SUFFIX)]
        if len(found) <= PACKAGES_MAX:
            return
        found.sort(key=lambda entry: entry.stat().st_mtime)
        for entry in found[: len(found) - PACKAGES_MAX]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.path)


def _signature(members: Iterable[ArchiveMember]) -> str:
    """Return the SHA-256 of the signature among the files of a skill, empty without one."""
    for member in members:
        if member.path == SIGNATURE_FILE:
            return hashlib.sha256(b"".join(member.read())).hexdigest()
    return ""
