"""Archives by the digest of their bytes, in a directory that any file server can serve."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from skillhouse.floor import descriptor, make_private, sync_directory
from skillhouse.floor.crash_cleanup import is_left, owner_name
from skillhouse.floor.digests import file_digest
from skillhouse.registry import attestation_path, blob_path

UPLOAD = "upload-"
"""Begins the name of a directory of an upload, before its owner."""


class BlobDirectory:
    """`blobs/sha256/ab/HEX`, and uploads that are no blobs yet beside it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._uploads = directory / "uploads"
        make_private(self._uploads)
        for entry in list(os.scandir(self._uploads)):
            if is_left(entry.name, UPLOAD):
                shutil.rmtree(entry.path)

    def new_upload(self) -> Path:
        """Return a new private directory, on the file system of the blobs."""
        place = self._uploads / f"{UPLOAD}{owner_name()}-{secrets.token_hex(8)}"
        place.mkdir(mode=0o700)
        return place

    def end_upload(self, place: Path) -> None:
        """Remove the directory of an upload, whatever is in it."""
        shutil.rmtree(place)

    def path(self, digest: str) -> Path:
        """Return where an archive is, or would be; the digest is one that we made or checked."""
        return self._directory / blob_path(digest)

    def put_attestation(self, staging: Path, digest: str, data: bytes) -> None:
        """Keep a bundle under its digest, durably, by way of a directory of an upload."""
        beside = staging / "bundle.part"
        beside.write_bytes(data)
        self._move(beside, self._directory / attestation_path(digest), digest)

    def put(self, source: Path, digest: str) -> None:
        """Move a file of an upload, whose bytes have the digest, to its place, durably.

        INVARIANT: a name of a blob appears only when all of its bytes are on the disk.
        """
        self._move(source, self.path(digest), digest)

    def _move(self, source: Path, target: Path, digest: str) -> None:
        if _has(target, digest):
            return
        with descriptor(os.open(source, os.O_RDONLY)) as handle:
            os.fsync(handle)
        missing = [one for one in (target.parent, *target.parents) if not one.is_dir()]
        make_private(target.parent)
        # One that is there is damaged, or another upload put the same bytes there meanwhile.
        os.replace(source, target)
        for place in (target.parent, *(one.parent for one in missing)):
            sync_directory(place)


def _has(path: Path, digest: str) -> bool:
    """Whether a blob is there with the right bytes."""
    with suppress(FileNotFoundError):
        return file_digest(path) == digest
    return False
