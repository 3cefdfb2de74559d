"""What the command line and the HTTP API answer about skills, with the same JSON values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse import runtime
from skillhouse.floor import (
    TreeError,
    UnknownSkillError,
    UnusableSkillError,
    dataclass,
    tree_digest,
)
from skillhouse.frontends.presentation.json_values import (
    content_value,
    explanation_value,
    facts_value,
    skill_value,
)
from skillhouse.frontends.presentation.short_paths import clients_of
from skillhouse.retrieval import HeadIndex, skills_of
from skillhouse.runtime.code_facts import LOCKS
from skillhouse.skill import (
    JAVASCRIPT_FILE,
    PYTHON_FILE,
    SkillContent,
    SkillIndex,
    list_resources,
    read_manifest,
)

if TYPE_CHECKING:
    from skillhouse.retrieval import Hit
    from skillhouse.runtime import CodeFacts, Skillhouse
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
            {**skill_value(skill), "score": hit.score, "fields": list(hit.fields)}
            for hit, skill in zip(self.hits, self.skills, strict=True)
        ]
        nothing = {"score": 0.0, "fields": []}
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


def found_skill(house: Skillhouse, reference: str) -> SkillContent | CodeFacts:
    """Return a skill, or one of code alone, which has no SKILL.md.

    Raises:
        UnknownSkillError: there is none, with the nearest of both kinds; `UnusableSkillError` where
            it is known why it cannot be used.
    """
    try:
        return house.load(reference)
    except UnknownSkillError as error:
        try:
            return runtime.facts_named(house, reference)
        except UnknownSkillError as nearest:
            if isinstance(error, UnusableSkillError):
                raise error from None
            raise UnknownSkillError(error.reference, nearest.suggestions, hint=error.hint) from None


def shown_value(house: Skillhouse, found: SkillContent | CodeFacts) -> dict[str, Any]:
    """Return everything that is known of one skill, but its body."""
    if not isinstance(found, SkillContent):
        return {"tree_digest": digest_of(found.directory), "code": facts_value(found)}
    skill = found.skill
    state = runtime.state_of(house, skill)
    explained = runtime.explain_loading(house, skill, content=found)
    code = runtime.facts_at(house, skill.directory, skill.scope)
    plain = content_value(found)
    del plain["body"]
    plain["frontmatter"] = dict(skill.frontmatter.fields)
    plain |= {"tree_digest": digest_of(skill.directory), "code": facts_value(code)}
    plain |= {"state": state.state, "state_reason": state.text}
    return {**plain, "decision": explanation_value(explained)}


def digest_of(directory: Path) -> str | None:
    """Return the digest of a skill's files; None where they cannot be bound to one."""
    try:
        return tree_digest(directory)
    except TreeError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFiles:
    """The files of a skill besides its SKILL.md."""

    directory: Path
    names: Sequence[str]
    omitted: int
    types: dict[str, str]

    @property
    def total(self) -> int:
        return len(self.names) + self.omitted

    def more(self) -> dict[str, Any]:
        """Return what the list of names has besides."""
        directory = os.fspath(self.directory)
        return {
            "directory": directory,
            "resources_omitted": self.omitted,
            "types": self.types,
        }


def files_answer(house: Skillhouse, reference: str) -> SkillFiles:
    """Return the files of a skill; errors as `found_skill`."""
    found = found_skill(house, reference)
    if isinstance(found, SkillContent):
        directory, names, omitted = found.directory, found.resources, found.resources_omitted
    else:
        directory = found.directory
        names, omitted = list_resources(directory)
    types = {name: _file_type(directory, name) for name in names}
    return SkillFiles(directory=directory, names=names, omitted=omitted, types=types)


def _file_type(directory: Path, name: str) -> str:
    """Return the type of a file; of a skill with code, also which are its manifest and module."""
    manifest = read_manifest(directory).manifest
    if manifest is not None:
        if name == manifest.entry:
            return "code"
        if name == (PYTHON_FILE if manifest.language == "python" else JAVASCRIPT_FILE):
            return "manifest"
        if name in LOCKS[manifest.language]:
            return "lock"
    return runtime.file_kind(name)
