"""What has arrived of a download: in memory, and in a file for the next run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from skillhouse.floor.lock import try_lock

KEPT_MIN = 256 * 1024
"""Bytes below which it is quicker to ask again than to keep a file."""
KEPT_SECONDS = 7 * 24 * 3600.0
KEPT_FILES = 16
_HEAD_MAX = 4_096
_SUFFIX = ".part"
ETAG_MAX = 512


class Partial:
    """The beginning of one download.

    Its file is one line of JSON and then the bytes. Whatever is wrong with the file, and whatever
    the disk refuses, only means that less is kept: whether the bytes are right, the digest says.
    """

    def __init__(self, *, file: FileIO | None = None, name: Path | None = None) -> None:
        self.etag = ""
        """The strong validator of the bytes; empty where there is none."""
        self.total = 0
        """Bytes of the whole; 0 while that is not known."""
        self.data = bytearray()
        self._file = file
        self._name = name
        self._is_written = False

    def begin(self, etag: str, total: int) -> None:
        """Drop what is here: another answer begins."""
        self.etag, self.total = etag, total
        self.data.clear()
        self._is_written = False

    def add(self, data: bytes) -> None:
        self.data += data
        if self._is_written:
            self._append(data)
        elif len(self.data) >= KEPT_MIN:
            self._is_written = True
            head = json.dumps({"etag": self.etag, "total": self.total}).encode() + b"\n"
            self._append(head + self.data, truncate=True)

    def load(self, most: int) -> None:
        """Take over what an earlier run kept, if it is no more than `most` bytes."""
        if self._file is None:
            return
        try:
            self._file.seek(0)
            head = json.loads(self._file.readline(_HEAD_MAX))
            etag, total = head["etag"], head["total"]
            data = self._file.read(most + 1)
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            return
        if isinstance(etag, str) and isinstance(total, int) and len(data) <= most:
            self.etag, self.total, self._is_written = etag[:ETAG_MAX], total, True
            self.data = bytearray(data)

    def drop(self) -> None:
        """Forget everything, and the file."""
        self.begin("", 0)
        self._forget_file()

    def _append(self, data: bytes | bytearray, *, truncate: bool = False) -> None:
        if self._file is None:
            return
        try:
            if truncate:
                self._file.seek(0)
                self._file.truncate()
            self._file.write(data)
        except OSError:
            # A full disk: the download goes on in memory, and nothing is kept.
            self._forget_file()

    def _forget_file(self) -> None:
        if self._name is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._name)
        self._file = None


@contextlib.contextmanager
def kept_partial(directory: Path | None, key: str, most: int) -> Iterator[Partial]:
    """Give the beginning of a download as an earlier run left it.

    Nothing is kept without a directory, where it cannot be used, or while another process
    downloads the same.

    Args:
        key: What is downloaded: an address, or a digest.
        most: Bytes of the whole at most.
    """
    if directory is None:
        yield Partial()
        return
    name = directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{_SUFFIX}"
    file = _opened(name)
    if file is None:
        yield Partial()
        return
    with file:
        partial = Partial(file=file, name=name)
        partial.load(most)
        try:
            yield partial
        finally:
            if os.fstat(file.fileno()).st_size == 0:
                partial.drop()


def _opened(name: Path) -> FileIO | None:
    """Return the file, locked; None where it cannot be had."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        name.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _prune(name.parent)
        # Unbuffered, so that what arrived is there after a kill.
        file = FileIO(os.open(name, flags, 0o600), "r+b")
    except OSError:
        return None
    if try_lock(file.fileno()):
        return file
    file.close()
    return None


def _prune(directory: Path) -> None:
    """Remove what is old, and the oldest of what is many."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    found.sort()
    oldest = time.time() - KEPT_SECONDS
    for number, (changed, path) in enumerate(found):
        if changed < oldest or number < len(found) - KEPT_FILES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
