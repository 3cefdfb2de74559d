"""Copies, digests and compares the directories of skills: regular files only, within bounds."""

from __future__ import annotations

import difflib
import itertools
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from skillhouse.clients.export_state import ExportError
from skillhouse.floor import (
    PathError,
    TreeError,
    descriptor,
    digest,
    is_utf8,
    persons_leftovers,
    read_beneath,
    read_tree,
    tree_digest,
)
from skillhouse.floor.trees import TREE_MAX_BYTES, TREE_MAX_DEPTH, TREE_MAX_FILES

DIRECTORIES_MAX = TREE_MAX_FILES
"""Directories of one skill."""

LEFT_OUT = frozenset({"skill.sig", ".skill"})
"""Not copied from the top directory: a package's records, which the tree digest skips."""

_CHUNK = 1 << 20
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ_DIRECTORY = _READ | getattr(os, "O_DIRECTORY", 0)
# Opening a FIFO that took a file's place must not hang.
_READ_FILE = _READ | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


def copy_tree(source: Path, into: int) -> None:
    """Copy the files of a directory into the empty directory with the descriptor `into`.

    Everything is opened beneath descriptors without following links. Files get mode 0644, or
    0755 where the owner may execute: scripts of a skill are run as they are. Nothing else of a
    file's mode, owner or time is kept. The code of an `ExportError` is that of `TreeError`.
    """
    try:
        copier = _Copier(source=source, left=frozenset(read_tree(source).left))
        with descriptor(os.open(source, _READ_DIRECTORY)) as handle:
            copier.directory(handle, into, "", 0)
    except TreeError as error:
        message = str(error).removesuffix(f": `{error.path}`")
        raise ExportError(error.code, error.path, message) from None
    except OSError as error:
        message = (error.strerror or str(error)).lower()
        raise ExportError("unreadable", source, f"cannot be copied: {message}") from error


class _Copier(Struct, kw_only=True):
    source: Path
    left: frozenset[str]
    """What programs left there, which no other client gets."""
    files: int = 0
    directories: int = 0
    bytes: int = 0

    def directory(self, handle: int, into: int, prefix: str, depth: int) -> None:
        if depth > TREE_MAX_DEPTH:
            raise self._error("tree-too-deep", prefix, f"deeper than {TREE_MAX_DEPTH} directories")
        for name in self._names(handle, prefix):
            if (not depth and name in LEFT_OUT) or f"{prefix}{name}" in self.left:
                continue
            kind = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
            if not is_utf8(name):
                raise self._error("tree-name-encoding", prefix, "a name that is not UTF-8")
            if stat.S_ISDIR(kind):
                self._below(handle, into, name, f"{prefix}{name}/", depth)
            elif stat.S_ISREG(kind):
                self._file(handle, into, name, prefix)
            else:
                what = "a symbolic link" if stat.S_ISLNK(kind) else "a special file"
                raise self._error("tree-special", f"{prefix}{name}", f"{what} in a skill")
        os.fsync(into)

    def _names(self, handle: int, prefix: str) -> list[str]:
        names: list[str] = []
        with os.scandir(handle) as entries:
            for item in entries:
                names.append(item.name)
                if len(names) > TREE_MAX_FILES + DIRECTORIES_MAX:
                    raise self._too_large(prefix)
        return sorted(names)

    def _below(self, handle: int, into: int, name: str, prefix: str, depth: int) -> None:
        self.directories += 1
        if self.directories > DIRECTORIES_MAX:
            raise self._too_large(prefix)
        with descriptor(os.open(name, _READ_DIRECTORY, dir_fd=handle)) as source:
            os.mkdir(name, 0o755, dir_fd=into)
            with descriptor(os.open(name, _READ_DIRECTORY, dir_fd=into)) as target:
                self.directory(source, target, prefix, depth + 1)

    def _file(self, handle: int, into: int, name: str, prefix: str) -> None:
        self.files += 1
        if self.files > TREE_MAX_FILES:
            raise self._too_large(prefix)
        with descriptor(os.open(name, _READ_FILE, dir_fd=handle)) as source:
            mode = os.fstat(source).st_mode
            if not stat.S_ISREG(mode):
                raise self._error("tree-special", f"{prefix}{name}", "a special file in a skill")
            target = os.open(name, _CREATE, 0o600, dir_fd=into)
            with os.fdopen(target, "wb") as file:
                while chunk := os.read(source, _CHUNK):
                    self.bytes += len(chunk)
                    if self.bytes > TREE_MAX_BYTES:
                        raise self._too_large(prefix)
                    file.write(chunk)
                file.flush()
                os.fchmod(file.fileno(), 0o755 if mode & stat.S_IXUSR else 0o644)
                os.fsync(file.fileno())

    def _too_large(self, prefix: str) -> ExportError:
        message = f"more than {TREE_MAX_FILES} files or {TREE_MAX_BYTES} bytes"
        return self._error("tree-too-large", prefix, message)

    def _error(self, code: str, relative: str, message: str) -> ExportError:
        return ExportError(code, self.source / relative, message)


def source_digest(directory: Path) -> str:
    """Return the digest of a copy of a directory; the code of an `ExportError` is `TreeError`'s."""
    try:
        return tree_digest(directory)
    except TreeError as error:
        message = str(error).removesuffix(f": `{error.path}`")
        raise ExportError(error.code, error.path, message) from None


def found_digest(target: Path) -> str:
    """Return the digest of a target's content; empty when skillhouse cannot have written it."""
    try:
        if target.is_symlink():
            return link_digest(os.readlink(target))
        if any(os.path.lexists(target / name) for name in LEFT_OUT):
            # INVARIANT: content that the digest skips never counts as ours and is never removed.
            return ""
        found = read_tree(target)
        # Likewise what an editor left of a person's text; a cache goes with the copy.
        return "" if any(persons_leftovers(found.left)) else found.digest
    except (TreeError, OSError):
        return ""


def link_digest(leads_to: str) -> str:
    return f"link:{leads_to}"


TEXT_MAX = 256 * 1024
"""Bytes of the largest file that is compared line by line."""
LINES_MAX = 2_000
"""Lines of one difference."""


def difference(target: Path, source: Path) -> list[str]:
    """Return a unified diff, as untrusted as the files, from the target to the skill at `source`.

    Links are not followed. Links, binary and large files are named without their content.
    """
    if target.is_symlink():
        return [f"there: a link to {os.readlink(target)}"]
    if not target.is_dir():
        return ["there: no directory"]
    old, new = dict(_files(target)), dict(_files(source))
    lines: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        lines += _of_file(name, target if name in old else None, source if name in new else None)
        if old.get(name, new.get(name)) != new.get(name, old.get(name)):
            lines.append(f"mode of {name} differs")
        if len(lines) > LINES_MAX:
            return [*lines[:LINES_MAX], f"… more than {LINES_MAX} lines"]
    return lines


def _of_file(name: str, target: Path | None, source: Path | None) -> list[str]:
    old, new = _text(target, name), _text(source, name)
    if isinstance(old, str) and isinstance(new, str):
        labels = (
            f"there/{name}" if target else "/dev/null",
            f"skill/{name}" if source else "/dev/null",
        )
        before, after = old.splitlines(), new.splitlines()
        return list(difflib.unified_diff(before, after, *labels, lineterm=""))
    return [] if old == new else [f"{name} differs, and is not text of at most {TEXT_MAX} bytes"]


def _text(base: Path | None, name: str) -> str | bytes:
    """Return a file's text, or bytes when it is not text."""
    if base is None:
        return ""
    try:
        data = read_beneath(base, name, max_bytes=TREE_MAX_BYTES)
        return digest(data).encode() if len(data) > TEXT_MAX else data.decode()
    except UnicodeDecodeError:
        return data
    except (PathError, OSError):
        return b"not readable"


def _files(directory: Path, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield (relative path, whether the owner may execute it) of each file, up to the bound."""
    try:
        with os.scandir(directory) as entries:
            items = sorted(
                itertools.islice(entries, TREE_MAX_FILES + 1), key=lambda item: item.name
            )
    except OSError:
        return
    for item in sorted(items, key=lambda item: item.name):
        if not is_utf8(item.name):
            continue
        mode = item.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and depth < TREE_MAX_DEPTH:
            yield from _files(Path(item.path), f"{prefix}{item.name}/", depth + 1)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield prefix + item.name, bool(mode & stat.S_IXUSR)


def remove_empty(directories: Collection[str]) -> tuple[str, ...]:
    """Remove empty directories, innermost first; return those that remain."""
    left = []
    for directory in reversed(tuple(directories)):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(directory)
    return tuple(reversed(left))
