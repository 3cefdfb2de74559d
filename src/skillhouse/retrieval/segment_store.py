"""The postings of skills that a cache directory keeps, and brings up to date.

A root has two segments there: one of all its skills, and a small one of what changed since. A
document is found by a key of all that it was made of, so what is kept of another state, of another
project or for another agent is passed over, and takes no part in any score.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import sqlite3
import stat
import time
import unicodedata
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from skillhouse.floor import encode, make_private
from skillhouse.floor.lock import lock
from skillhouse.retrieval.documents import BODY_CHARS_MAX, Keyed, add_documents
from skillhouse.retrieval.segment import DamagedError, Segment, SegmentBuilder

READING = 1
"""Raise it when the same text gives other tokens than before: older files then fit no more."""
DIRECTORY = "words"
"""Where the files are, below the cache directory."""
ROOTS_KEPT = 256
"""Roots whose files are kept; the one written longest ago goes first."""

CHANGES_LEAST = 256
CHANGES_SHARE = 8
"""The small segment holds so many documents, or one for so many of the large one; with more, both
are written as one."""
OTHERS_LEAST = 1_000
OTHERS_SHARE = 2
"""So many documents of other states, projects and agents are kept for each wanted one."""

_LEFT_SECONDS = 3_600
"""A file that was begun so long ago has no writer any more."""
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)

Read = Callable[[Sequence[bytes]], Iterator[Keyed]]
"""Reads the documents of some keys."""


class WordFiles:
    """The files of one root, shared by all processes of a user."""

    def __init__(self, cache: Path, root: str) -> None:
        """Take the cache directory, which need not exist, and the root."""
        # Another SQLite or Python may split and stem otherwise.
        made_by = (
            root,
            READING,
            BODY_CHARS_MAX,
            sqlite3.sqlite_version,
            unicodedata.unidata_version,
        )
        name = hashlib.blake2b(encode(made_by), digest_size=16).hexdigest()
        self._directory = cache / DIRECTORY
        self._base = self._directory / f"{name}.base"
        self._changes = self._directory / f"{name}.changes"
        self._lock = self._directory / f"{name}.lock"

    def read(self) -> list[Segment]:
        """Return the segments that can be used: all, and then what changed, if it is of that."""
        base = _opened(self._base)
        changes = None if base is None else _opened(self._changes)
        if base is None or changes is None or changes.base != base.own:
            return [] if base is None else [base]
        return [base, changes]

    def remove(self) -> None:
        """Remove what is damaged."""
        for path in (self._changes, self._base):
            with contextlib.suppress(OSError):
                path.unlink()

    def update(self, wanted: Sequence[bytes], read: Read) -> None:
        """Write what of the wanted documents is missing; others that are kept mostly stay.

        Raises:
            OSError: it cannot be written; what is there holds as it was.
            SearchError: this Python's SQLite has no full-text module.
        """
        make_private(self._directory)
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            lock(handle)
            try:
                self._write_missing(wanted, read, self.read())
            except DamagedError:
                self._write_missing(wanted, read, [])
        finally:
            os.close(handle)

    def _write_missing(
        self, wanted: Sequence[bytes], read: Read, segments: Sequence[Segment]
    ) -> None:
        known = {key for segment in segments for key in segment.keys}
        missing = [key for key in wanted if key not in known]
        if not missing:
            # Another process wrote them meanwhile.
            return
        changes = len(missing) + sum(len(segment.keys) for segment in segments[1:])
        most = max(CHANGES_LEAST, len(segments[0].keys) // CHANGES_SHARE) if segments else 0
        is_small = changes <= most
        builder = SegmentBuilder()
        keep = frozenset(wanted)
        others = len(known - keep)
        keeps_others = is_small or others <= OTHERS_SHARE * max(len(keep), OTHERS_LEAST)
        for segment in segments[1:] if is_small else segments:
            builder.take(segment, lambda key: keeps_others or key in keep)
        add_documents(builder, read(missing))
        if is_small:
            self._replace(self._changes, builder, base=segments[0].own)
        else:
            self._replace(self._base, builder)
            self._tidy()

    def _replace(self, target: Path, builder: SegmentBuilder, base: bytes = bytes(16)) -> None:
        """Write a new file beside `target` and put it in its place, whole or not at all."""
        beside = target.with_name(f".{secrets.token_hex(8)}")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                builder.write(file, own=secrets.token_bytes(16), base=base)
            os.replace(beside, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    def _tidy(self) -> None:
        """Remove what other roots had too long ago, and what writers that died left."""
        now = time.time()
        found: list[tuple[float, Path]] = []
        for path in self._directory.iterdir():
            with contextlib.suppress(OSError):
                changed = path.lstat().st_mtime
                if path.suffix == ".base":
                    found.append((changed, path))
                elif path.name.startswith(".") and now - changed > _LEFT_SECONDS:
                    path.unlink()
        for _, path in sorted(found, reverse=True)[ROOTS_KEPT:]:
            # The lock goes last: another process may be about to take it.
            for ending in (".base", ".changes", ".lock"):
                with contextlib.suppress(OSError):
                    path.with_suffix(ending).unlink()


def _opened(path: Path) -> Segment | None:
    """Return the segment in a file of ours, or None when there is none that can be used."""
    try:
        handle = os.open(path, _READ)
    except OSError:
        return None
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != _own_user(info):
        os.close(handle)
        return None
    file = os.fdopen(handle, "rb")
    try:
        segment = Segment(file, info.st_size)
    except (DamagedError, OSError):
        file.close()
        return None
    weakref.finalize(segment, file.close)
    return segment


def _own_user(info: os.stat_result) -> int:
    return os.geteuid() if hasattr(os, "geteuid") else info.st_uid


def in_memory(documents: Sequence[Keyed] | Iterator[Keyed]) -> Segment:
    """Return a segment of documents that are not kept.

    Raises:
        SearchError: this Python's SQLite has no full-text module.
    """
    builder = SegmentBuilder()
    add_documents(builder, documents)
    file = io.BytesIO()
    builder.write(file)
    return Segment(file, file.getbuffer().nbytes)


def kept_segments(cache: Path, wanted: Mapping[str, Sequence[bytes]], read: Read) -> list[Segment]:
    """Return the segments of a cache that hold the wanted documents, brought up to date.

    What cannot be written is in none of them.

    Args:
        cache: The cache directory.
        wanted: The keys of documents, by their root.
        read: Reads those that are missing.

    Raises:
        SearchError: this Python's SQLite has no full-text module.
    """
    found: list[Segment] = []
    for root, keys in wanted.items():
        files = WordFiles(cache, root)
        segments = files.read()
        known = {key for segment in segments for key in segment.keys}
        if not known.issuperset(keys):
            # A full disk or a directory of another's costs the cache and never the search.
            with contextlib.suppress(OSError):
                files.update(keys, read)
            segments = files.read()
        found += segments
    return found


def forget(cache: Path, roots: Sequence[str]) -> None:
    """Remove what is kept of some roots, which was found to be damaged."""
    for root in roots:
        WordFiles(cache, root).remove()
