"""What the pages and the JSON show: the house at one moment, read under one lock."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillhouse.audit import Trouble
from skillhouse.floor import Diagnostic, Severity, SkillError, TreeError, tree_digest
from skillhouse.frontends.presentation.catalog_report import catalog_notes, catalog_report
from skillhouse.frontends.presentation.service_log import AuditNews
from skillhouse.permission import Effect, Permission
from skillhouse.runtime import AgentView, Explanation, Skillhouse, explain_loading
from skillhouse.skill import Skill, SkillContent, SkillIndex, load

PAGE_SKILLS = 200
"""Skills on one page; each costs a decision, and a project's skill a digest of its files."""
FRESH_SECONDS = 1.0
"""How long what was found is shown again; then the next request looks anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootLine:
    """A directory that was examined."""

    path: Path
    scope: str
    state: str
    """read, missing, or unread: a project that is not trusted."""
    skills: int
    """Skills found there, those denied or shadowed included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowedLine:
    """A skill whose name a stronger one has."""

    skill: Skill
    winner: Skill
    reference: str
    """What leads to it: its id, or its file where a stronger one has the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseStatus:
    """What one look at the house gave."""

    index: SkillIndex
    view: AgentView
    """What the default agent sees of it."""
    by_id: dict[str, Skill]
    by_file: dict[str, Skill]
    shadowed: tuple[ShadowedLine, ...]
    roots: tuple[RootLine, ...]
    is_trusted: bool
    catalog: dict[str, Any]
    """The bounds of the catalogs and what they leave out, as `catalog_report` has it."""
    catalog_notes: tuple[str, ...]
    """The same for people; empty where nothing is left out."""

    @property
    def unread(self) -> bool:
        """Whether the project has skills that are not read."""
        return any(root.state == "unread" for root in self.roots)

    @property
    def errors(self) -> int:
        """Findings that cost a skill or a root."""
        return sum(found.severity is Severity.ERROR for found in self.index.diagnostics)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillVerdict:
    """A skill, and what a model that asks for it meets."""

    skill: Skill
    effect: Effect
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status page: everything found, and one page of the skills in force."""

    project: Path
    profile: str
    found: HouseStatus
    query: str
    """What was searched for; empty shows all skills in catalog order."""
    matches: int
    page: int
    """From 1."""
    pages: int
    skills: tuple[SkillVerdict, ...]
    denied: tuple[SkillVerdict, ...]
    """The first of those that rules deny."""
    audit: tuple[Trouble, ...]
    """What is wrong with the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDetail:
    """Everything about one skill."""

    skill: Skill
    reference: str
    """What leads to it, as in `ShadowedLine`."""
    explanation: Explanation
    content: SkillContent | None
    """None when the file cannot be used any more; `problem` then says why."""
    problem: str
    tree_digest: str
    """Empty when the directory has none; `digest_problem` then says why."""
    digest_problem: str
    shadowed_by: Skill | None
    findings: tuple[Diagnostic, ...]


class StatusReader:
    """Looks at a house for many threads, one at a time, and not more often than it is worth."""

    def __init__(self, house: Skillhouse, clock: Callable[[], float]) -> None:
        """Take the house, and a clock that gives seconds."""
        self._house = house
        self._audit = AuditNews(house.audit_log)
        self._clock = clock
        # INVARIANT: the house is used under this lock only; it is not made for several threads.
        self._lock = threading.Lock()
        self._found: HouseStatus | None = None
        self._found_at = 0.0
        self._search_lock = threading.Lock()

    def status(self, *, query: str = "", page: int = 1) -> Status:
        """Return the status, with the page of the skills nearest to `page`.

        Raises:
            SkillhouseError: the house cannot be read.
        """
        found = self.found()
        skills = self._searched(found, query) if query else found.view.visible.skills
        pages = max(1, -(-len(skills) // PAGE_SKILLS))
        page = min(max(page, 1), pages)
        start = (page - 1) * PAGE_SKILLS
        with self._lock:
            return Status(
                project=self._house.project,
                profile=self._house.profile.name,
                found=found,
                query=query,
                matches=len(skills),
                page=page,
                pages=pages,
                skills=tuple(self._judged(s) for s in skills[start : start + PAGE_SKILLS]),
                denied=tuple(self._denied(skill) for skill in found.view.hidden[:PAGE_SKILLS]),
                audit=self._audit.look(),
            )

    def _searched(self, found: HouseStatus, query: str) -> tuple[Skill, ...]:
        """Return the visible skills that fit, best first, at most a page.

        Under a lock of its own: the first search of all reads all bodies, seconds for 10,000
        skills, and other pages must not wait for it.
        """
        with self._search_lock:
            hits = found.view.search.index().search(query, limit=PAGE_SKILLS)
        return tuple(found.by_id[hit.id] for hit in hits)

    def detail(self, reference: str) -> SkillDetail:
        """Return one skill, by id, file, name or directory name.

        Raises:
            UnknownSkillError: nothing fits.
            AmbiguousSkillError: several fit.
            SkillhouseError: the house cannot be read.
        """
        with self._lock:
            found = self._look()
            # Before names: a skill may be named like the id or the file of another.
            skill = found.by_id.get(reference) or found.by_file.get(reference)
            if skill is None:
                skill = self._house.skill(reference)
            winner = next((s for s in found.index.skills if s.name == skill.name), None)
        content, problem = None, ""
        try:
            content = load(skill)
        except (SkillError, OSError) as error:
            problem = str(error)
        with self._lock:
            explanation = explain_loading(self._house, skill, content=content)
        digest, digest_problem = "", ""
        try:
            digest = tree_digest(skill.directory)
        except TreeError as error:
            digest_problem = str(error)
        listed = [item for item in found.index.diagnostics if item.path == skill.location]
        return SkillDetail(
            skill=skill,
            reference=_reference(skill, found.by_id),
            explanation=explanation,
            content=content,
            problem=problem,
            tree_digest=digest,
            digest_problem=digest_problem,
            shadowed_by=None if winner is skill else winner,
            findings=tuple(dict.fromkeys([*(content.diagnostics if content else ()), *listed])),
        )

    def found(self) -> HouseStatus:
        """Return everything that was found.

        Raises:
            SkillhouseError: the house cannot be read.
        """
        with self._lock:
            return self._look()

    def _look(self) -> HouseStatus:
        """Return what was found a moment ago, or look anew; the lock is held."""
        now = self._clock()
        if self._found is None or now - self._found_at >= FRESH_SECONDS:
            self._found = None
            self._house.refresh()
            self._found = _found(self._house)
            self._found_at = now
        return self._found

    def _judged(self, skill: Skill) -> SkillVerdict:
        explained = explain_loading(self._house, skill)
        return SkillVerdict(skill=skill, effect=explained.decision.effect, reason=explained.reason)

    def _denied(self, skill: Skill) -> SkillVerdict:
        # A rule decided, so the digest that the default would need is not asked for.
        explained = self._house.policy.explain(Permission(action="skill", resource=skill.name))
        return SkillVerdict(skill=skill, effect=explained.decision.effect, reason=explained.reason)


def _found(house: Skillhouse) -> HouseStatus:
    index = house.index
    every = (*index.skills, *index.shadowed)
    by_id: dict[str, Skill] = {}
    for skill in every:
        by_id.setdefault(skill.id, skill)
    in_force = {skill.name: skill for skill in index.skills}
    view = house.view()
    catalog = catalog_report(view)
    return HouseStatus(
        index=index,
        view=view,
        by_id=by_id,
        by_file={skill.file: skill for skill in every},
        shadowed=tuple(
            ShadowedLine(
                skill=skill,
                winner=in_force[skill.name],
                reference=_reference(skill, by_id),
            )
            for skill in index.shadowed
        ),
        roots=_roots(house, index),
        is_trusted=house.trust_store.is_trusted(house.project),
        catalog=catalog,
        catalog_notes=tuple(catalog_notes(catalog, view)),
    )


def _reference(skill: Skill, by_id: dict[str, Skill]) -> str:
    return skill.id if by_id.get(skill.id) is skill else skill.file


def _roots(house: Skillhouse, index: SkillIndex) -> tuple[RootLine, ...]:
    counts = Counter(skill.root for skill in (*index.skills, *index.shadowed))
    unread = {found.path for found in index.diagnostics if found.code == "project-untrusted"}
    lines = []
    for root in house.roots:
        text = str(root.path)
        # Two roots may be one directory; it is counted at the stronger one.
        skills = 0 if "\0" in text else counts.pop(os.path.realpath(text), 0)
        state = "read" if os.path.isdir(text) else "missing"
        if root.path in unread:
            state = "unread"
        lines.append(RootLine(path=root.path, scope=root.scope, state=state, skills=skills))
    return tuple(lines)
