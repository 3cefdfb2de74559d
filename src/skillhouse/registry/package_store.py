"""Packages of what is and was installed, by the digest of their trees, so that a version comes back
without the network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from skillhouse.floor import write_atomically
from skillhouse.registry.package import tree_digest_of, write_archive
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
        file = self._file(tree_digest)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with write_atomically(file, durable=True) as out:
                out.write(write_archive(members))
        self._prune()

    def get(self, tree_digest: str) -> tuple[ArchiveMember, ...] | None:
        """Return the files of a version, or None where they are not here or are others."""
        file = self._file(tree_digest)
        try:
            with open(file, "rb") as stored:
                members = read_archive(stored.read(ARCHIVE_MAX + 1))
            if tree_digest_of(members) != tree_digest:
                return None
            os.utime(file)
        except (OSError, ArchiveError):
            return None
        return members

    def _file(self, tree_digest: str) -> Path:
        # The text after the colon is checked wherever a digest is read.
        return self._directory / f"{tree_digest.rpartition(':')[2]}{_SUFFIX}"

    def _prune(self) -> None:
        found = [entry for entry in os.scandir(self._directory) if entry.name.endswith(_SUFFIX)]
        if len(found) <= PACKAGES_MAX:
            return
        found.sort(key=lambda entry: entry.stat().st_mtime)
        for entry in found[: len(found) - PACKAGES_MAX]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.path)
