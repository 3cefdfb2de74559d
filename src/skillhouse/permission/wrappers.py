"""Programs that only start another one: their own options, and the command inside."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DEPTH_MAX = 4
"""Wrappers around a command; more are denied (reference: security 2.3)."""

_HARMLESS = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR|COLUMNS|LINES")
_HARMLESS_VALUE = re.compile(r"[A-Za-z0-9_.@:+-]*")
_ZONE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_+-][A-Za-z0-9_+/-]*")
_DECIDING = re.compile(
    r"LD_.*|DYLD_.*|BASH_.*|ENV|PATH|IFS|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|CDPATH|GLOBIGNORE|"
    r"GIT_.*|.*PAGER|.*_COMMAND|PYTHON.*|NODE_.*|PERL5.*|RUBY.*|LUA_.*|JAVA_TOOL_OPTIONS|"
    r"LESS(OPEN|CLOSE)|.*EDITOR|VISUAL|BROWSER|SHELL|HOME|.*PRELOAD.*|GCONV_PATH|HOSTALIASES|.*_proxy"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
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
    known = _wrappers().get(argv[0].rsplit("/", 1)[-1])
    if known is None:
        return None
    table, skipped = known
    arguments = argv[1:]
    scanned = scan(arguments, table)
    if scanned.unknown:
        # What follows the first word that is no option, for what must never run.
        places = [at for at, word in enumerate(argv) if at and word[:1] != "-"]
        at = places[0] if places else len(argv)
        return Wrapped(inner=tuple(argv[at:]), at=at, unknown=scanned.unknown)
    rest = scanned.operands[skipped:]
    environment = []
    if argv[0] == "env":
        while rest and "=" in arguments[rest[0]]:
            name, _, value = arguments[rest.pop(0)].partition("=")
            environment.append((name, value))
    at = rest[0] + 1 if rest else len(argv)
    return Wrapped(inner=tuple(argv[at:]), at=at, environment=tuple(environment))


def environment_concern(name: str, value: str) -> tuple[bool, str]:
    """Return whether setting a variable is refused for good, and why it is not taken for granted.

    Names that decide what a program loads or starts are refused; those about language and colour
    pass; about every other one a person is asked.
    """
    if name == "TZ" and _ZONE.fullmatch(value):
        return False, ""
    if _HARMLESS.fullmatch(name) and _HARMLESS_VALUE.fullmatch(value):
        return False, ""
    if _DECIDING.fullmatch(name):
        return True, f"the variable `{name[:60]}` decides what programs run or load"
    return False, f"the variable `{name[:60]}` is set"


@functools.cache
def _wrappers() -> Mapping[str, tuple[Grammar, int]]:
    """Return each wrapper's options, and how many operands stand before the command."""

    def own(short: str = "", long: str = "", *, numbers: bool = False) -> Grammar:
        return grammar(short, long, numbers=numbers, permutes=False)

    return {
        "env": (own("i0vu:", "ignore-environment null debug unset="), 0),
        "timeout": (own("fpvk:s:", "foreground preserve-status verbose kill-after= signal="), 1),
        "nice": (own("n:", "adjustment=", numbers=True), 0),
        "nohup": (own(), 0),
        "setsid": (own("cfw", "ctty fork wait"), 0),
        "stdbuf": (own("i:o:e:", "input= output= error="), 0),
        "ionice": (own("tc:n:", "class= classdata= ignore"), 0),
        "time": (own("pv"), 0),
        "command": (own("p"), 0),
    }


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
