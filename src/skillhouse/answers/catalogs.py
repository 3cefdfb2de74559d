"""The lists of skills that a model gets, and which skills fit a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from skillhouse import tools as toolbox
from skillhouse.answers.findings import DiagnosticAnswer
from skillhouse.answers.json_form import Count, JsonAnswer
from skillhouse.answers.skills import (
    AbsentSkillAnswer,
    CodeFactsAnswer,
    SkillAnswer,
    skill_answer,
)
from skillhouse.house.agent_search import CodeMatch, code_matches
from skillhouse.manage import RepositoryFreshness
from skillhouse.retrieval import Fit, HeadIndex, Hit, SearchResult, fit_of, reason, skills_of
from skillhouse.skill import SkillIndex, tokens_of

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.house import AgentView, Skillhouse
    from skillhouse.retrieval import MeaningState
    from skillhouse.skill import Skill


class CatalogAnswer(JsonAnswer, frozen=True, kw_only=True):
    text: str
    tokens: Count
    included: tuple[str, ...]
    omitted: tuple[str, ...]


class PromptCatalogAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The list that a model gets, what its prompt says of it, and the hits of a request."""

    flat_members = ("catalog", "fitting")
    catalog: CatalogAnswer
    prompt: str
    fitting: RequestAnswer | UnsetType = UNSET


class ToolCatalogAnswer(JsonAnswer, frozen=True, kw_only=True):
    chars: Count | None
    listed: Count
    omitted: Count


class CatalogBoundsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The bounds of an agent's catalogs, and how many skills are in each and left out."""

    budget_tokens: Count | None
    tokens: Count
    mcp_tokens: Count
    """What an MCP client sends with each request: description and instructions."""
    listed: Count
    omitted: Count
    tool: ToolCatalogAnswer | None
    """The list in the skill tool's description; null where the profile has none there."""


class AskedCatalogAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The list of an agent in a style, and which skills of it fit a request."""

    flat_members = ("catalog", "fitting")
    agent: str
    request: str
    style: str
    budget_tokens: Count | None
    catalog: CatalogAnswer
    meaning: MeaningAnswer | None
    fitting: RequestAnswer | UnsetType = UNSET


class CodeHitAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill of code alone that fits, with the tools that an agent has of it."""

    flat_members = ("hit",)
    id: str
    name: str
    description: str
    tools: tuple[str, ...]
    hit: HitAnswer


class FoundAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How well the hits fit, and the skills of code alone that do."""

    flat_members = ("fit",)
    fit: FitAnswer
    code: list[CodeHitAnswer]


class SearchAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How well the hits fit, and what search by meaning could do."""

    flat_members = ("found",)
    found: FoundAnswer
    fault: str | None
    meaning: MeaningAnswer | None


class ForgottenAnswer(JsonAnswer, frozen=True, kw_only=True):
    forgotten: Count


class LearningAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Whether search learns from what is loaded."""

    learn: bool


class UnvisitedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Directories of one root that a bound kept from being looked at."""

    root: str
    bound: str
    most: Count
    paths: tuple[str, ...]
    unopened: Count


class UnreadFolderAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A folder of skills that some client reads and no root is."""

    path: str
    skills: Count
    clients: tuple[str, ...]


class ListedSkillsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What `list` says besides the skills that agents see."""

    shadowed: list[SkillAnswer]
    diagnostics: list[DiagnosticAnswer]
    hidden: list[SkillAnswer]
    absent: list[AbsentSkillAnswer]
    left_out: list[UnvisitedAnswer]
    catalog: CatalogBoundsAnswer
    unread_folders: list[UnreadFolderAnswer]
    code: list[CodeFactsAnswer | None]
    states: dict[str, Count]
    listings: dict[str, Count]
    """Of those in use, by how a model hears of them; as the library of the API has it."""
    trust: list[str]
    """What of signatures and repositories' metadata ended or soon does, as lists say it."""
    repositories: list[RepositoryFreshness]


def catalog_answer(catalog: Catalog) -> CatalogAnswer:
    return CatalogAnswer(
        text=catalog.text,
        tokens=catalog.tokens,
        included=tuple(skill.id for skill in catalog.included),
        omitted=tuple(skill.id for skill in catalog.omitted),
    )


def catalog_bounds(view: AgentView) -> CatalogBoundsAnswer:
    whole, over_mcp = view.catalog(), view.over_mcp()
    is_in_tool = view.profile.catalog.exposure == "tool"
    in_tool = 0 if over_mcp is None or not is_in_tool else over_mcp.tokens
    return CatalogBoundsAnswer(
        budget_tokens=view.budget_tokens,
        tokens=whole.tokens,
        mcp_tokens=in_tool + tokens_of(view.prompts().instructions()),
        listed=len(whole.included),
        omitted=len(whole.omitted),
        tool=_tool_catalog(view) if is_in_tool else None,
    )


def omitted_in_tool(bounds: CatalogBoundsAnswer) -> int:
    return bounds.tool.omitted if bounds.tool is not None else 0


def _tool_catalog(view: AgentView) -> ToolCatalogAnswer:
    limit = view.profile.catalog.tool_chars
    chars = None if limit == "none" else limit
    found = view.tool_catalog(toolbox.list_room(view.profile.messages, chars))
    return ToolCatalogAnswer(chars=chars, listed=len(found.included), omitted=len(found.omitted))


class HitAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How well a skill fits a request, and why."""

    score: float
    exact: bool
    fields: tuple[str, ...]
    confidence: float
    matches: dict[str, tuple[str, ...]]
    alike: tuple[str, ...]
    similarity: float
    reason: str
    learned: float


class NamedHitAnswer(JsonAnswer, frozen=True, kw_only=True):
    flat_members = ("hit",)
    id: str
    name: str
    hit: HitAnswer
    listing: str | UnsetType = UNSET


class SkillHitAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill that fits a request; `shadowed_by` is the id of the one that agents see instead."""

    flat_members = ("skill", "hit")
    skill: SkillAnswer
    hit: HitAnswer
    listing: str
    shadowed_by: str | UnsetType = UNSET


class FitAnswer(JsonAnswer, frozen=True, kw_only=True):
    weak: bool
    nothing_fits: bool


class RequestAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Which skills of a list for a request fit it, best first."""

    flat_members = ("fit",)
    hits: list[NamedHitAnswer]
    fit: FitAnswer


class MeaningAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How far search by meaning is."""

    encoders: tuple[str, ...]
    ready: tuple[str, ...]
    done: Count
    total: Count
    fault: str | None


def hit_answer(hit: Hit) -> HitAnswer:
    return HitAnswer(
        score=hit.score,
        exact=hit.exact,
        fields=tuple(hit.fields),
        confidence=round(hit.confidence, 4),
        matches={where: tuple(words) for where, words in hit.matches.items()},
        alike=tuple(hit.alike),
        similarity=round(hit.similarity, 4),
        reason=reason(hit),
        learned=round(hit.learned, 4),
    )


def named_hit(hit: Hit, listing: str | UnsetType = UNSET) -> NamedHitAnswer:
    return NamedHitAnswer(id=hit.id, name=hit.name, hit=hit_answer(hit), listing=listing)


def code_hit(match: CodeMatch) -> CodeHitAnswer:
    return CodeHitAnswer(
        id=match.hit.id,
        name=match.hit.name,
        description=match.description,
        tools=tuple(tool.full_name for tool in match.tools),
        hit=hit_answer(match.hit),
    )


def meaning_answer(state: MeaningState | None) -> MeaningAnswer | None:
    if state is None:
        return None
    return MeaningAnswer(
        encoders=tuple(state.encoders),
        ready=tuple(state.ready),
        done=state.done,
        total=state.total,
        fault=state.fault or None,
    )


class FoundSkills(Struct, frozen=True, kw_only=True):
    """The skills that fit a request."""

    found: SearchResult
    skills: Sequence[Skill]
    """One for each hit."""
    shadowed: Sequence[tuple[Skill, str]]
    """Skills that agents do not see, each with the id of the one that shadows it."""
    marks: Sequence[str] = ()
    """How a model hears of each, as `AgentView.mark`."""
    code: Sequence[CodeMatch] = ()
    """The skills of code alone that fit; requests have their tools without a search."""

    @property
    def fit(self) -> Fit:
        return fit_of([*self.found.hits, *(one.hit for one in self.code)])

    def answer(self) -> FoundAnswer:
        return FoundAnswer(fit=fit_answer(self.fit), code=list(map(code_hit, self.code)))

    def answers(self) -> list[SkillHitAnswer]:
        found = [
            SkillHitAnswer(skill=skill_answer(skill), hit=hit_answer(hit), listing=mark)
            for hit, skill, mark in zip(self.found.hits, self.skills, self.marks, strict=True)
        ]
        more = [
            SkillHitAnswer(
                skill=skill_answer(one), hit=hit_answer(_unranked(one)), listing="", shadowed_by=by
            )
            for one, by in self.shadowed
        ]
        return [*found, *more]


def _unranked(skill: Skill) -> Hit:
    return Hit(id=skill.id, name=skill.name, score=0.0)


def fit_answer(fit: Fit) -> FitAnswer:
    return FitAnswer(weak=fit is not Fit.GOOD, nothing_fits=fit is Fit.NONE)


def search_skills(house: Skillhouse, query: str, limit: int) -> FoundSkills:
    """Return the best skills, best first; SearchError without a full-text module."""
    view = house.view()
    found = view.search.find(query, limit=limit)
    skills = skills_of(view.visible, found.hits)
    shadowed = _shadowed(house.snapshot.shown.index, query, skills, limit)
    marks = [view.mark(skill) for skill in skills]
    code = _code_matches(house, query, limit)
    return FoundSkills(found=found, skills=skills, shadowed=shadowed, marks=marks, code=code)


def _code_matches(house: Skillhouse, query: str, limit: int) -> tuple[CodeMatch, ...]:
    if not house.runs_code:
        return ()
    tools, among = house.tools(every=True), len(house.view().visible)
    return code_matches(tools, query, limit=limit, among=among)


def with_code(house: Skillhouse, hits: Sequence[Hit], query: str, limit: int) -> list[Hit]:
    """Return hits with the skills of code alone, each before those that it fits better than."""
    found = list(hits)
    for match in _code_matches(house, query, limit):
        worse = (at for at, hit in enumerate(found) if hit.confidence < match.hit.confidence)
        found.insert(next(worse, len(found)), match.hit)
    return found


def request_answer(view: AgentView, request: str, catalog: Catalog) -> RequestAnswer:
    found = view.search.find(request, limit=max(len(catalog.included), 1))
    listed = {skill.id for skill in catalog.included}
    hits = [named_hit(hit) for hit in found.hits if hit.id in listed]
    return RequestAnswer(hits=hits, fit=fit_answer(found.fit))


def _shadowed(
    index: SkillIndex, query: str, hits: Sequence[Skill], limit: int
) -> list[tuple[Skill, str]]:
    """Return the shadowed skills that fit, or whose winner does, with the id of that.

    They are found by names and descriptions alone: no index has their bodies.
    """
    if not index.shadowed:
        return []
    names = {skill.name for skill in hits}
    found = [skill for skill in index.shadowed if skill.name in names]
    heads = HeadIndex(SkillIndex(index.shadowed))
    by_id = {skill.id: skill for skill in index.shadowed}
    found += [by_id[hit.id] for hit in heads.search(query, limit=limit)]
    winners = {skill.name: skill.id for skill in index.skills}
    unique = list({skill.file: skill for skill in found}.values())[:limit]
    return [(skill, winners.get(skill.name, "")) for skill in unique]
