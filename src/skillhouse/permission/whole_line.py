"""What is done to a whole line before its words are read."""

from __future__ import annotations

import re

from skillhouse.floor.regex import regex
from skillhouse.permission.raw_line import NeedsShellError

_IN_BRACKETS = regex(r"[()#]|<<")
"""What a line in brackets must not hold: the bracket at its end may belong to it."""


def without_brackets(line: str) -> str:
    """Return a line without the brackets around all of it, which only keep what it sets.

    >>> without_brackets(" (cd a && ls) "), without_brackets("(a) && (b)")
    ('cd a && ls', '(a) && (b)')
    """
    inside = line.strip(" \t\n")[1:-1]
    is_one = line.strip(" \t\n")[:1] == "(" and line.strip(" \t\n")[-1:] == ")"
    return inside if is_one and inside.strip() and not _IN_BRACKETS.search(inside) else line


def joined_lines(line: str) -> str:
    """Return a line without the escaped ends of lines, which bash takes out before all else.

    Text behind a line with a here-document is left as it is.
    """
    if "\\\n" not in line:
        return line
    if "$'" in line:
        raise NeedsShellError("an escaped end of a line, perhaps in `$'…'`")
    made: list[str] = []
    at, has_text, last = 0, False, "\n"
    while at < len(line):
        sign = line[at]
        piece = sign
        if (sign == "\n" and has_text) or line.startswith('"$(cat <<', at):
            return "".join(made) + line[at:]
        if sign == "\\":
            piece = line[at : at + 2]
        elif sign == "'":
            end = line.find("'", at + 1)
            piece = line[at : end + 1] if end > 0 else line[at:]
        elif sign == '"':
            found = _DOUBLE.match(line, at)
            piece = found[0] if found else line[at:]
        elif sign == "#" and last in " \t\n|&;<>()":
            end = line.find("\n", at)
            piece = line[at:end] if end > 0 else line[at:]
        elif line.startswith("<<", at):
            has_text, piece = True, "<<"
        at += len(piece)
        kept = _ESCAPED.sub(_without_end, piece) if sign in '"\\' else piece
        if kept:
            made.append(kept)
            last = kept[-1]
    return "".join(made)


_DOUBLE = regex(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_ESCAPED = regex(r"\\(.)", re.DOTALL)


def _without_end(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[0]
