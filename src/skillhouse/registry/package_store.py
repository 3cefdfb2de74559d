"""Packages of what is and was installed, so that a version comes back without the network.

They are kept by the digest of the tree and that of the signature, which is no part of the tree: the
same files are signed again when a certificate is renewed."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from skillhouse.floor import SIGNATURE_FILE, Tree, write_atomically
from skillhouse.registry.package import member_tree, tree_digest_of, write_archive
from skillhouse.skill import ARCHIVE_MAX, ArchiveError, ArchiveMember, read_archive

PACKAGES_MAX = 500
"""Packages that are kept; those used longest ago go first."""
_SUFFIX = ".tar.gz"


class PackageStore:
    """The packages of one state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, members: Iterable[ArchiveMember], tree_digest: str) -> None:
        """Keep the files of a version; what is here already is not written again."""
        members = tuple(members)
        file = self._file(tree_digest, _signature(members))
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with write_atomically(file, durable=True) as out:
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
                os.utime(file)
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
            yield from sorted(self._directory.glob(f"{name}-*{_SUFFIX}"))

    def _file(self, tree_digest: str, signature: str = "") -> Path:
        # Both are checked wherever they are read.
        name = tree_digest.rpartition(":")[2]
        signed = f"-{signature}" if signature else ""
        return self._directory / f"{name}{signed}{_SUFFIX}"

    def _prune(self) -> None:
        found = [entry for entry in os.scandir(self._directory) if entry.name.endswith(_SUFFIX)]
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
