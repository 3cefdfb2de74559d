"""The part of a description that a list has room for, and how long a client takes it to be."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from functools import lru_cache

from skillhouse.discovery.catalog_styles import one_line, shortened
from skillhouse.floor.lock import once
from skillhouse.floor.regex import regex
from skillhouse.skill import Skill

READ_CHARS = 4_096
"""Characters of a description that are read for a cut one; the specification allows 1,024."""
ELLIPSIS = "…"
"""Appended to a text that was cut; one character where `...` takes three."""

_MARKUP = regex(r"^(?:#{1,6}|>|[-*+])\s+")
"""How Markdown begins a heading, a quotation or a list item."""
_END = regex(r"[.!?]+[\"'”’»)\]*_`]*(?=\s|$)|[。！？｡][”’」』）]*")
_ABBREVIATIONS = frozenset(
    "al approx ca cf dr e.g eg esp excl fig i.e ie incl max min mr mrs ms no nr prof resp sec st "
    "viz vol vs".split()
)
"""After these a full stop never ends a sentence."""
_INITIALS = regex(r"(?:[^\W\d_]\.)*[^\W\d_]")
"""`J`, `U.S`: letters that stand for words."""


def plain_text(description: str) -> str:
    """Return a description as one line.

    >>> plain_text("# Forms\\n\\nFills forms.  Use when asked.")
    'Forms Fills forms. Use when asked.'
    """
    return " ".join(one_line(_MARKUP.sub("", description.strip())).split())


def sentences(line: str) -> list[str]:
    """Return the sentences of a line.

    A full stop ends a sentence when a blank and no small letter follow, and the word before it is
    not an abbreviation, an initial or a number at the start.

    >>> sentences("Reads PDFs, e.g. forms (v1.2). Use when asked.")
    ['Reads PDFs, e.g. forms (v1.2).', 'Use when asked.']
    """
    found, start = [], 0
    for stop in _END.finditer(line):
        if _ends(line, stop):
            found.append(line[start : stop.end()].strip())
            start = stop.end()
    return [*found, rest] if (rest := line[start:].strip()) else found


def _ends(line: str, stop: re.Match[str]) -> bool:
    following = line[stop.end() :].lstrip()
    if not following or not stop[0].startswith("."):
        return True
    if following[0].islower():
        return False
    if stop[0].startswith(".."):
        return True
    word = line[: stop.start()].rpartition(" ")[2].lstrip("([{\"'“‘*_`")
    if word.isdecimal():
        return stop.start() > len(word)
    return word.lower() not in _ABBREVIATIONS and not _INITIALS.fullmatch(word)


_LOOSE = " ,;:.(–—-"
"""Not left before the mark of a cut."""


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
    return kept.rstrip(_LOOSE) + ELLIPSIS


WHEN_MOST = 120
"""Characters of a share up to which there is room for one beginning; above, half of it is for that
of the description and half for the sentence of when to use the skill, unless that alone says far
more (bench/beginnings.py)."""
WHEN_SHARE = 0.8
"""How much the sentence that says when to use a skill, or two halves, must say of what they
displace, by the rarity of their words."""
WHEN_WORDS = 15
"""Words of that sentence, without fillers and those of the name, below which it says too little to
be worth the place of another (bench/beginnings.py)."""
TAIL_WORDS = 2
"""Words of a sentence without its end, beside fillers and what was said before, that are not worth
their characters: other descriptions go on with them (bench/beginnings.py)."""
RARITY_LEAST = 2.0
"""Rarity of a word that every description has: few skills say little of how rare a word is."""
_WHEN = regex(
    r"(?i)\b(?:use (?:this |it |the )?(?:skill |agent |tool )?(?:proactively )?"
    r"(?:only )?(?:when|whenever|if|for|to|on|after|before)"
    r"|(?:should be used|applies|when(?:ever)? (?:the |a |an )?users?|when (?:you|asked|working))"
    r"|(?:triggers?|activates?|invoke[sd]?) (?:this |it |the )?(?:skill )?"
    r"(?:on|when|for|include|phrases|words|keywords))"
    r"|当用户|在用户|用于|适用于"
)
"""How a sentence says when a skill is to be used."""
_FILLER = frozenset(
    "a an about and any are as ask asked asks by capability for from help if in is it its mention "
    "mentions needed need needs of on or skill that the this to trigger triggers use used user "
    "users want wants when whenever with work working you your".split()
)
"""Words that say nothing of one skill."""
_WORD = regex(r"[^\W_]+")
_NO_BLANKS = regex(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")
"""Of scripts that have no blanks between words, whose words are not counted."""


class Descriptions:
    """The beginnings of the descriptions of some skills, for one length each."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        """Take the skills among whose descriptions a word is rare or not."""
        self._skills = skills
        self._lines: dict[str, str] = {}
        self._whens: dict[str, str | None] = {}
        self._known_words: dict[str, Set[str]] = {}

    def line(self, skill: Skill) -> str:
        """Return the whole description as one line."""
        found = self._lines.get(skill.file)
        if found is None:
            found = self._lines[skill.file] = plain_text(skill.description)
        return found

    def beginning(self, skill: Skill, limit: int, *, tail: bool = True) -> str:
        """Return at most `limit` characters of a description, marked where something is missing.

        Where there is little room, the sentence that says when to use the skill comes first if it
        says about as much as what it displaces; where there is more, half of the share is for it.
        Without `tail` a sentence is not begun of which next to nothing is left.
        """
        line = self.line(skill)
        if len(line) <= limit:
            return line
        when, known = self._when(skill), self._known(skill)
        if when is None:
            found = clipped(line, limit)
        elif limit > WHEN_MOST:
            both = halves(line, when, limit, known)
            found = self._rarer(both, clipped(when_first(line, when), limit), known)
        else:
            found = self._first(skill, when_first(line, when), limit)
        return found if tail else without_tail(found, known)

    def _known(self, skill: Skill) -> Set[str]:
        """Return the words that say nothing of a skill beside its name."""
        found = self._known_words.get(skill.file)
        if found is None:
            found = self._known_words[skill.file] = _words(skill.name) | _FILLER
        return found

    def _when(self, skill: Skill) -> str | None:
        """Return the sentence of when to use a skill, if it is not the first and says enough."""
        if skill.file not in self._whens:
            when = when_sentence(self.line(skill))
            says_enough = when is not None and len(_words(when) - self._known(skill)) >= WHEN_WORDS
            self._whens[skill.file] = when if says_enough else None
        return self._whens[skill.file]

    def _first(self, skill: Skill, other: str, limit: int) -> str:
        """Return the beginning of a description or of `other`, which says the same otherwise."""
        first, second = clipped(self.line(skill), limit), clipped(other, limit)
        known = self._known(skill)
        lost, gained = _words(first) - known, _words(second) - known
        said = self._rarity(gained - lost)
        is_better = said > 0 and said >= WHEN_SHARE * self._rarity(lost - gained)
        return second if is_better else first

    def _rarer(self, text: str, other: str, known: Set[str]) -> str:
        """Return `text`, or `other` if the former says too little of what it displaces."""
        first, second = _words(text) - known, _words(other) - known
        lost, gained = sorted(first - second), sorted(second - first)
        return other if WHEN_SHARE * self._rarity(gained) > self._rarity(lost) else text

    def _rarity(self, words: Iterable[str]) -> float:
        counts, total = self._counts
        return sum(RARITY_LEAST + math.log((total + 1) / (counts[word] + 1)) for word in words)

    @once
    def _counts(self) -> tuple[Counter[str], int]:
        """In how many of the descriptions each word is, and how many there are."""
        counts: Counter[str] = Counter()
        for skill in self._skills:
            counts.update(_words(self.line(skill)))
        return counts, len(self._skills)


def when_sentence(line: str) -> str | None:
    """Return the sentence of when to use a skill; None if there is none or it is the first.

    >>> when_sentence("Reads PDFs. Use when asked.")
    'Use when asked.'
    """
    parts = sentences(line[:READ_CHARS])
    when = next((part for part in parts if _WHEN.search(part)), None)
    return None if when is None or when is parts[0] else when


def when_first(line: str, when: str) -> str:
    """Return a description with one of its sentences first.

    >>> when_first("Reads PDFs. Use when asked.", "Use when asked.")
    'Use when asked. Reads PDFs.'
    """
    before, _, after = line.partition(when)
    return " ".join(part for part in (when, before.strip(), after.strip()) if part)


def halves(line: str, when: str, limit: int, known: Set[str] = frozenset()) -> str:
    """Return the beginning of a description, and as much from one of its sentences on.

    The beginning has no part of a sentence that says next to nothing beside the `known` words.

    >>> halves("Reads PDFs, forms and tables. Use for text or words.", "Use for text or words.", 36)
    'Reads PDFs, forms… Use for text or…'
    """
    before, _, after = line.partition(when)
    before, rest = before.strip(), when + after
    room = max(limit // 2, limit - 1 - len(rest))
    if len(before) <= room:
        return clipped(line, limit)
    begun = without_tail(clipped(before, room), known)
    return f"{begun} {clipped(rest, limit - len(begun) - 1)}"


def without_tail(text: str, known: Set[str]) -> str:
    """Return a cut text without the beginning of its last sentence, if that says too little.

    >>> without_tail("Reads and fills PDF forms. Use it with care…", {"use", "it", "with"})
    'Reads and fills PDF forms…'
    """
    if not text.endswith(ELLIPSIS):
        return text
    tail = sentences(text)[-1]
    kept = text[: -len(tail)].rstrip()
    says_little = len(_words(tail) - known - _words(kept)) <= TAIL_WORDS
    if not kept or not says_little or _NO_BLANKS.search(tail):
        return text
    return kept.rstrip(_LOOSE) + ELLIPSIS


def _words(text: str) -> set[str]:
    return {_stem(word) for word in _WORD.findall(text.lower())}


@lru_cache(maxsize=4_096)
def _stem(word: str) -> str:
    for end in ("ing", "ies", "es", "ed", "s"):
        if len(word) > len(end) + 3 and word.endswith(end):
            return word[: -len(end)]
    return word


def most(low: int, high: int, fits: Callable[[int], bool]) -> int:
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
    """Return a text of at most `chars` characters, as `width` counts them, cut between words."""
    if width(text) <= chars:
        return text
    return clipped(text, most(1, chars, lambda n: width(clipped(text, n)) <= chars))


def width(text: str) -> int:
    """Return the characters that a client may count in a text, at most.

    Clients written in JavaScript count in UTF-16. Claude Code normalises text first (NFKC: `…`
    becomes `...`), so a character counts as the longer of itself and that form.

    >>> width("ab"), width("🦊"), width("ab…")
    (2, 2, 5)
    """
    return len(text) + sum(_excess(match[0]) for match in _NOT_ASCII.finditer(text))


_NOT_ASCII = regex(r"[^\x00-\x7f]")


@lru_cache(maxsize=4_096)
def _excess(character: str) -> int:
    forms = (character, unicodedata.normalize("NFKC", character))
    return max(len(form.encode("utf-16-le", "surrogatepass")) // 2 for form in forms) - 1
