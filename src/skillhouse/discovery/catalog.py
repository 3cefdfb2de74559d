"""The list of skills that a model sees, within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skillhouse.discovery.catalog_styles import COMPACT, STYLES, CatalogEntry, Style, style_of
from skillhouse.discovery.compact import compact_list, width
from skillhouse.floor import ConfigError, nearest
from skillhouse.skill import DEFAULT_PROFILE, Profile, Skill, SkillIndex, tokens_of


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
        """Estimated tokens of the text: UTF-8 bytes / 4, rounded up."""
        return tokens_of(self.text)


def render_catalog(
    index: SkillIndex, *, style: str = "xml", budget_tokens: int | None = None
) -> Catalog:
    """Return the catalog of `index` in its order, cut where the next skill breaks the budget.

    Args:
        index: The skills; hidden ones were removed before. The style `direct` reads each body.
        style: The renderer.
        budget_tokens: Most tokens the whole text may have; None is no bound.

    Raises:
        ConfigError: no renderer has that name, or the budget is negative.
    """
    return catalog_under(DEFAULT_PROFILE, index, style=style, budget_tokens=budget_tokens)


def catalog_under(
    profile: Profile,
    index: SkillIndex,
    *,
    style: str | None = None,
    budget_tokens: int | None = None,
    budget_chars: int | None = None,
) -> Catalog:
    """Return the catalog of `index` under a profile, within its budgets and these.

    Args:
        profile: Its `catalog`, the names of its scopes and of its skill tool.
        index: What to list.
        style: Another renderer than the profile's.
        budget_tokens: Most tokens the whole text may have; None is no bound.
        budget_chars: Most characters, as `width` counts them; None is no bound. The style `compact`
            keeps the order of the index, and the others the profile's.

    Raises:
        ConfigError: as `render_catalog`.
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
    budget = _Budget(budget_tokens, profile.catalog.budget_chars, budget_chars)
    if style == COMPACT:
        return _compact(profile, skills, budget)
    if profile.catalog.sort == "name":
        skills = sorted(skills, key=lambda skill: (skill.name, skill.file))
    layout = style_of(style, profile)
    budget.take(layout.head + layout.tail)
    listed: Sequence[Listed] | None = None
    match profile.catalog.overflow:
        case "drop_descriptions":
            listed = _names_then_descriptions(layout, skills, budget)
        case "shorten":
            listed = _evenly_shortened(layout, skills, budget)
    if listed is None:
        listed = list(_until_full(layout, skills, budget))
    return _catalog(layout, skills, listed)


def _compact(profile: Profile, skills: Sequence[Skill], budget: _Budget) -> Catalog:
    search = next((rule.name for rule in profile.tools if rule.kind == "search"), "")
    included, cut, text = compact_list(skills, fits=budget.fits, search=search)
    taken = set(map(id, included))
    omitted = tuple(skill for skill in skills if id(skill) not in taken)
    return Catalog(text=text, included=included, omitted=omitted, cut=cut)


class _Budget:
    def __init__(self, tokens: int | None, characters: int | None, units: int | None) -> None:
        self._bytes = None if tokens is None else 4 * tokens
        self._characters = characters
        self._units = units

    def fits(self, text: str, instead_of: str = "") -> bool:
        """Whether `text` fits after `instead_of`, which was counted before, is removed."""
        if self._bytes is not None and len(text.encode()) - len(instead_of.encode()) > self._bytes:
            return False
        if self._units is not None and width(text) - width(instead_of) > self._units:
            return False
        return self._characters is None or len(text) - len(instead_of) <= self._characters

    def take(self, text: str, instead_of: str = "") -> None:
        if self._bytes is not None:
            self._bytes -= len(text.encode()) - len(instead_of.encode())
        if self._characters is not None:
            self._characters -= len(text) - len(instead_of)
        if self._units is not None:
            self._units -= width(text) - width(instead_of)


Listed = tuple[Skill, CatalogEntry]


def _until_full(layout: Style, skills: Sequence[Skill], budget: _Budget) -> Iterator[Listed]:
    """Yield the entries before the first one that does not fit."""
    for skill in skills:
        entry = layout.entry(skill, chars=None)
        if entry is None:
            continue
        if not budget.fits(entry.text):
            return
        budget.take(entry.text)
        yield skill, entry


def _names_then_descriptions(
    layout: Style, skills: Sequence[Skill], budget: _Budget
) -> list[Listed]:
    """Return as many names as fit, and then descriptions from the first one on."""
    listed: list[Listed] = []
    for skill in skills:
        bare = layout.entry(skill, chars=0)
        if bare is None or not budget.fits(bare.text):
            break
        budget.take(bare.text)
        listed.append((skill, bare))
    for place, (skill, bare) in enumerate(listed):
        entry = layout.entry(skill, chars=None)
        if entry is None:
            continue
        if not budget.fits(entry.text, instead_of=bare.text):
            break
        budget.take(entry.text, instead_of=bare.text)
        listed[place] = (skill, entry)
    return listed


def _evenly_shortened(
    layout: Style, skills: Sequence[Skill], budget: _Budget
) -> list[Listed] | None:
    """Return all with the longest descriptions that fit; None if all fit whole."""
    if _all_of(layout, skills, budget, None) is not None:
        return None
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
    layout: Style, skills: Sequence[Skill], budget: _Budget, chars: int | None
) -> list[Listed] | None:
    """Return the entries with descriptions of that length, or None when they do not fit."""
    entries = [(skill, layout.entry(skill, chars=chars)) for skill in skills]
    listed = [(skill, entry) for skill, entry in entries if entry is not None]
    return listed if budget.fits("".join(entry.text for _, entry in listed)) else None


def _catalog(layout: Style, skills: Sequence[Skill], listed: Sequence[Listed]) -> Catalog:
    included = tuple(skill for skill, _ in listed)
    taken = set(map(id, included))
    text = "".join(entry.text for _, entry in listed)
    return Catalog(
        text=f"{layout.head}{text}{layout.tail}" if listed else "",
        included=included,
        omitted=tuple(skill for skill in skills if id(skill) not in taken),
        cut=tuple(skill for skill, entry in listed if entry.is_cut),
    )
