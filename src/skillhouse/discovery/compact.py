"""The list of skills for places that hold few characters: `name: first sentence`, one a line.

As many skills as fit are named with a useful part of their sentence, before any gets more of it: a
model can ask for a skill whose name it knows, and cannot for one that it never saw.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

from skillhouse.discovery.catalog_styles import one_line, shortened
from skillhouse.skill import Skill

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


SENTENCE_USEFUL = 60
"""Characters of each sentence before fewer skills are listed: about ten words, enough to choose by
(our own choice)."""
LISTED_LEAST = 20
"""Skills that are listed with shorter sentences if need be (issue 12, acceptance)."""
SENTENCE_LEAST = 24
"""Characters of a sentence below which fewer than `LISTED_LEAST` skills are listed."""
NAME_CHARS = 128
"""Characters of the longest name that is listed, twice what the specification allows: one name must
not take the room of ten skills. Search finds the others."""
HEAD_LINES = 10
"""Lines that take no more room than the first line, at most."""

Listed = tuple[tuple[Skill, ...], tuple[Skill, ...], str]
"""Included skills, those among them whose sentence was cut, the text."""


def compact_list(
    skills: Sequence[Skill], *, fits: Callable[[str], bool], search: str = ""
) -> Listed:
    """Return the longest list that fits, from the first skill on.

    Where skills are left out, the first line says how many and how they are found. A sentence that
    is cut ends in `…`.

    Args:
        skills: In order; none needs to be unique by name.
        fits: Whether a text has room; what is shorter than a text with room has room too.
        search: The tool that finds what is left out; empty where there is none.
    """
    names = Counter(skill.name for skill in skills)
    labelled = (
        (skill, " ".join(one_line(skill.name if names[skill.name] == 1 else skill.id).split()))
        for skill in skills
        if len(skill.name) <= NAME_CHARS
    )
    lines = [_Line(skill, label) for skill, label in labelled if label]

    def text(count: int, limit: int) -> str:
        found = [line.text(limit) for line in lines[:count]]
        return "\n".join([*_head(len(skills) - count, search), *found])

    def most_lines(most: int, limit: int) -> int:
        count = _most(0, most, lambda n: fits(text(n, limit)))
        # The whole list does without the first line, which takes the room of a few short ones.
        is_near = most == len(lines) <= count + HEAD_LINES
        return most if is_near and fits(text(most, limit)) else count

    least = SENTENCE_USEFUL
    count = most_lines(len(lines), least)
    if count < min(LISTED_LEAST, len(lines)):
        least = SENTENCE_LEAST
        count = most_lines(min(LISTED_LEAST, len(lines)), least)
    shown = lines[:count]
    if not shown:
        return (), (), text(0, 0) if fits(text(0, 0)) else ""
    longest = max(len(line.sentence) for line in shown)
    limit = _most(least, max(least, longest), lambda n: fits(text(count, n)))
    return (
        tuple(line.skill for line in shown),
        tuple(line.skill for line in shown if line.is_cut(limit)),
        text(count, limit),
    )


class _Line:
    """One skill's line."""

    def __init__(self, skill: Skill, label: str) -> None:
        self.skill = skill
        self._label = label

    @cached_property
    def sentence(self) -> str:
        return first_sentence(self.skill.description)

    def text(self, limit: int) -> str:
        sentence = clipped(self.sentence, limit)
        return f"{self._label}: {sentence}" if sentence else self._label

    def is_cut(self, limit: int) -> bool:
        return len(self.sentence) > limit


def _head(left: int, search: str) -> list[str]:
    if left == 0:
        return []
    return [f"{left} more: `{search}`" if search else f"{left} more are not listed"]


def _most(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `high` that fits, where `low` does and all below one do.

    It is looked for upwards, since thousands of skills are few lines.
    """
    step = 32
    while low < high:
        middle = min(low + step, high)
        if fits(middle):
            low, step = middle, 2 * step
        elif step == 1:
            break
        else:
            high, step = middle - 1, max(1, min(step, middle - low) // 2)
    return low


def within(text: str, chars: int) -> str:
    """Return a text of at most `chars` characters, as `width` counts them, cut between words.

    >>> within("Reads and fills forms.", 14)
    'Reads and…'
    """
    if width(text) <= chars:
        return text
    return clipped(text, _most(1, chars, lambda n: width(clipped(text, n)) <= chars))


def width(text: str) -> int:
    """Return the characters that a client may count in a text, at most.

    Clients written in JavaScript count in UTF-16. Claude Code normalises text first (NFKC: `…`
    becomes `...`), so a character counts as the longer of itself and that form.

    >>> width("ab"), width("🦊"), width("ab…")
    (2, 2, 5)
    """
    return len(text) + sum(_excess(found[0]) for found in _NOT_ASCII.finditer(text))


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


@lru_cache(maxsize=4_096)
def _excess(character: str) -> int:
    forms = (character, unicodedata.normalize("NFKC", character))
    return max(len(form.encode("utf-16-le", "surrogatepass")) // 2 for form in forms) - 1
