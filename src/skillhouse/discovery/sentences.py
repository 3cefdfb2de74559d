"""The first sentence of a description, and how it becomes shorter where characters are few."""

from __future__ import annotations

import re

from skillhouse.discovery.catalog_styles import one_line, shortened

READ_CHARS = 2_048
"""Characters of a description in which its first sentence is looked for; the specification allows
1,024 (`description`)."""
ELLIPSIS = "…"
"""Stands behind a sentence that was cut; one character where `...` takes three."""

_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_MARKUP = re.compile(r"^(?:#{1,6}|>|[-*+])\s+")
"""How Markdown begins a heading, a quotation or a list item."""
_END = re.compile(r"[.!?]+[\"'”’»)\]*_`]*(?=\s|$)|[。！？｡][”’」』）]*")
_ABBREVIATIONS = frozenset(
    "al approx ca cf dr e.g eg esp excl fig i.e ie incl max min mr mrs ms no nr prof resp sec st "
    "viz vol vs".split()
)
"""After these a full stop ends no sentence, whatever follows."""
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
"""`J`, `U.S`: letters that stand for words."""


def first_sentence(text: str) -> str:
    """Return the first sentence of a text as one line; the whole text where none ends.

    A full stop ends a sentence where a blank follows, and then neither a small letter nor the
    rest of an abbreviation, an initial or a number that begins the text.

    >>> first_sentence("Reads PDFs, e.g. forms (v1.2). Use when asked.")
    'Reads PDFs, e.g. forms (v1.2).'
    >>> first_sentence("处理表格。需要时使用。")
    '处理表格。'
    """
    paragraph = _PARAGRAPH.split(text[:READ_CHARS].strip(), maxsplit=1)[0]
    line = _MARKUP.sub("", " ".join(one_line(paragraph).split()))
    for found in _END.finditer(line):
        if _ends(line, found):
            return line[: found.end()]
    return line


def _ends(line: str, found: re.Match[str]) -> bool:
    following = line[found.end() :].lstrip()
    if not following or not found[0].startswith("."):
        return True
    if following[0].islower():
        return False
    if found[0].startswith(".."):
        return True
    word = line[: found.start()].rpartition(" ")[2].lstrip("([{\"'“‘*_`")
    if word.isdecimal():
        return found.start() > len(word)
    return word.lower() not in _ABBREVIATIONS and not _INITIALS.fullmatch(word)


def clipped(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, cut between words and marked where it is cut.

    A word that is longer than three quarters of the limit is cut itself.

    >>> clipped("Reads and fills forms.", 22), clipped("Reads and fills forms.", 14)
    ('Reads and fills forms.', 'Reads and…')
    """
    if len(text) <= limit:
        return text
    at = text.rfind(" ", limit // 4, limit)
    kept = text[:at] if at > 0 else shortened(text, limit - 1, mark="")
    return kept.rstrip(" ,;:.(–—-") + ELLIPSIS
