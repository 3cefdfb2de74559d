"""Takes the arguments of a program apart by a table of the options that it may be given."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The options of a program that may pass; every other one is a reason to ask."""

    flags: frozenset[str] = frozenset()
    """Letters without a value."""
    valued: frozenset[str] = frozenset()
    """Letters with a value, in the same word or the next."""
    long_flags: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    """Long options with a value, after `=` or in the next word."""
    long_optional: frozenset[str] = frozenset()
    """Long options with a value after `=` or none."""
    numbers: bool = False
    """Whether `-5` is an option."""
    permutes: bool = True
    """Whether options may stand behind operands."""


@dataclass(slots=True)
class ScannedOptions:
    """Arguments taken apart by a table of options."""

    unknown: str
    """The first option that is not in the table, or is cut short; empty when all are known."""
    values: list[str]
    operands: list[int]
    """Places of the operands in the arguments."""
    seen: frozenset[str]
    """Options that were given, letters without their hyphen."""


@dataclass(slots=True)
class Use:
    """The effects of a command, by its arguments."""

    concern: str = ""
    """Why a wildcard does not cover it; empty when it does."""
    reads: list[int] = field(default_factory=list)
    """Places of the arguments that are files or directories to read."""
    writes: list[int] = field(default_factory=list)
    unlisted: bool = False
    """Whether the concern is only that the sub-command is in no table."""
    values: list[str] = field(default_factory=list)
    """Values of options, which may be paths."""


@functools.cache
def grammar(
    short: str = "", long: str = "", *, numbers: bool = False, permutes: bool = True
) -> Grammar:
    """Return the table that two texts describe.

    Args:
        short: Letters; `:` after one says that it takes a value.
        long: Names between blanks; `=` after one says that it takes a value, `=?` that it may.
    """
    letters = [sign for sign in short if sign != ":"]
    with_value = {before for before, sign in itertools.pairwise(short) if sign == ":"}
    names = long.split()
    return Grammar(
        flags=frozenset(letters) - with_value,
        valued=frozenset(with_value),
        long_flags=frozenset(name for name in names if "=" not in name),
        long_valued=frozenset(name[:-1] for name in names if name.endswith("=")),
        long_optional=frozenset(name[:-2] for name in names if name.endswith("=?")),
        numbers=numbers,
        permutes=permutes,
    )


def scan(arguments: Sequence[str], table: Grammar) -> ScannedOptions:
    """Return the options' values and the operands; a long option must be written in full.

    >>> scan(["--outp=x"], grammar("o:", "output=")).unknown
    '--outp=x'
    """
    values: list[str] = []
    operands: list[int] = []
    seen: set[str] = set()
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            operands += range(at + 1, len(arguments))
            break
        if word == "-" or not word.startswith("-"):
            if not table.permutes:
                operands += range(at, len(arguments))
                break
            operands.append(at)
            at += 1
            continue
        used = _long(word, table, values, seen) if word[1] == "-" else 0
        used = used or _short(word, table, values, seen)
        if used == 0 or at + used > len(arguments):
            return ScannedOptions(word, values, operands, frozenset(seen))
        if used == 2:
            values.append(arguments[at + 1])
        at += used
    return ScannedOptions("", values, operands, frozenset(seen))


def _long(word: str, table: Grammar, values: list[str], seen: set[str]) -> int:
    """Return how many words a long option takes, or 0 when it is not known."""
    name, sign, value = word[2:].partition("=")
    seen.add(name)
    if sign:
        values.append(value)
        return int(name in table.long_valued or name in table.long_optional)
    if name in table.long_valued:
        return 2
    return int(name in table.long_flags or name in table.long_optional)


def _short(word: str, table: Grammar, values: list[str], seen: set[str]) -> int:
    if word[1] == "-":
        return 0
    if table.numbers and word[1:].isdigit():
        return 1
    for place, letter in enumerate(word[1:], start=1):
        seen.add(letter)
        if letter in table.valued:
            if place + 1 == len(word):
                return 2
            values.append(word[place + 1 :])
            return 1
        if letter not in table.flags:
            return 0
    return 1
