"""The list of skills that a model sees, within a budget.

Where not all descriptions fit, it names every skill before it describes any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from skillhouse.discovery.catalog_styles import (
    COMPACT,
    STYLES,
    CatalogEntry,
    Style,
    one_line,
    style_of,
)
from skillhouse.discovery.catalog_text import Descriptions, most, width
from skillhouse.floor import ConfigError, nearest
from skillhouse.floor.structs import replace
from skillhouse.skill import DEFAULT_PROFILE, Profile, Skill, SkillIndex, tokens_of

SHARE_LEAST = 24
"""Characters of a description below which it is no help to choose by: three words."""
SHARE_USEFUL = 60
"""Characters that fewer descriptions get then: about ten words (decision 0153)."""
NAME_CHARS = 128
"""Characters of the longest name that is listed, twice what the specification allows: one name must
not take the space of ten skills. Search finds the others."""
BEST_MOST = 10
"""Skills that fit a request best and are described in full, in at most half of the space."""
BEST_CHARS = 1_024
"""Characters of the description of one of them, those that the specification allows."""
MARKUP_SHARE = 20
"""Markup takes at most one part in so many of the space, since descriptions say more."""
BY_NAME = "by name alone: "
"""Before the names of skills without a description."""
LISTED = "listed"
SEARCH_ONLY = "found by search only"
NOT_LISTED = "not listed"
"""The same where the model has no search."""
OVER_MCP = " over MCP"
"""Appended where only the shorter list over MCP has no room for a skill."""


class NamesFirst(Struct, frozen=True, kw_only=True):
    """A list, and what is in it."""

    text: str
    included: tuple[Skill, ...]
    cut: tuple[Skill, ...]


class ListPlan(Struct, frozen=True, kw_only=True):
    """How far each form goes, counted from the first skill."""

    laid_out: int
    described: int
    named: int
    limit: int | None
    """Characters of a description; None is all of it."""
    tails: bool = True
    """Whether a cut description ends with the beginning of a sentence that says next to nothing."""


def names_first(
    skills: Sequence[Skill],
    *,
    fits: Callable[[str], bool] | None,
    urgent: Sequence[Skill],
    search: str = "",
    layout: Style | None = None,
    best: int = 0,
    by_location: bool = False,
) -> NamesFirst:
    """Return the list of `skills` that fits and says most.

    Args:
        fits: Whether a text does; a shorter one must fit too. Everything fits when None.
        urgent: The same skills in the order in which they get room where not all do.
        search: The tool that finds what is left out.
        layout: None is the plain list alone.
        best: How many of the urgent ones fit a request.
        by_location: Name skills of the plain list by their files, for a model that reads these.
    """
    whole = _List(skills, fits or _anything, search, layout, by_location=by_location)
    if fits is None or whole.fits_whole():
        return whole.made(whole.whole)
    if urgent is not skills:
        whole = _List(urgent, fits, search, layout, by_location=by_location)
    return whole.made(whole.plan(best))


def _anything(_: str) -> bool:
    return True


class _List:
    def __init__(
        self,
        skills: Sequence[Skill],
        fits: Callable[[str], bool],
        search: str,
        layout: Style | None,
        *,
        by_location: bool,
    ) -> None:
        self._all = skills
        self._fits = fits
        self._search = search
        self._layout = layout
        names = Counter(skill.name for skill in skills)
        self._lines: list[tuple[Skill, str]] = []
        for skill in skills:
            unique = skill.name if names[skill.name] == 1 else skill.id
            label = " ".join(one_line(skill.file if by_location else unique).split())
            # A layout has a place for each name; a line is nothing without one.
            if layout is not None or is_listable(skill, label):
                self._lines.append((skill, label))
        self._descriptions = Descriptions([skill for skill, _ in self._lines])
        self._best = 0
        self._marked = 0

    @property
    def whole(self) -> ListPlan:
        total = len(self._lines)
        laid_out = 0 if self._layout is None else total
        return ListPlan(laid_out=laid_out, described=total, named=total, limit=None)

    def fits_whole(self) -> bool:
        """Whether all descriptions fit; many that do not are not all looked at."""
        count = 32
        while count < len(self._lines):
            laid_out = 0 if self._layout is None else count
            plan = ListPlan(laid_out=laid_out, described=count, named=count, limit=None)
            # What is left out is in the first line, which the whole list does not have.
            if not self._fits(self._text(plan, is_whole=True)):
                return False
            count *= 2
        return self._fits(self._text(self.whole))

    def plan(self, best: int) -> ListPlan:
        """Return how far each form goes where not everything fits."""
        self._lines = [(skill, label) for skill, label in self._lines if is_listable(skill, label)]
        total = len(self._lines)
        self._best = best = most(0, min(best, BEST_MOST, total), self._is_half)
        self._marked = self._keeping_layout()
        all_named = self._plan(best, total)
        if not self._holds(all_named):
            named = most(best, total, lambda n: self._holds(self._plan(best, n)))
            if not self._holds(self._plan(best, named)):
                self._best = best = 0
                named = most(0, total, lambda n: self._holds(self._plan(0, n)))
            return self._plan(best, named)
        everyone = replace(self._plan(total, total), limit=SHARE_LEAST)
        if self._holds(everyone):
            return self._longest(everyone)
        fewer = most(best, total, lambda n: self._holds(self._plan(n, total)))
        return self._longest(self._plan(fewer, total))

    def made(self, plan: ListPlan) -> NamesFirst:
        entries = self._entries(plan)
        missing = {id(skill) for skill, entry in entries if entry is None}
        text = self._text(plan)
        if not self._fits(text):
            return NamesFirst(text="", included=(), cut=())
        included = [skill for skill, _ in self._lines[: plan.named] if id(skill) not in missing]
        cut = {id(skill) for skill, entry in entries if entry is not None and entry.is_cut}
        cut.update(id(skill) for skill, _ in self._lines[plan.described : plan.named])
        for at in range(plan.laid_out, plan.described):
            skill = self._lines[at][0]
            limit = self._limit(plan, at)
            if limit is not None and len(self._descriptions.line(skill)) > limit:
                cut.add(id(skill))
        return NamesFirst(
            text=text,
            included=tuple(included),
            cut=tuple(skill for skill in included if id(skill) in cut),
        )

    def _plan(self, described: int, named: int) -> ListPlan:
        laid_out = min(self._marked, described)
        return ListPlan(laid_out=laid_out, described=described, named=named, limit=SHARE_USEFUL)

    def _holds(self, plan: ListPlan) -> bool:
        return self._fits(self._text(plan))

    def _longest(self, plan: ListPlan) -> ListPlan:
        """Return the plan with the longest descriptions that fit.

        What some leave of a last sentence is given to others, if these have a use for it.
        """
        limit = plan.limit or 0
        lines = self._lines[: plan.described]
        longest = max((len(self._descriptions.line(skill)) for skill, _ in lines), default=0)
        longest = max(limit, longest)

        def most_of(plan: ListPlan, low: int) -> ListPlan:
            return replace(
                plan, limit=most(low, longest, lambda n: self._holds(replace(plan, limit=n)))
            )

        equal = most_of(plan, limit)
        given = most_of(replace(equal, tails=False), equal.limit or 0)
        changes = [
            len(self._about(given, at)) - len(self._about(equal, at))
            for at in range(plan.described)
        ]
        used = sum(change for change in changes if change > 0)
        dropped = used - sum(changes)
        return given if 2 * used >= dropped else equal

    def _about(self, plan: ListPlan, at: int) -> str:
        skill, limit = self._lines[at][0], self._limit(plan, at)
        if limit is None:
            return self._descriptions.line(skill)
        return self._descriptions.beginning(skill, limit, tail=plan.tails)

    def _is_half(self, count: int) -> bool:
        """Whether so many of the best take at most half of the space."""
        plan = ListPlan(laid_out=0, described=count, named=count, limit=BEST_CHARS)
        text = self._text(plan, is_whole=True)
        return self._fits(f"{text}\n{text}")

    def _keeping_layout(self) -> int:
        """Return how many skills keep their layout."""
        layout = self._layout
        if layout is None:
            return 0

        def takes_little(count: int) -> bool:
            bare = (layout.entry(skill, 0) for skill, _ in self._lines[:count])
            marked = "".join(entry.text for entry in bare if entry is not None)
            return self._fits((layout.head + marked + layout.tail) * MARKUP_SHARE)

        return most(0, len(self._lines), takes_little)

    def _limit(self, plan: ListPlan, at: int) -> int | None:
        return BEST_CHARS if at < self._best and plan.limit is not None else plan.limit

    def _entries(self, plan: ListPlan) -> list[tuple[Skill, CatalogEntry | None]]:
        layout = self._layout
        if layout is None:
            return []
        laid_out = self._lines[: plan.laid_out]
        beginning = partial(self._descriptions.beginning, tail=plan.tails)
        return [
            (skill, layout.entry(skill, self._limit(plan, at), beginning))
            for at, (skill, _) in enumerate(laid_out)
        ]

    def _text(self, plan: ListPlan, *, is_whole: bool = False) -> str:
        """Return the text; `is_whole` leaves out the line about what is not in it."""
        left = 0 if is_whole else len(self._all) - plan.named
        parts = left_out_line(left, self._search)
        laid_out = "".join(entry.text for _, entry in self._entries(plan) if entry is not None)
        if self._layout is not None and laid_out:
            parts.append(f"{self._layout.head}{laid_out}{self._layout.tail}")
        for at in range(plan.laid_out, plan.described):
            label, about = self._lines[at][1], self._about(plan, at)
            parts.append(f"{label}: {about}" if about else label)
        by_name = ", ".join(label for _, label in self._lines[plan.described : plan.named])
        return "\n".join([*parts, f"{BY_NAME}{by_name}"] if by_name else parts)


def is_listable(skill: Skill, label: str) -> bool:
    return bool(label) and len(skill.name) <= NAME_CHARS


def left_out_line(left: int, search: str) -> list[str]:
    """Return the line that says how many skills are in no list, and by which tool they are found.

    >>> left_out_line(3, "search_skills"), left_out_line(0, "")
    (['3 more: `search_skills`'], [])
    """
    if left == 0:
        return []
    return [f"{left} more: `{search}`" if search else f"{left} more are not listed"]


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

    def marks(
        self, visible: SkillIndex, over_mcp: Catalog, *, can_search: bool
    ) -> Mapping[str, str]:
        """Return how a model hears of each visible skill, by the skill's file.

        This is the list of a request that has the usual room, `over_mcp` what an MCP client gets.
        """
        named = {skill.file for skill in self.included}
        named_over_mcp = {skill.file for skill in over_mcp.included}
        left_out = SEARCH_ONLY if can_search else NOT_LISTED
        marks = {}
        for skill in visible.skills:
            mark = LISTED if skill.file in named_over_mcp else left_out + OVER_MCP
            marks[skill.file] = mark if skill.file in named else left_out
        return marks


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
