"""Forms of bash that are static: what they come to is in the text of the line alone."""

from __future__ import annotations

import re

from skillhouse.floor.regex import regex
from skillhouse.permission.raw_line import COMMANDS_MAX, UnreadableError

WORDS_MAX = 32
"""Words that one list in braces or one loop may have."""

STATIC_TEXT = regex(
    r"""
    "\$\([ \t]*cat[ \t]*<<[ \t]*(?P<quote>['"])(?P<end>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)[ \t]*\n
    (?P<text>(?:(?!(?P=end)\n)[^\n]*\n)*+)
    (?P=end)\n[ \t\n]*\)"(?=[ \t\n|&;]|\Z)
    """,
    re.VERBOSE,
)
"""`"$(cat <<'END' … END)"`, a text in an argument as coding agents write it. The substitution takes
away the ends of lines at its end (bash(1), "Command Substitution")."""

_ITEM = r"[A-Za-z0-9_./:@%+*?-]+"
_AROUND = r"[A-Za-z0-9_./:=@%+,*?-]*"
_BRACED = regex(rf"(?P<before>{_AROUND})\{{(?P<items>{_ITEM}(?:,{_ITEM})+)\}}(?P<after>{_AROUND})")
_GROUP = regex(r"[ \t\n]*\((?!\()(?P<body>[^#<]*)\)[ \t\n]*")
_LOOP = regex(
    r"""
    [ \t\n]*for[ \t]+(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]+in
    (?P<words>(?:[ \t]+[A-Za-z0-9_./:@%+][A-Za-z0-9_./:@%+-]*)+)
    [ \t]*[;\n][ \t\n]*do[ \t\n]+(?P<body>[^#<]*?)[ \t]*[;\n][ \t\n]*done[ \t\n]*
    """,
    re.VERBOSE,
)
_BALANCED = regex(r"""(?:[^'"\\]|'[^']*+'|"(?:[^"\\]|\\.)*+"|\\.)*+""", re.DOTALL)


def braced(source: str) -> tuple[str, ...]:
    """Return the words of a list in braces, or nothing for what is not surely one.

    >>> braced("a/{b,c}.md"), braced("{a}"), braced("{1..3}"), braced("'{a,b}'")
    (('a/b.md', 'a/c.md'), (), (), ())
    """
    found = _BRACED.fullmatch(source)
    if found is None or ".." in found["items"]:
        return ()
    items = found["items"].split(",")
    if len(items) > WORDS_MAX:
        return ()
    return tuple(f"{found['before']}{item}{found['after']}" for item in items)


def unrolled(line: str) -> str:
    """Return a line without the brackets around all of it, and a loop over words as its rounds.

    >>> unrolled("(cd src && ls)")
    'cd src && ls'
    >>> unrolled("for f in a b; do wc $f; done")
    "f='a'\\nwc $f\\nf='b'\\nwc $f"
    """
    if group := _GROUP.fullmatch(line):
        # Brackets of the body's own are refused by whoever reads it.
        return group["body"]
    loop = _LOOP.fullmatch(line)
    if loop is None or "$'" in loop["body"] or not _BALANCED.fullmatch(loop["body"]):
        return line
    words = loop["words"].split()
    if len(words) > min(WORDS_MAX, COMMANDS_MAX):
        raise UnreadableError(f"more than {WORDS_MAX} words of a loop")
    return "\n".join(f"{loop['name']}='{word}'\n{loop['body']}" for word in words)
