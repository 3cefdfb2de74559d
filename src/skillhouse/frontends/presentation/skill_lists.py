"""Lists of skills and hits as plain values; it loads nothing that only one skill needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.floor import dataclass
from skillhouse.frontends.presentation.json_values import hit_value, skill_value
from skillhouse.frontends.presentation.short_paths import clients_of
from skillhouse.frontends.presentation.text import shown
from skillhouse.house.agent_view import LISTED
from skillhouse.retrieval import Fit, HeadIndex, Hit, SearchResult, reason, skills_of
from skillhouse.skill import SkillIndex

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.house import AgentView, Skillhouse
    from skillhouse.skill import Skill


def listed_value(skill: Skill, view: AgentView, home: Path) -> dict[str, Any]:
    """Return a skill as `list` has it: with its root, the clients that read that, and its mark."""
    root = skill.root
    value = {**skill_value(skill), "root": root, "clients": list(clients_of(Path(root), home))}
    return {**value, "listing": view.mark(skill)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The skills that fit a request."""

    found: SearchResult
    skills: Sequence[Skill]
    """One for each hit."""
    shadowed: Sequence[tuple[Skill, str]]
    """Skills that agents do not see, each with the id of the one that shadows it."""
    marks: Sequence[str] = ()
    """How a model hears of each, as `AgentView.mark`."""

    def values(self) -> list[dict[str, Any]]:
        found = [
            {**skill_value(skill), **hit_value(hit), "listing": mark}
            for hit, skill, mark in zip(self.found.hits, self.skills, self.marks, strict=True)
        ]
        more = [
            {**skill_value(one), **hit_value(_unranked(one)), "listing": "", "shadowed_by": by}
            for one, by in self.shadowed
        ]
        return [*found, *more]


def _unranked(skill: Skill) -> Hit:
    return Hit(id=skill.id, name=skill.name, score=0.0)


FIT_TEXTS = {
    Fit.GOOD: "",
    Fit.WEAK: "weak matches, none of which is sure to fit; the nearest:",
    Fit.NONE: "nothing fits well; try other words, or English; the nearest:",
}
"""What a person reads before the hits."""


def fit_value(fit: Fit) -> dict[str, bool]:
    return {"weak": fit is not Fit.GOOD, "nothing_fits": fit is Fit.NONE}


def why(hit: Hit) -> str:
    """Return for a person why a skill is a hit, and the ids of its copies."""
    return "; ".join(why_parts(hit))


def why_parts(hit: Hit) -> list[str]:
    also = [f"also: {', '.join(map(shown, hit.alike))}"] if hit.alike else []
    return [shown(reason(hit)), *also]


def search_answer(house: Skillhouse, query: str, limit: int) -> SearchAnswer:
    """Return the best skills, best first; SearchError without a full-text module."""
    view = house.view()
    found = view.search.find(query, limit=limit)
    skills = skills_of(view.visible, found.hits)
    shadowed = _shadowed(house.snapshot.shown.index, query, skills, limit)
    marks = [view.mark(skill) for skill in skills]
    return SearchAnswer(found=found, skills=skills, shadowed=shadowed, marks=marks)


def unlisted(mark: str) -> list[str]:
    """Return the mark of a skill for a line about it; nothing of one that every list names."""
    return [mark] if mark not in ("", LISTED) else []


def request_value(view: AgentView, request: str, catalog: Catalog) -> Mapping[str, Any]:
    """Return which skills of a list for a request fit it and why, best first."""
    found = view.search.find(request, limit=max(len(catalog.included), 1))
    listed = {skill.id for skill in catalog.included}
    hits = [{"id": hit.id, "name": hit.name, **hit_value(hit)} for hit in found.hits]
    return {"hits": [hit for hit in hits if hit["id"] in listed], **fit_value(found.fit)}


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
