"""The hashes that other installers write into their locks, of the same files.

They are compared for what a person wants to know: whether a source still has what was locked. A
hash of a lock proves nothing, because whoever writes the lock writes the hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

from skillhouse.registry.other_locks import OtherEntry
from skillhouse.skill import SKILL_FILE, ArchiveMember

Comparison = Literal["same", "different", "unknown"]

# The order in which the root collation of CLDR has the characters that are no letters.
_BEFORE_DIGITS = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"
_WEIGHTS = {sign: number for number, sign in enumerate(_BEFORE_DIGITS + "0123456789")}
_LETTERS = len(_WEIGHTS)
_SKIPPED = frozenset({".git", "node_modules"})
_PLAIN, _EXECUTABLE, _TREE = "100644", "100755", "40000"


def compare_hash(entry: OtherEntry, members: Sequence[ArchiveMember]) -> Comparison:
    """Return whether files are those of which the lock has the hash."""
    files = {
        one.path: (one.is_executable, b"".join(one.read()))
        for one in members
        if not one.is_directory
    }
    match entry.hash_kind:
        case "folder":
            found = folder_hash({path: content for path, (_, content) in files.items()})
        case "git-tree":
            found = git_tree_hash(files)
        case _:
            return "unknown"
    if found == entry.hash:
        return "same"
    # `skills` hashes the SKILL.md alone where it got a skill at the top of a repository from a
    # store of its own, and one cannot see which of both it did.
    is_whole = entry.inside != "" and found
    return "different" if is_whole or set(files) == {SKILL_FILE} else "unknown"


def folder_hash(files: Mapping[str, bytes]) -> str:
    """Return the `computedHash` of files as `skills` 1.5.18 makes it; empty if that is unknown.

    It sorts paths as JavaScript's `localeCompare` does, which we know for ASCII only.

    >>> folder_hash({"SKILL.md": b""})[:8], folder_hash({"é": b""})
    ('0e95f5a3', '')
    """
    kept = [path for path in files if not _SKIPPED.intersection(path.split("/")[:-1])]
    if not all(path.isascii() and path.isprintable() for path in kept):
        return ""
    whole = hashlib.sha256()
    for path in sorted(kept, key=_collation_key):
        whole.update(path.encode("ascii"))
        whole.update(files[path])
    return whole.hexdigest()


def _collation_key(text: str) -> tuple[list[int], list[bool]]:
    """Return the key of a path: all characters without their case, then the case of each."""
    weights = [
        _WEIGHTS[sign] if sign in _WEIGHTS else _LETTERS + ord(sign.lower()) for sign in text
    ]
    return weights, [sign.isupper() for sign in text]


def git_tree_hash(files: Mapping[str, tuple[bool, bytes]]) -> str:
    """Return the id that Git gives a directory of these files: whether each can be run, its bytes.

    >>> git_tree_hash({})
    '4b825dc642cb6eb9a060e54bf8d69288fbee4904'
    """
    entries: dict[str, tuple[str, str]] = {}
    below: dict[str, dict[str, tuple[bool, bytes]]] = {}
    for path, (is_executable, content) in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = (is_executable, content)
        else:
            mode = _EXECUTABLE if is_executable else _PLAIN
            entries[name] = (mode, _object("blob", content))
    entries |= {name: (_TREE, git_tree_hash(inner)) for name, inner in below.items()}

    def place(name: str) -> bytes:
        return name.encode() + (b"/" if entries[name][0] == _TREE else b"")

    lines = (
        f"{entries[name][0]} {name}\0".encode() + bytes.fromhex(entries[name][1])
        for name in sorted(entries, key=place)
    )
    return _object("tree", b"".join(lines))


def _object(kind: str, content: bytes) -> str:
    # Git's own ids; nothing is trusted because of one.
    data = f"{kind} {len(content)}\0".encode() + content
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
