"""Programs that only start another one: their own options, and the command inside."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from skillhouse.permission.command_reader import read_command
from skillhouse.permission.grammar import is_wrapper

DEPTH_MAX = 4
"""Wrappers around a command; more are denied (reference: security 2.3)."""


class Wrapped(Struct, frozen=True, kw_only=True):
    """A wrapper taken off."""

    inner: tuple[str, ...]
    """The command inside; empty when there is none."""
    at: int
    """Place in the arguments where it begins."""
    environment: tuple[tuple[str, str], ...] = ()
    unknown: str = ""
    """The first option whose meaning is not known; what is inside is a guess then."""


def unwrapped(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command inside all wrappers, or None where one of them is not understood.

    >>> unwrapped(("env", "A=1", "nice", "make")), unwrapped(("env", "-C", "sub", "sh", "e.sh"))
    (('make',), None)
    """
    inner = tuple(argv)
    for _ in range(DEPTH_MAX + 1):
        wrapped = unwrap(inner)
        if wrapped is None:
            return inner
        if wrapped.unknown or not wrapped.inner:
            return None
        inner = wrapped.inner
    return None


def unwrap(argv: Sequence[str]) -> Wrapped | None:
    """Return what a wrapper starts, or None when the program is none.

    >>> unwrap(("timeout", "-k", "5", "60", "git", "status")).inner
    ('git', 'status')
    """
    words = tuple(argv)
    meaning = read_command(words)
    if meaning.grammar is None or not is_wrapper(meaning.grammar):
        return None
    if meaning.unknown:
        # What follows the first word that is no option, for what must never run.
        places = [at for at, word in enumerate(words) if at and word[:1] != "-"]
        at = places[0] if places else len(words)
        return Wrapped(inner=words[at:], at=at, unknown=meaning.unknown)
    at = meaning.inner or len(words)
    return Wrapped(inner=words[at:], at=at, environment=tuple(meaning.environment))


def loads_code(argv: Sequence[str]) -> bool:
    """Whether a command may run code from files that its words do not name.

    True for every program without a grammar, and for words that are not understood or run things.

    >>> loads_code(("grep", "-r", "x", ".")), loads_code(("npm", "test"))
    (False, True)
    """
    inner = unwrapped(argv)
    # What a path names may be another program than those of that name.
    return inner is None or "/" in inner[0] or not read_command(inner).is_quiet


def only_reads(argv: Sequence[str]) -> bool:
    """Whether a command is understood and by its words writes no file.

    >>> only_reads(("cat", "a")), only_reads(("cp", "a", "b")), only_reads(("make",))
    (True, False, False)
    """
    inner = unwrapped(argv)
    if inner is None or "/" in inner[0]:
        return False
    meaning = read_command(inner)
    return meaning.is_quiet and not (meaning.writes or meaning.written_values)
