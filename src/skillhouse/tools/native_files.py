"""The files that a call of a client's own tool is about: those of a patch, and of a search."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

from skillhouse.permission import unwrapped

PATHS_MAX = 200
"""Files of one patch; a person cannot look at more."""
_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_MARKS = ("*** Begin Patch", "*** End Patch", "*** End of File")


def is_searched(file: str, root: str, patterns: tuple[str, ...]) -> bool:
    """Whether a search may look into a file: where a pattern may name it, or, without one, where no
    `.gitignore` of the top, by which clients go, certainly leaves it out."""
    relative = os.path.relpath(file, root)
    name = os.path.basename(file)
    if patterns:
        # What is read in several ways (braces, negations, sets) counts as naming it.
        return any(
            set(one) & set("{}![]")
            or fnmatch(name, one.rpartition("/")[2])
            or fnmatch(relative, one)
            for one in patterns
        )
    try:
        lines = Path(root, ".gitignore").read_text("utf-8", "replace").splitlines()
    except OSError:
        return True
    is_repository = os.path.exists(os.path.join(root, ".git"))
    plain = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not is_repository or any(line.startswith("!") for line in plain):
        return True
    return not any("/" not in line and fnmatch(name, line) for line in plain)


class PatchError(Exception):
    """A text is no such patch; the message says what was expected."""


def patched_paths(text: str) -> tuple[str, ...]:
    r"""Return every path that a patch adds, changes, removes or moves to, in its order.

    >>> patched_paths("*** Begin Patch\n*** Add File: a/b\n+text\n*** End Patch")
    ('a/b',)

    Raises:
        PatchError: it names no file, more than `PATHS_MAX`, or has a head that is not known.
    """
    found: dict[str, None] = {}
    for whole in text.split("\n"):
        # Codex passes over blanks before a head.
        line = whole.strip()
        head = next((one for one in _HEADS if line.startswith(one)), "")
        path = line.removeprefix(head).strip()
        if head and path:
            found[path] = None
        elif whole.startswith("***") and line not in _MARKS:
            raise PatchError(f"expected a head of a patch, got `{line[:80]}`")
    if not found or len(found) > PATHS_MAX:
        raise PatchError(f"expected a patch of 1 to {PATHS_MAX} files, got {len(found)}")
    return tuple(found)


def trees(argv: tuple[str, ...], directory: str) -> list[str]:
    """Return the real paths of the directories of which a command gives everything."""
    argv = unwrapped(argv) or argv
    name, words = os.path.basename(argv[0]), argv[1:]
    real = (os.path.realpath(os.path.join(directory, word)) for word in words)
    places = [path for path in real if os.path.isdir(path)]
    if name in ("diff", "cp"):
        return places
    is_recursive = any(
        word.startswith(("--rec", "--deref", "--dir"))
        or (word[:1] == "-" and word[1:2] != "-" and not {*"rRd"}.isdisjoint(word))
        for word in words
    )
    is_grep = name in ("grep", "egrep", "fgrep")
    return (places or [os.path.realpath(directory)]) if is_grep and is_recursive else []
