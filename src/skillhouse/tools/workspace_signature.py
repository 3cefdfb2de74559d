"""Signs the files of a workspace that a program could load, by stat, without reading them."""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ENTRIES_MAX = 100_000
"""Files of a workspace that are signed (issue "approved bytes run")."""
SECONDS_MAX = 1.0
"""Seconds that signing may take (the same issue)."""
TICK_NS = 20_000_000
"""Age below which a change may have the same times as the next one: two ticks of a kernel that
counts 100 a second. Git has the same problem ("racy git")."""

INERT_SUFFIXES = frozenset(
    ".md .markdown .rst .adoc .txt .log .csv .tsv .pdf .doc .docx .odt .png .jpg .jpeg .gif .webp "
    ".svg .ico .bmp .tiff .mp3 .mp4 .wav .ogg .webm .mov .woff .woff2 .ttf .otf .eot".split()
)
"""Documents and media: no interpreter, build tool or test runner executes them by itself. A script
with such a name is still bound when the command names it."""
SKIPPED_DIRECTORIES = frozenset({".git"})
"""Programs that hold no code to load here: its hooks and configuration are read-only to every
call, and an index that `git add` writes changes no command."""

_Entry = tuple[str, int, int, int, int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSignature:
    """What the files of a workspace were at one moment."""

    digest: str
    """SHA-256 in hex; empty when the workspace could not be signed."""
    unsigned: str = ""
    """Why it could not."""


def sign_workspace(
    root: str,
    *,
    now_ns: Callable[[], int] = time.time_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> WorkspaceSignature:
    """Return the signature of every file below a real path that is not inert.

    Two signatures are equal exactly when the same names have the same type, mode, size, times,
    inode and link target. A file that changed within the last tick is waited for, so that a second
    change in that tick has other times.
    """
    for _ in range(2):
        try:
            listing, newest_ns = _listing(root)
        except _TooMuchError as error:
            return WorkspaceSignature(digest="", unsigned=str(error))
        except OSError as error:
            reason = f"the workspace cannot be read: {(error.strerror or '').lower()}"
            return WorkspaceSignature(digest="", unsigned=reason)
        if abs(now_ns() - newest_ns) > TICK_NS:
            break
        sleep(TICK_NS / 1e9)
    return WorkspaceSignature(digest=hashlib.sha256(marshal.dumps(listing, 2)).hexdigest())


def changed_since(root: str, since_ns: int, *, limit: int) -> tuple[str, ...]:
    """Return names of files below `root`, relative to it, whose inode changed after a moment.

    They are shown to a person beside a question that is asked again, so what cannot be read is
    left out.
    """
    found = []
    deadline = time.monotonic() + SECONDS_MAX
    for directory, entries in _directories(root, deadline):
        for name, *numbers, _ in entries:
            if numbers[3] > since_ns:
                found.append(os.path.relpath(os.path.join(directory, name), root))
                if len(found) == limit:
                    return tuple(found)
    return tuple(found)


class _TooMuchError(Exception):
    """A bound was reached."""


def _listing(root: str) -> tuple[list[tuple[str, list[_Entry]]], int]:
    found = []
    count = newest_ns = 0
    for directory, entries in _directories(root, time.monotonic() + SECONDS_MAX):
        count += len(entries)
        if count > ENTRIES_MAX:
            raise _TooMuchError(f"the workspace has more than {ENTRIES_MAX:,} files")
        newest_ns = max(newest_ns, max((entry[4] for entry in entries), default=0))
        found.append((directory, entries))
    return found, newest_ns


def _directories(root: str, deadline: float) -> Iterator[tuple[str, list[_Entry]]]:
    """Yield directories in a fixed order, each with its files in the order of their names."""
    waiting = [root]
    while waiting:
        if time.monotonic() > deadline:
            raise _TooMuchError(f"it takes more than {SECONDS_MAX:.0f} s to look at the workspace")
        directory = waiting.pop()
        entries: list[_Entry] = []
        below = []
        with os.scandir(directory) as scanned:
            for entry in scanned:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_DIRECTORIES:
                        below.append(entry.path)
                elif not _is_inert(entry.name):
                    entries.append(_entry(entry))
        entries.sort()
        below.sort(reverse=True)
        if entries:
            yield directory, entries
        waiting += below


def _entry(entry: os.DirEntry[str]) -> _Entry:
    info = entry.stat(follow_symlinks=False)
    target = os.readlink(entry.path) if stat.S_ISLNK(info.st_mode) else ""
    return (
        entry.name,
        info.st_mode,
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_ino,
        target,
    )


def _is_inert(name: str) -> bool:
    _, dot, suffix = name.rpartition(".")
    return bool(dot) and f".{suffix.casefold()}" in INERT_SUFFIXES
