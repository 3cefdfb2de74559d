"""Programs that rules deny whatever their words are: a run that may start any sees none of them.

What a command starts by itself no rule has seen. So that a file, or a word that the judge reads
wrongly, starts no denied program, each is covered where it is (decision record 0416).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from skillhouse.floor.regex import regex
from skillhouse.permission import (
    Breadth,
    CommandVerdict,
    Effect,
    LayerRules,
    loads_code,
    program_of,
    read_command,
)
from skillhouse.sandbox import Completed, Toolset

_MORE = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/games")
"""Directories of programs besides those of PATH, which are started by their paths."""
_ALL_IN_ONE = frozenset(("busybox", "toybox"))
"""Programs that hold others, whose names are their first words (busybox(1), toybox(1))."""
_REFUSED = regex(rb"(?i)permission denied|EACCES|not permitted")
_WORD = regex(rb"[\w.+-]+")
_LINE_BYTES = 4_096
_Stamp = tuple[tuple[str, int, int], ...]


def denied_to(verdict: CommandVerdict, rules: LayerRules) -> frozenset[str]:
    """Return the programs that a line must not start, whatever their words are.

    There are none where a person is asked about the line, and where no command of it starts what no
    rule has seen. What a rule allows by the name of a program with a grammar is that program with
    all that it starts, as `make *` is.
    """
    names = rules.denied_programs()
    if not names or verdict.structure is None or verdict.effect is not Effect.ALLOW:
        return frozenset()
    is_open = any(
        loads_code(argv) if rules.rule(argv).cover is Breadth.ALL else _is_unlisted(argv)
        for argv in {one.argv for one in verdict.commands}
    )
    return names if is_open else frozenset()


def _is_unlisted(argv: tuple[str, ...]) -> bool:
    return any(at.grammar is None for at in read_command(argv).chain())


class DeniedPrograms:
    """Finds where they are, and remembers it while the directories of programs stay as they are."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[frozenset[str], _Stamp], Mapping[str, str]] | None = None

    def found(self, names: frozenset[str], tools: Toolset) -> Mapping[str, str]:
        """Return the real paths of some programs, each with the name that is denied.

        A file that has names of its own besides is left, unless it is called like a denied program:
        it is another program too.
        """
        if not names:
            return {}
        places = dict.fromkeys(map(os.path.realpath, (*tools.outside_path.split(":"), *_MORE)))
        stamp = tuple(_stamps(places))
        kept = self._kept
        if kept is None or kept[0] != (names, stamp):
            kept = self._kept = (names, stamp), _found(names, [place for place, _, _ in stamp])
        return {path: name for path, name in kept[1].items() if tools.shows(path)}


def denied_note(done: Completed, denied: Mapping[str, str]) -> str:
    """Return a note about the covered programs that an output says could not be started, or ""."""
    lines = [
        line for line in (done.stdout + b"\n" + done.stderr).splitlines() if _REFUSED.search(line)
    ]
    words = {word for line in lines for word in _WORD.findall(line[:_LINE_BYTES])}
    found = sorted(name for name in {*denied.values()} if os.fsencode(name) in words)
    if not found:
        return ""
    names = ", ".join(f"`{name}`" for name in found)
    return f"{names}: a rule denies it, also to what a command starts by itself"


def _stamps(places: Mapping[str, None]) -> Iterator[tuple[str, int, int]]:
    for place in places:
        try:
            info = os.stat(place)
        except OSError:
            continue
        yield place, info.st_ino, info.st_mtime_ns


def _found(names: frozenset[str], places: list[str]) -> Mapping[str, str]:
    known = names | {program_of(name) for name in names}
    denied: dict[str, str] = {}
    others: set[str] = set()
    for place in places:
        for name in _listed(place, known):
            path = os.path.join(place, name)
            real = os.path.realpath(path) if os.path.islink(path) else path
            is_denied = name in _ALL_IN_ONE or not known.isdisjoint((name, program_of(name)))
            if not is_denied:
                others.add(real)
            elif os.path.isfile(real):
                denied.setdefault(real, name)
    return {
        path: name
        for path, name in denied.items()
        if path not in others or not known.isdisjoint(_names(path))
    }


def _listed(place: str, known: frozenset[str]) -> Collection[str]:
    try:
        return os.listdir(place)
    except OSError:
        # A directory that may be entered and not listed: what is known by name can be in it.
        return known | _ALL_IN_ONE


def _names(path: str) -> tuple[str, str]:
    name = os.path.basename(path)
    return name, program_of(name)
