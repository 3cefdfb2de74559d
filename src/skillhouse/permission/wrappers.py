"""Programs that only start another one: their own options, and the command inside."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skillhouse.permission.options import Grammar, grammar, scan

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
