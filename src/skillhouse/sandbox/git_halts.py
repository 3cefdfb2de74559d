"""Reads where a halted merge, rebase or row of picks began, and what git has left to do.

The files are git's own (`sequencer.c`, `builtin/rebase.c`), in a directory that commands write, so
they may be anything: each is small and regular, or nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import PathError, open_beneath

HALTING = frozenset({"rebase", "merge", "cherry-pick", "revert"})
RESUMING = frozenset({"--abort", "--quit", "--skip", "--continue"})
LEFT_MAX = 50
"""Commits of a list of what is left that are looked at."""
BYTES_MAX = 65_536

_STATES: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "rebase": (("rebase-merge", "rebase-apply"), "orig-head", "git-rebase-todo"),
    "": (("sequencer",), "head", "todo"),
}
"""Where git keeps such a state, where it began, and what is left."""
_PICKS = frozenset("pick p reword r edit e squash s fixup f revert".split())
"""Commands of such a list that apply a commit (git-rebase(1), "Interactive mode")."""
_PAUSES = frozenset("drop d noop break b".split())


class Halt(Struct, frozen=True, kw_only=True):
    """What a word that resumes compares the work tree with, and which commits it applies."""

    trees: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


def halted(own: Path, word: str, options: frozenset[str]) -> Halt | None:
    """Return what a word of `HALTING` with one of `RESUMING` does; None where that is not known.

    Args:
        own: The git directory of the work tree.
        word: The subcommand.
        options: Its options.
    """
    if "--quit" in options:
        return Halt()
    states, began, todo = _STATES["rebase" if word == "rebase" else ""]
    stashes = _first_lines(own, [*(f"{state}/autostash" for state in states), "MERGE_AUTOSTASH"])
    if stashes is None:
        return None
    if "--abort" in options:
        trees = _first_lines(own, [f"{state}/{began}" for state in states])
        return None if trees is None else Halt(trees=("HEAD", *trees), commits=stashes)
    if word == "merge":
        return Halt(commits=stashes)
    # What is left of a rebase by patches is in no such list.
    if any(os.path.lexists(own / state) for state in states[1:]):
        return None
    lines = _lines(own, f"{states[0]}/{todo}")
    left = None if lines is None else picked(lines)
    if left is None or len(left) > LEFT_MAX:
        return None
    return Halt(trees=("HEAD",) * ("--skip" in options), commits=(*stashes, *left))


def picked(lines: Iterable[str]) -> list[str] | None:
    """Return the commits of a list of what is left; None where it does anything else as well.

    >>> picked(["pick 1a2b Add", "# a comment", "fixup -C 3c4d Mend"]), picked(["exec make"])
    (['1a2b', '3c4d'], None)
    """
    commits = []
    for words in map(str.split, lines):
        if not words or words[0][:1] == "#" or words[0] in _PAUSES:
            continue
        if words[0] not in _PICKS:
            return None
        commits += [word for word in words[1:] if word[:1] != "-"][:1]
    return commits


def _first_lines(own: Path, files: Iterable[str]) -> tuple[str, ...] | None:
    """Return the first line of each file that there is; None where one is no small file."""
    found = [_lines(own, file) for file in files]
    if None in found:
        return None
    return tuple(lines[0].strip() for lines in found if lines)


def _lines(own: Path, file: str) -> list[str] | None:
    try:
        with os.fdopen(open_beneath(own, file), "rb") as opened:
            data = opened.read(BYTES_MAX + 1)
    except PathError as error:
        return [] if error.code == "not-found" else None
    except OSError:
        return None
    return None if len(data) > BYTES_MAX else os.fsdecode(data).split("\n")
