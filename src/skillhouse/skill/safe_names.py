"""Names of files that another machine gave: each means the same file on every system, or none."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from skillhouse.floor import PathError, checked_parts
from skillhouse.skill.hidden import find_hidden

DEPTH_MAX = 16
"""Parts of a path (reference/registry.md section 3, rule 1; likewise those below)."""
PATH_MAX = 255
"""Bytes of a path."""
SEGMENT_MAX = 120
"""Bytes of one name."""

_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
)
_GIT = frozenset({".git", "git~1"})
_NOWHERE = Path("package")
_FORBIDDEN_TOPS = frozenset({".git", ".skill"})


def is_safe_name(part: str) -> bool:
    """Whether a name that another machine gave means the same file on every system.

    `.git` in any spelling means what git runs (CVE-2014-9390), at any depth.

    >>> [is_safe_name(name) for name in ("a.md", ".git", ".GIT", "GIT~1", "con.txt", "a.", "b ")]
    [True, False, False, False, False, False, False]
    """
    is_ascii = part.isascii()
    seen = part if is_ascii else "".join(c for c in part if unicodedata.category(c) != "Cf")
    return (
        part.isprintable()
        and ":" not in part
        and part == part.rstrip(". ")
        and seen.casefold() not in _GIT
        and part.split(".", maxsplit=1)[0].rstrip().lower() not in _RESERVED
        and len(part.encode()) <= SEGMENT_MAX
        # Printable ASCII is in NFC, and hides nothing.
        and (is_ascii or (unicodedata.normalize("NFC", part) == part and find_hidden(part) is None))
    )


def package_path(relative: str) -> str:
    """Return the path of a file of a package in its one spelling.

    Raises:
        PathError: it is refused; `code` says why.

    >>> package_path("./a//b")
    'a/b'
    """
    nowhere = _NOWHERE
    try:
        parts = checked_parts(relative, nowhere)
        size = len(relative.encode())
    except UnicodeEncodeError as error:
        raise PathError("path-encoding", relative, nowhere) from error
    if not parts or parts[0].lower() in _FORBIDDEN_TOPS or not all(map(is_safe_name, parts)):
        # A long name is refused by `is_safe_name`, too.
        raise PathError("path-reserved", relative, nowhere)
    if size > PATH_MAX or len(parts) > DEPTH_MAX:
        raise PathError("path-long", relative, nowhere)
    return "/".join(parts)


def clash(paths: Iterable[str]) -> bool:
    """Whether a file system may take two paths for one, or one is a directory of another.

    >>> clash(["a/B", "A/b"]), clash(["a", "a/b"]), clash(["a/b", "a/c"])
    (True, True, False)
    """
    folded = [unicodedata.normalize("NFKC", path).casefold() for path in paths]
    places = {
        "/".join(path.split("/")[:count])
        for path in folded
        for count in range(1, path.count("/") + 1)
    }
    return len(set(folded)) < len(folded) or not places.isdisjoint(folded)
