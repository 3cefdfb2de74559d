"""Lists of skills and hits as plain values; it loads nothing that only one skill needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.floor import dataclass
from skillhouse.frontends.presentation.json_values import hit_value, skill_value
from skillhouse.frontends.presentation.short_paths import clients_of
from skillhouse.retrieval import HeadIndex, skills_of
from skillhouse.skill import SkillIndex

if TYPE_CHECKING:
    from skillhouse.retrieval import Hit
    from skillhouse.runtime import Skillhouse
    from skillhouse.skill import Skill


def listed_value(skill: Skill) -> dict[str, Any]:
    """Return a skill as `list` has it: with its root, and the clients that read that."""
    root = skill.root
    return {**skill_value(skill), "root": root, "clients": list(clients_of(Path(root)))}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The skills that fit a request."""

    hits: Sequence[Hit]
    skills: Sequence[Skill]
    """One for each hit."""
    shadowed: Sequence[tuple[Skill, str]]
    """Skills that agents do not see, each with the id of the one that shadows it."""

    def values(self) -> list[dict[str, Any]]:
        found = [
            {**skill_value(skill), **hit_value(hit)}
            for hit, skill in zip(self.hits, self.skills, strict=True)
        ]
        nothing = {
            "score": 0.0,
            "fields": [],
            "confidence": 0.0,
            "matches": {},
            "alike": [],
            "similarity": 0.0,
        }
        more = [{**skill_value(one), **nothing, "shadowed_by": by} for one, by in self.shadowed]
        return [*found, *more]


def search_answer(house: Skillhouse, query: str, limit: int) -> SearchAnswer:
    """Return the best skills, best first; SearchError without a full-text module."""
    hits = house.search(query, limit=limit)
    skills = skills_of(house.index, hits)
    return SearchAnswer(
        hits=hits, skills=skills, shadowed=_shadowed(house.index, query, skills, limit)
    )


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
