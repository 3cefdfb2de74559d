"""Digests of bytes and of directory trees."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NewType, TypeVar

import msgspec

from skillhouse.floor.errors import DecodeError, TreeError
from skillhouse.floor.paths import descriptor, is_utf8

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
    """Return the SHA-256 of `data` as `sha256:` and 64 lowercase hex digits (SEP-2640).

    >>> digest(b"")[:15]
    'sha256:e3b0c442'
    """
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def tree_digest(directory: Path) -> TreeDigest:
    """Return the `skilltree1:` digest of the files below `directory`.

    It is the SHA-256 of the RFC 8785 JSON of `[{mode, path, sha256, size}]`, sorted by the
    UTF-8 bytes of the NFC path; mode is 100755 where the owner may execute, else 100644.
    Directories do not count, and only the file `skill.sig` and the directory `.skill` of the top
    are left out (vectors/tree_digest.jsonl). The `code` of a `TreeError` says what is no tree.
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
    with os.scandir(directory) as entries:
        for item in entries:
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
    with descriptor(os.open(path, _FLAGS)) as handle:
        mode = os.fstat(handle).st_mode
        while chunk := os.read(handle, min(_CHUNK, left + 1 - size)):
            size += len(chunk)
            hasher.update(chunk)
    return "100755" if mode & stat.S_IXUSR else "100644", size, hasher.hexdigest()


T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return `value` as MessagePack; dataclasses become maps."""
    return msgspec.msgpack.encode(value)


def decode(data: bytes, shape: type[T]) -> T:
    """Return the MessagePack `data` as `shape`; `DecodeError` if it is cut or of another shape."""
    try:
        return msgspec.msgpack.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"unreadable record: {error}") from error


def shaped(value: object, shape: type[T]) -> T:
    """Return plain `value` (from TOML or JSON) as `shape`; keys that it has not are passed over.

    A `DecodeError` says where a value has another type.
    """
    try:
        return msgspec.convert(value, type=shape)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)[:1].lower() + str(error)[1:]) from error


def canonical_json(value: Any) -> bytes:
    """Return `value` (texts, integers, lists, maps with text keys) as RFC 8785 JSON.

    Numbers that are not integers are refused, so that no rounding rule is needed.

    >>> canonical_json({"b": 1, "a": "é"}).decode()
    '{"a":"é","b":1}'
    """
    _refuse_floats(value)
    # RFC 8785 section 3.2.3 sorts keys by UTF-16 code units; ours are ASCII by construction.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode("utf-8")


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError("canonical JSON takes no floating point numbers")
    if isinstance(value, dict):
        for key, item in value.items():
            if not key.isascii():
                raise TypeError(f"canonical JSON takes ASCII keys only, got {key!r}")
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)
