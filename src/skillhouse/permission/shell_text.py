"""`bash -lc 'LINE'` is the line: it is judged and run as if it had been given without the shell."""

from __future__ import annotations

from collections.abc import Sequence

from skillhouse.floor.regex import regex
from skillhouse.floor.rules import Effect
from skillhouse.permission.command_rules import CommandRules
from skillhouse.permission.path_policy import PathPolicy
from skillhouse.permission.patterns import Breadth
from skillhouse.permission.plain_line import read_line
from skillhouse.permission.raw_line import UnreadableError
from skillhouse.permission.simple import CommandJudge

_READING = frozenset((("-c",), ("-lc",), ("-cl",), ("-l", "-c")))
_SAME = regex(r"[A-Za-z0-9_ ./:@%+,\"'&|;\n-]*")
"""Texts that every shell reads as bash does: no patterns, variables, braces or backslashes."""
_OTHERS = frozenset(("sh", "dash", "zsh", "ksh"))


def shell_line(argv: Sequence[str], rules: CommandRules, places: PathPolicy) -> str:
    """Return the line that a shell would read, or nothing where the command is not only that.

    A rule about the shell's own words that forbids, asks or names them all comes first.
    """
    name, options, text = argv[0], tuple(argv[1:-1]), argv[-1]
    if options not in _READING or not text.strip():
        return ""
    is_same = name in _OTHERS and _SAME.fullmatch(text) and "|&" not in text and _is_plain(text)
    if name != "bash" and not is_same:
        return ""
    ruling = rules.rule(tuple(argv))
    is_ruled = ruling.denied or ruling.asked or ruling.cover >= Breadth.EXACT
    is_denied = CommandJudge(rules, places).words(tuple(argv)).effect is Effect.DENY
    return "" if is_ruled or is_denied else text


def _is_plain(text: str) -> bool:
    try:
        return bool(read_line(text).pipelines)
    except UnreadableError:
        return False
