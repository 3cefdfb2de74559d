"""The list of skills that a model sees, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from skillhouse.discovery.catalog_styles import COMPACT, STYLES, CatalogEntry, Style, style_of
from skillhouse.discovery.catalog_text import width
from skillhouse.discovery.names_first import names_first
from skillhouse.floor import ConfigError, nearest
from skillhouse.skill import DEFAULT_PROFILE, Profile, Skill, SkillIndex, tokens_of


class Catalog(Struct, frozen=True, kw_only=True):
    """A rendered list, and what of the index is in it."""

    text: str
    """Empty when there is no skill to list (S000-35), unless the profile has a text for that."""
    included: tuple[Skill, ...]
    omitted: tuple[Skill, ...]
    """Skills that the budget omits, or whose body the style needs and cannot be read; search still
    finds them."""
    cut: tuple[Skill, ...] = ()
    """Included skills whose description or body is not there in full, or not at all."""

    @property
    def tokens(self) -> int:
        return tokens_of(self.text)


def render_catalog(
    index: SkillIndex, *, style: str = "xml", budget_tokens: int | None = None
) -> Catalog:
    """Return the catalog of `index` in its order: whole where the budget has room for it.

    Otherwise every skill is named, and all get an equal share for descriptions (`names_first`). The
    style `direct` reads each body. No such style or a negative budget raises ConfigError.
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
    recent: Mapping[str, int] | None = None,
    by_location: bool = False,
    search: str | None = None,
    files: Callable[[Skill], Sequence[str]] | None = None,
) -> Catalog:
    """Return the catalog of `index` under a profile, within its budgets and these.

    `style` overrides the profile's; `budget_chars` counts as `width` does. The style `compact`
    keeps the order of the index, and the others the profile's, where everything fits. Raises as
    `render_catalog`.

    Args:
        first: Skills of `index` that fit a request, best first; they come before the others.
            Without a request it is None.
        recent: Ranks of skills that were loaded lately, by file; where not everything fits, they
            come next.
        by_location: Name by its file what the layout has no room for: the model reads these.
        search: What the model knows the search tool as, empty for none; None is the profile's.
        files: Gives the names in a skill's directory that a style may list; all of them when None.
    """
    style = style or profile.catalog.style
    _check(style, budget_tokens)
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
    layout = None if style == COMPACT else style_of(style, profile, files)
    if layout is not None and first is None and profile.catalog.overflow != "name_all":
        budget.take(layout.head + layout.tail)
        listed = filled(layout, skills, budget, profile)
        text = f"{layout.head}{_text(listed)}{layout.tail}" if listed else ""
        return _listing(skills, listed, text)
    best = first or ()
    ranked = set(map(id, best))
    skills = (*best, *(skill for skill in skills if id(skill) not in ranked))
    found = names_first(
        skills,
        fits=budget.fits if budget.is_bounded else None,
        urgent=_by_urgency(skills, len(best), recent or {}),
        search=_search_tool(profile) if search is None else search,
        layout=layout,
        best=len(best),
        by_location=by_location,
    )
    return _catalog(skills, found.included, found.cut, found.text)


def _check(style: str, budget_tokens: int | None) -> None:
    if style not in STYLES:
        suggestion = next(iter(nearest(style, STYLES)), STYLES[0])
        raise ConfigError(f"unknown catalog style `{style}`", key=style, suggestion=suggestion)
    if budget_tokens is not None and budget_tokens < 0:
        raise ConfigError(f"expected a budget of 0 tokens or more, got {budget_tokens}")


def _search_tool(profile: Profile) -> str:
    return next((rule.name for rule in profile.tools if rule.kind == "search"), "")


def _by_urgency(
    skills: Sequence[Skill], fitting: int, recent: Mapping[str, int]
) -> Sequence[Skill]:
    """Return skills with those first that fit a request, then those that were loaded lately."""
    if not recent:
        return skills
    last = len(recent)
    others = sorted(skills[fitting:], key=lambda skill: recent.get(skill.file, last))
    return (*skills[:fitting], *others)


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


Listed = tuple[Skill, CatalogEntry]


class Budget:
    """How much of each unit is left."""

    def __init__(self, bounds: Sequence[tuple[int | None, Callable[[str], int]]]) -> None:
        """Take the maximum of each measure; None is no bound."""
        self._left = [(most, measure) for most, measure in bounds if most is not None]

    @property
    def is_bounded(self) -> bool:
        return bool(self._left)

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


def _evenly_shortened(layout: Style, skills: Sequence[Skill], budget: Budget) -> list[Listed]:
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
