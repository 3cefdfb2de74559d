"""Words that look expanded and are not: their value is in the line itself, and the same each time.

`$'…'` (bash(1), "QUOTING"), lists in braces ("Brace Expansion"), `"$(cat <<'E' … )"`, with which
agents write messages of several lines, and the root of the repository. What is not surely one of
these is left to a shell.
"""

from __future__ import annotations

import itertools
import re

from skillhouse.floor.regex import regex

EXPANSIONS_MAX = 64
"""Words that one list in braces may become; with more a shell runs it, after a question."""

_ESCAPE = regex(r"\\(?:([abefnrtvE\\'\"?])|x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_MEANINGS = dict(zip("abefnrtvE\\'\"?", "\a\b\x1b\f\n\r\t\v\x1b\\'\"?", strict=True))
_SHOWN = regex(r"[^\x00-\x08\x0b-\x1f\x7f]*")
_ITEM = r"[A-Za-z0-9_./@:%+=-]*"
_LIST = rf"\{{{_ITEM}(?:,{_ITEM})+\}}|\{{-?[0-9]{{1,4}}\.\.-?[0-9]{{1,4}}\}}"
_LISTS = regex(rf"({_LIST})")
_BRACED = regex(rf"[A-Za-z0-9_./@:%+=*?-]*(?:(?:{_LIST})[A-Za-z0-9_./@:%+=*?-]*)+")
_CAT = regex(r"\"\$\(cat <<(?:'(\w+)'|\"(\w+)\"|(\w+))\n", re.ASCII)
_CAT_END = regex(r"[ \t\n]*\)\"")
_TOP = regex(r'(")?\$\(git rev-parse --show-toplevel\)((?:/[A-Za-z0-9_./@%+-]*)?)(?(1)")')


def ansi_text(source: str) -> str | None:
    r"""Return what the inside of `$'…'` means, or None where bash and this may differ.

    >>> ansi_text(r"a\tb\x41\n"), ansi_text(r"\u00e9"), ansi_text(r"a\0b")
    ('a\tbA\n', None, None)
    """
    is_sure = True

    def meaning(found: re.Match[str]) -> str:
        nonlocal is_sure
        if found[1]:
            return _MEANINGS[found[1]]
        number = int(found[2], 16) if found[2] else int(found[3], 8) if found[3] else 0
        # Other letters are left as they are or make bytes; a NUL ends the string.
        is_sure = is_sure and 0 < number < 0x80
        return chr(number)

    text = _ESCAPE.sub(meaning, source)
    # What moves a terminal's cursor is not for words that a person reads.
    return text if is_sure and _SHOWN.fullmatch(text) else None


def braced(source: str) -> list[str]:
    """Return the words that lists in braces become, in bash's order; the word itself without one.

    >>> braced("a/{b,c}.{x,y}"), braced("{1..3}"), braced("{}")
    (['a/b.x', 'a/b.y', 'a/c.x', 'a/c.y'], ['1', '2', '3'], ['{}'])
    """
    if "{" not in source or not _BRACED.fullmatch(source):
        return [source]
    parts = [_items(part) if part[:1] == "{" else [part] for part in _LISTS.split(source)]
    count = 1
    for part in parts:
        count *= len(part)
        if count > EXPANSIONS_MAX:
            return [source]
    words = ["".join(chosen) for chosen in itertools.product(*parts)]
    # An empty word is none to bash.
    return words if all(words) else [source]


def _items(part: str) -> list[str]:
    inside = part[1:-1]
    if "," in inside:
        return inside.split(",")
    first, _, last = inside.partition("..")
    if any(len(text.lstrip("-")) > 1 and text.lstrip("-")[0] == "0" for text in (first, last)):
        return [part] * (EXPANSIONS_MAX + 1)  # Zeros in front are a width.
    step = 1 if int(first) <= int(last) else -1
    return [str(number) for number in range(int(first), int(last) + step, step)]


def cat_text(line: str, at: int) -> tuple[str, int] | None:
    """Return the text of a `"$(cat <<'E' …)"` that begins at a place, and where it ends.

    >>> cat_text("m \\"$(cat <<'E'\\na\\n\\nE\\n)\\" x", 2)
    ('a', 22)
    """
    begin = _CAT.match(line, at)
    if begin is None:
        return None
    delimiter = begin[1] or begin[2] or begin[3]
    end = re.compile(rf"^{delimiter}\n", re.MULTILINE).search(line, begin.end())
    if end is None:
        return None
    text = line[begin.end() : end.start()]
    if begin[3] and re.search(r"[$`\\]", text):
        return None
    closed = _CAT_END.match(line, end.end())
    return None if closed is None else (text.rstrip("\n"), closed.end())


def below_top(line: str, at: int) -> tuple[str, int] | None:
    """Return the path below the root of the repository that a word names, and where it ends.

    >>> below_top('cd "$(git rev-parse --show-toplevel)/a"', 3)
    ('/a', 39)
    """
    found = _TOP.match(line, at)
    return None if found is None else (found[2], found.end())
