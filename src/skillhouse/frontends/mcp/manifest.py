"""The files of a skill with their digests, as a host verifies them (SEP-2640, "Resources")."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import Digest, PathError, digest, is_utf8, read_beneath
from skillhouse.skill import DEFAULT_PROFILE

FILES_MAX = 512
"""Files of a skill, SKILL.md included (SEP-2640, "Limits")."""
BYTES_MAX = 16 * 1024 * 1024
"""Bytes of all files of a skill (SEP-2640, "Limits")."""
DEPTH_MAX = 16
"""Nesting of directories (as for a tree digest)."""
ENTRIES_MAX = 10_000
"""Directory entries examined, served or not."""
SETTLED_SECONDS = 2.0
"""Age from which a file's times show every change; before, one tick may hold two."""


class NotServedError(Exception):
    """A skill cannot be served; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """One file, at the time it was hashed."""

    relative: str
    """POSIX path below the skill's directory."""
    digest: Digest
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    base: Path
    """The real directory."""
    files: tuple[ServedFile, ...]
    """Sorted by path."""
    directories: frozenset[str]
    """Relative paths of the directories; empty text for the skill's own."""


Stamp = tuple[int, int, int, int, int]


class Manifests:
    """Makes manifests, and hashes a file again only when it may have changed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known: dict[str, tuple[Stamp, ServedFile]] = {}

    def of(self, directory: Path, root: Path) -> Manifest:
        """Return the manifest of the skill in `directory`, which is below `root`.

        Links, special files, hidden names and unprintable names are excluded.

        Raises:
            NotServedError: it is too large, leaves its root, or changes while it is read.
        """
        base = directory.resolve()
        if not base.is_relative_to(root.resolve()):
            raise NotServedError("its directory leads out of its root")
        directories = {""}
        files: list[ServedFile] = []
        total = 0
        try:
            for relative, stamp in _walk(base, directories):
                total += stamp[1]
                if len(files) >= FILES_MAX or total > BYTES_MAX:
                    raise NotServedError(f"more than {FILES_MAX} files or {BYTES_MAX} bytes")
                files.append(self._hashed(base, relative, stamp))
        except (OSError, PathError) as error:
            raise NotServedError(f"a file cannot be read: {error}") from error
        return Manifest(
            base=base,
            files=tuple(sorted(files, key=lambda file: file.relative.encode())),
            directories=frozenset(directories),
        )

    def _hashed(self, base: Path, relative: str, stamp: Stamp) -> ServedFile:
        key = f"{base}/{relative}"
        known = self._known.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        data = read_beneath(base, relative, max_bytes=BYTES_MAX)
        if len(data) != stamp[1]:
            raise NotServedError(f"`{relative}` changed while it was read")
        file = ServedFile(relative=relative, digest=digest(data), size=len(data))
        if self._clock() - max(stamp[2], stamp[3]) / 1e9 > SETTLED_SECONDS:
            self._known[key] = (stamp, file)
        else:
            self._known.pop(key, None)
        return file


def _walk(base: Path, directories: set[str]) -> Iterator[tuple[str, Stamp]]:
    """Yield each file with its stamp; add to `directories`."""
    pending = [("", 0)]
    seen = 0
    while pending:
        prefix, depth = pending.pop()
        with os.scandir(base / prefix if prefix else base) as entries:
            for entry in entries:
                seen += 1
                if seen > ENTRIES_MAX:
                    raise NotServedError(f"more than {ENTRIES_MAX} entries")
                relative = prefix + entry.name
                if not _is_served(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name in DEFAULT_PROFILE.skipped_directories:
                        continue
                    if depth >= DEPTH_MAX:
                        raise NotServedError(f"deeper than {DEPTH_MAX} directories")
                    directories.add(relative)
                    pending.append((f"{relative}/", depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    times = (info.st_mtime_ns, info.st_ctime_ns)
                    yield relative, (info.st_ino, info.st_size, *times, info.st_dev)


def _is_served(name: str) -> bool:
    return not name.startswith(".") and name.isprintable() and is_utf8(name)


def short_hash(text: str) -> str:
    """Return eight hex digits that distinguish texts in addresses."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
