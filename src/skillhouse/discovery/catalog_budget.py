"""Which entries of a laid-out list fit into its budget.

Each way of filling takes the skills in their order and returns the entries that fit. They differ in
what becomes of a skill that does not: the list ends there, its description is dropped, all
descriptions are shortened, or, where the order is one of relevance, the next skill is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from skillhouse.discovery.catalog_styles import CatalogEntry, Style
from skillhouse.skill import Profile, Skill

Listed = tuple[Skill, CatalogEntry]

PASSED_OVER = 20
"""Skills in a row that do not fit, after which a list by relevance is taken to be full."""
RELEVANT_CHARS = 1_024
"""Characters of a description in a list by relevance, those that the specification allows: words
that fit every request must not take the place of all other skills."""


class Budget:
    """How much of each unit is left."""

    def __init__(self, bounds: Sequence[tuple[int | None, Callable[[str], int]]]) -> None:
        """Take the maximum of each measure; None is no bound."""
        self._left = [(most, measure) for most, measure in bounds if most is not None]

    def copy(self) -> Budget:
        return Budget(self._left)

    def fits(self, text: str, instead_of: str = "") -> bool:
        """Whether `text` fits after `instead_of`, which was counted before, is removed."""
        return all(measure(text) - measure(instead_of) <= left for left, measure in self._left)

    def take(self, text: str, instead_of: str = "") -> None:
        self._left = [
            (left - measure(text) + measure(instead_of), measure) for left, measure in self._left
        ]


def filled(
    layout: Style, skills: Sequence[Skill], budget: Budget, profile: Profile
) -> list[Listed]:
    """Return the entries that fit, as the profile fills a list."""
    match profile.catalog.overflow:
        case "drop_descriptions":
            return _names_then_descriptions(layout, skills, budget)
        case "shorten":
            return _evenly_shortened(layout, skills, budget)
        case _:
            return list(_until_full(layout, skills, budget))


def filled_by_relevance(layout: Style, skills: Sequence[Skill], budget: Budget) -> list[Listed]:
    """Return the entries that fit, the best skills first; one that is too long leaves its place."""
    listed: list[Listed] = []
    passed_over = 0
    for skill in skills:
        entry = layout.entry(skill, RELEVANT_CHARS)
        if entry is None:
            continue
        if budget.fits(entry.text):
            budget.take(entry.text)
            listed.append((skill, entry))
            passed_over = 0
        else:
            passed_over += 1
            if passed_over == PASSED_OVER:
                break
    return listed


def _until_full(layout: Style, skills: Sequence[Skill], budget: Budget) -> Iterator[Listed]:
    """Yield the entries before the first one that does not fit."""
    for skill in skills:
        entry = layout.entry(skill, None)
        if entry is None:
            continue
        if not budget.fits(entry.text):
            return
        budget.take(entry.text)
        yield skill, entry


def _names_then_descriptions(
    layout: Style, skills: Sequence[Skill], budget: Budget
) -> list[Listed]:
    """Return as many names as fit, and then descriptions from the first one on."""
    listed: list[Listed] = []
    for skill in skills:
        bare = layout.entry(skill, 0)
        if bare is None or not budget.fits(bare.text):
            break
        budget.take(bare.text)
        listed.append((skill, bare))
    for place, (skill, bare) in enumerate(listed):
        entry = layout.entry(skill, None)
        if entry is None:
            continue
        if not budget.fits(entry.text, instead_of=bare.text):
            break
        budget.take(entry.text, instead_of=bare.text)
        listed[place] = (skill, entry)
    return listed


def _evenly_shortened(
    layout: Style, skills: Sequence[Skill], budget: Budget
) -> list[Listed]:
    whole = _all_of(layout, skills, budget, None)
    if whole is not None:
        return whole
    fitting = _all_of(layout, skills, budget, 0)
    if fitting is None:
        return _names_then_descriptions(layout, skills, budget)
    low, high = 0, max(len(skill.description) for skill in skills)
    while high - low > 1:
        middle = (low + high) // 2
        listed = _all_of(layout, skills, budget, middle)
        if listed is None:
            high = middle
        else:
            low, fitting = middle, listed
    return fitting


def _all_of(
    layout: Style, skills: Sequence[Skill], budget: Budget, chars: int | None
) -> list[Listed] | None:
    """Return the entries with descriptions of that length, or None when they do not fit."""
    entries = [(skill, layout.entry(skill, chars)) for skill in skills]
    listed = [(skill, entry) for skill, entry in entries if entry is not None]
    return listed if budget.fits("".join(entry.text for _, entry in listed)) else None
