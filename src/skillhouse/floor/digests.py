"""Digests of bytes and of directory trees."""

from __future__ import annotations

import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NewType

from skillhouse.floor.errors import TreeError
from skillhouse.floor.paths import is_utf8
from skillhouse.floor.wire import canonical_json

Digest = NewType("Digest", str)
TreeDigest = NewType("TreeDigest", str)

TREE_MAX_FILES = 1_000
"""Files of one skill (DESIGN, bounds: a package has at most 1,000 files)."""
TREE_MAX_BYTES = 50_000_000
"""Bytes of one skill (DESIGN, bounds: a package has at most 50 MB)."""
TREE_MAX_DEPTH = 16
"""Directories below each other (reference/registry.md section 3, rule 1)."""

_CHUNK = 1 << 20
_LEFT_OUT = {("skill.sig", stat.S_IFREG), (".skill", stat.S_IFDIR)}
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
# Opening a FIFO that took the file's place must not hang.
_FLAGS |= getattr(os, "O_NONBLOCK", 0)


def digest(data: bytes) -> Digest:
    """Return the SHA-256 of `data` as `sha256:` and 64 lowercase hex digits.

    The form is SEP-2640's ("Integrity and verification"), so two digests are
    equal exactly when their texts are.

    >>> digest(b"")[:15]
    'sha256:e3b0c442'
    """
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def tree_digest(directory: Path) -> TreeDigest:
    """Return the `skilltree1:` digest of the files below `directory`.

    It is the SHA-256 of the RFC 8785 JSON of `[{mode, path, sha256, size}]`, sorted by the
    UTF-8 bytes of the NFC path; mode is 100755 where the owner may execute, else 100644.
    Directories do not count, and only the file `skill.sig` and the directory `.skill` of the top
    are left out (vectors/tree_digest.jsonl).

    Raises:
        TreeError: a link or special file, a name that is not UTF-8, two names that are equal
            in NFC, or more than the bounds above; `code` says which.
    """
    entries: dict[str, dict[str, str | int]] = {}
    total = 0
    try:
        for path, relative in _files(directory, "", 0):
            name = unicodedata.normalize("NFC", relative)
            if name in entries:
                raise TreeError("tree-name-clash", path, f"two files are named {name!r}")
            mode, size, content = _read(path, TREE_MAX_BYTES - total)
            total += size
            if len(entries) >= TREE_MAX_FILES or total > TREE_MAX_BYTES:
                raise TreeError(
                    "tree-too-large",
                    directory,
                    f"more than {TREE_MAX_FILES} files or {TREE_MAX_BYTES} bytes",
                )
            entries[name] = {"mode": mode, "path": name, "sha256": content, "size": size}
    except OSError as error:
        place = Path(os.fsdecode(error.filename)) if error.filename else directory
        raise TreeError("unreadable", place, error.strerror or "unreadable") from error
    ordered = sorted(entries.values(), key=lambda entry: str(entry["path"]).encode())
    return TreeDigest("skilltree1:" + hashlib.sha256(canonical_json(ordered)).hexdigest())


def _files(directory: Path, prefix: str, depth: int) -> Iterator[tuple[Path, str]]:
    """Yield (path, relative path) of each file; what is not one is refused."""
    if depth > TREE_MAX_DEPTH:
        raise TreeError("tree-too-deep", directory, f"deeper than {TREE_MAX_DEPTH} directories")
    with os.scandir(directory) as found:
        for item in found:
            relative = prefix + item.name
            path = Path(item.path)
            info = item.stat(follow_symlinks=False)
            # By name and kind: files below a directory `skill.sig` are not hidden from the digest.
            if (relative, stat.S_IFMT(info.st_mode)) in _LEFT_OUT:
                continue
            if stat.S_ISDIR(info.st_mode):
                yield from _files(path, relative + "/", depth + 1)
            elif stat.S_ISREG(info.st_mode):
                if not is_utf8(relative):
                    raise TreeError("tree-name-encoding", path, "a name that is not UTF-8")
                yield path, relative
            else:
                kind = "a symbolic link" if item.is_symlink() else "a special file"
                raise TreeError("tree-special", path, f"{kind} in a skill")


def _read(path: Path, left: int) -> tuple[str, int, str]:
    """Return (mode, size, SHA-256) of a file, of which at most one byte over `left` is read."""
    hasher = hashlib.sha256()
    size = 0
    handle = os.open(path, _FLAGS)
    try:
        mode = os.fstat(handle).st_mode
        while chunk := os.read(handle, min(_CHUNK, left + 1 - size)):
            size += len(chunk)
            hasher.update(chunk)
    finally:
        os.close(handle)
    return "100755" if mode & stat.S_IXUSR else "100644", size, hasher.hexdigest()
