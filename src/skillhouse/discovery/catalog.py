"""The list of skills that a model sees, within a budget.

For places that hold few characters it is compact: `name: first sentence`, one a line. As many
skills as fit are named with a useful part of their sentence, before any gets more of it: a model
can ask for a skill whose name it knows, and cannot for one that it never saw.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

from skillhouse.discovery.catalog_budget import Budget, Listed, filled, filled_by_relevance
from skillhouse.discovery.catalog_styles import (
    COMPACT,
    STYLES,
    Style,
    one_line,
    shortened,
    style_of,
)
from skillhouse.floor import ConfigError, dataclass, nearest
from skillhouse.floor.regex import regex
from skillhouse.skill import DEFAULT_PROFILE, Profile, Skill, SkillIndex, tokens_of

READ_CHARS = 2_048
"""Characters of a description in which its first sentence is looked for; the specification allows
1,024 (`description`)."""
ELLIPSIS = "…"
"""Appended to a sentence that was cut; one character where `...` takes three."""

_PARAGRAPH = regex(r"\n[ \t]*\n")
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


def first_sentence(text: str) -> str:
    """Return the first sentence of a text as one line; the first paragraph when none ends.

    A full stop ends a sentence when a blank and no small letter follow, and the word before it is
    not an abbreviation, an initial or a number at the start.

    >>> first_sentence("Reads PDFs, e.g. forms (v1.2). Use when asked.")
    'Reads PDFs, e.g. forms (v1.2).'
    """
    paragraph = _PARAGRAPH.split(text[:READ_CHARS].strip(), maxsplit=1)[0]
    line = _MARKUP.sub("", " ".join(one_line(paragraph).split()))
    for stop in _END.finditer(line):
        if _ends(line, stop):
            return line[: stop.end()]
    return line


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
not take the space of ten skills. Search finds the others."""
HEAD_LINES = 10
"""Lines that take no more space than the first line, at most."""

CompactList = tuple[tuple[Skill, ...], tuple[Skill, ...], str]
"""Included skills, those among them whose sentence was cut, the text."""


def compact_list(
    skills: Sequence[Skill], *, fits: Callable[[str], bool], search: str = ""
) -> CompactList:
    """Return the longest list that fits, from the first skill on.

    Where skills are left out, the first line says how many and by which tool, `search`, they are
    found. A sentence that is cut ends in `…`. A shorter text than one that fits must fit too.
    """
    names = Counter(skill.name for skill in skills)
    labelled = (
        (skill, " ".join(one_line(skill.name if names[skill.name] == 1 else skill.id).split()))
        for skill in skills
        if len(skill.name) <= NAME_CHARS
    )
    lines = [_Line(skill, label) for skill, label in labelled if label]

    def text(count: int, limit: int) -> str:
        texts = [line.text(limit) for line in lines[:count]]
        return "\n".join([*_head(len(skills) - count, search), *texts])

    def most_lines(most: int, limit: int) -> int:
        count = _most(0, most, lambda n: fits(text(n, limit)))
        # The whole list needs no first line, which takes the space of a few short ones.
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
    """Return a text of at most `chars` characters, as `width` counts them, cut between words."""
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
    return len(text) + sum(_excess(match[0]) for match in _NOT_ASCII.finditer(text))


_NOT_ASCII = regex(r"[^\x00-\x7f]")


@lru_cache(maxsize=4_096)
def _excess(character: str) -> int:
    forms = (character, unicodedata.normalize("NFKC", character))
    return max(len(form.encode("utf-16-le", "surrogatepass")) // 2 for form in forms) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A rendered list, and what of the index is in it."""

    text: str
    """Empty when there is no skill to list (S000-35), unless the profile has a text for that."""
    included: tuple[Skill, ...]
    omitted: tuple[Skill, ...]
    """Skills that the budget omits, or whose body the style needs and cannot be read; search still
    finds them."""
    cut: tuple[Skill, ...] = ()
    """Included skills whose description, body or (style `compact`) first sentence was cut."""

    @property
    def tokens(self) -> int:
        return tokens_of(self.text)


def render_catalog(
    index: SkillIndex, *, style: str = "xml", budget_tokens: int | None = None
) -> Catalog:
    """Return the catalog of `index` in its order, cut where the next skill breaks the budget.

    The style `direct` reads each body. No such style or a negative budget raises ConfigError.
    """
    return catalog_under(DEFAULT_PROFILE, index, style=style, budget_tokens=budget_tokens)


def catalog_under(
    profile: Profile,
    index: SkillIndex,
    *,
    style: str | None = None,
    budget_tokens: int | None = None,
    budget_chars: int | None = None,
    first: Sequence[Skill] | None = None,
) -> Catalog:
    """Return the catalog of `index` under a profile, within its budgets and these.

    `style` overrides the profile's; `budget_chars` counts as `width` does. The style `compact`
    keeps the order of the index, and the others the profile's. Raises as `render_catalog`.

    `first` are the skills of `index` that fit a request, best first; they come before the others.
    Every style then begins with how many skills are left out, and a skill that is too long leaves
    its place to the next. Without a request it is None.
    """
    style = style or profile.catalog.style
    if style not in STYLES:
        suggestion = next(iter(nearest(style, STYLES)), STYLES[0])
        raise ConfigError(f"unknown catalog style `{style}`", key=style, suggestion=suggestion)
    if budget_tokens is not None and budget_tokens < 0:
        raise ConfigError(f"expected a budget of 0 tokens or more, got {budget_tokens}")
    skills: Sequence[Skill] = index.skills
    if not skills:
        return Catalog(text=profile.catalog.empty, included=(), omitted=())
    bytes_most = None if budget_tokens is None else 4 * budget_tokens
    budget = Budget(
        (
            (bytes_most, lambda text: len(text.encode())),
            (profile.catalog.budget_chars, len),
            (budget_chars, width),
        )
    )
    if profile.catalog.sort == "name" and style != COMPACT:
        skills = sorted(skills, key=lambda skill: (skill.name, skill.file))
    if first is not None:
        ranked = set(map(id, first))
        skills = (*first, *(skill for skill in skills if id(skill) not in ranked))
    search = next((rule.name for rule in profile.tools if rule.kind == "search"), "")
    if style == COMPACT:
        return _catalog(skills, *compact_list(skills, fits=budget.fits, search=search))
    layout = style_of(style, profile)
    if first is not None:
        return _by_relevance(layout, skills, budget, search)
    budget.take(layout.head + layout.tail)
    listed = filled(layout, skills, budget, profile)
    return _listing(skills, listed, f"{layout.head}{_text(listed)}{layout.tail}" if listed else "")


def _by_relevance(layout: Style, skills: Sequence[Skill], budget: Budget, search: str) -> Catalog:
    """Return the catalog of skills that are sorted by relevance.

    The line about what is left out is the one of `compact_list`; the published layouts have none.
    """
    frame = layout.head + layout.tail
    [longest_line] = _head(len(skills), search)
    beside_line = budget.copy()
    beside_line.take(f"{longest_line}\n{frame}")
    listed = filled_by_relevance(layout, skills, beside_line)
    if 0 < len(skills) - len(listed) <= HEAD_LINES:
        # The whole list needs no line, which takes the space of a few short entries.
        without_line = budget.copy()
        without_line.take(frame)
        whole = filled_by_relevance(layout, skills, without_line)
        listed = whole if len(whole) == len(skills) else listed
    line = "\n".join(_head(len(skills) - len(listed), search))
    if not listed:
        return _listing(skills, [], line if budget.fits(line) else "")
    text = f"{layout.head}{_text(listed)}{layout.tail}"
    return _listing(skills, listed, f"{line}\n{text}" if line else text)


def _text(listed: Sequence[Listed]) -> str:
    return "".join(entry.text for _, entry in listed)


def _listing(skills: Sequence[Skill], listed: Sequence[Listed], text: str) -> Catalog:
    included = tuple(skill for skill, _ in listed)
    cut = tuple(skill for skill, entry in listed if entry.is_cut)
    return _catalog(skills, included, cut, text)


def _catalog(
    skills: Sequence[Skill], included: tuple[Skill, ...], cut: tuple[Skill, ...], text: str
) -> Catalog:
    taken = set(map(id, included))
    omitted = tuple(skill for skill in skills if id(skill) not in taken)
    return Catalog(text=text, included=included, omitted=omitted, cut=cut)
