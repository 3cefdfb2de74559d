"""The status that pages and JSON show: a scan of the skills, read under one lock."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from msgspec import Struct

import skillhouse
from skillhouse.answers.catalogs import (
    CatalogBoundsAnswer,
    catalog_bounds,
    omitted_in_tool,
    with_code,
)
from skillhouse.answers.doctor import (
    InstanceAnswer,
    RootAnswer,
    StatusAnswer,
)
from skillhouse.answers.skills import (
    absent_skill,
)
from skillhouse.audit import Trouble
from skillhouse.floor import (
    Diagnostic,
    Severity,
    SkillError,
    SkillhouseError,
    TreeError,
    UnknownSkillError,
)
from skillhouse.house import (
    AbsentSkill,
    AgentView,
    Explanation,
    Skillhouse,
    check_for_person,
    explain_loading,
)
from skillhouse.manage import (
    CodeFacts,
    RepositoryFreshness,
    changed_skills,
    facts_at,
    find_skill,
    offered_code,
    repository_freshness,
    state_of,
    trust_notes,
)
from skillhouse.presentation.library import catalog_notes
from skillhouse.presentation.service_log import AuditNews
from skillhouse.presentation.skill_answers import or_unread
from skillhouse.retrieval import Fit, Hit, fit_of
from skillhouse.skill import Skill, SkillContent, SkillIndex, followed_digest, load
from skillhouse.store import STATE, STATE_FILE, commit_stamp, pooled, state_exists, state_server

logger = logging.getLogger(__name__)

HITS_MAX = 50
"""Skills that a search shows."""
CHANGED_MAX = 200
"""Installed skills whose change is named."""
FRESH_SECONDS = 1.0
"""Age from which a request scans again."""


class ShadowedLine(Struct, frozen=True, kw_only=True):
    skill: Skill
    winner: Skill
    reference: str
    """Its id, or its file if a skill of higher precedence has the same id."""


class SkillScan(Struct, frozen=True, kw_only=True):
    index: SkillIndex
    view: AgentView
    """The view of the default agent."""
    by_id: dict[str, Skill]
    by_file: dict[str, Skill]
    shadowed: tuple[ShadowedLine, ...]
    roots: tuple[RootAnswer, ...]
    is_trusted: bool
    catalog: CatalogBoundsAnswer
    """The bounds of the catalogs and what they leave out, from `catalog_bounds`."""
    code: tuple[CodeFacts, ...]
    """The skills with tools of their own; empty where skills' code is off."""
    catalog_notes: tuple[str, ...]
    """The same as text; empty if nothing is left out."""

    def reference_of(self, skill: Skill) -> str:
        """Return by what a skill is named here: its id, or its file where another has the id."""
        return _reference(skill, self.by_id)

    @property
    def unread(self) -> bool:
        return any(root.state == "unread" for root in self.roots)

    @property
    def errors(self) -> int:
        return sum(one.severity is Severity.ERROR for one in self.index.diagnostics)


class Status(Struct, frozen=True, kw_only=True):
    """What the start page says besides the skills."""

    project: Path
    profile: str
    scan: SkillScan
    changed: tuple[AbsentSkill, ...]
    """The first installed skills that are not as they were installed."""
    audit: tuple[Trouble, ...]
    """Faults of the audit log."""
    config_fault: str
    """Why a configuration file cannot be used; or empty."""
    trust: tuple[str, ...]
    """What of signatures and repositories' metadata ended or soon does."""
    repositories: tuple[RepositoryFreshness, ...]


class SkillDetail(Struct, frozen=True, kw_only=True):
    skill: Skill
    reference: str
    """As in `ShadowedLine`."""
    explanation: Explanation
    mark: str
    """How a model hears of it, as `AgentView.mark`."""
    content: SkillContent | None
    """None if the file cannot be used now; `problem` is why."""
    problem: str
    tree_digest: str
    """Empty if the directory has none; `digest_problem` is why."""
    digest_problem: str
    shadowed_by: Skill | None
    state: AbsentSkill
    """Whether agents see it, and why not."""
    findings: tuple[Diagnostic, ...]
    code: CodeFacts | None
    """None for a skill without tools of its own."""


class FoundInPage(Struct, frozen=True, kw_only=True):
    """The skills that fit a request, those of code alone among them."""

    hits: tuple[Hit, ...] = ()
    fit: Fit = Fit.GOOD


class StatusReader:
    """Reads the status for many threads, one at a time; scans are reused for `FRESH_SECONDS`, or
    until the state changes: another server of it may have changed a skill."""

    def __init__(self, house: Skillhouse, clock: Callable[[], float]) -> None:
        """Store the dependencies; `clock` returns seconds."""
        self._house = house
        self._audit = AuditNews(house.audit_log)
        self._clock = clock
        # INVARIANT: `house` is used under this lock only, since it is not thread-safe.
        self._lock = threading.Lock()
        self._last_scan: SkillScan | None = None
        self._scanned_at = 0.0
        self._state = house.config.state_directory / STATE_FILE
        self._stamp: tuple[int, ...] = ()
        """Of the state before the last scan."""
        self._search_lock = threading.Lock()

    def status(self) -> Status:
        """Return the status; raises SkillhouseError."""
        scan = self.scan()
        with self._lock:
            return Status(
                project=self._house.project,
                profile=self._house.policy.profile.name,
                scan=scan,
                changed=tuple(islice(changed_skills(self._house), CHANGED_MAX)),
                audit=self._audit.look(),
                config_fault=self._house.config_reload.fault,
                trust=tuple(trust_notes(self._house)),
                repositories=tuple(repository_freshness(self._house)),
            )

    def found(self, scan: SkillScan, query: str, agent: str = "default") -> FoundInPage:
        """Return the skills that an agent sees and that fit, best first, at most `HITS_MAX`.

        Each skill of code alone is before those that it fits better than.

        It has a lock of its own: the first search reads all bodies, which takes seconds for 10,000
        skills, and other pages must not wait for it.
        """
        view = scan.view
        if agent != "default":
            with self._lock:
                view = self._house.view(agent)
        with self._search_lock:
            found = view.search.find(query, limit=HITS_MAX).hits
        with self._lock:
            hits = with_code(self._house, found, query, HITS_MAX)
        return FoundInPage(hits=tuple(hits), fit=fit_of(hits))

    def detail(self, reference: str) -> SkillDetail:
        """Return one skill, by id, file, name or directory name.

        Raises UnknownSkillError, or UnusableSkillError where it is known why it cannot be used,
        AmbiguousSkillError, or SkillhouseError for an unusable state.
        """
        with self._lock:
            scan = self._fresh_scan()
            # Before names: a skill may have the id or file of another as its name.
            skill = scan.by_id.get(reference) or scan.by_file.get(reference)
            if skill is None:
                try:
                    skill = find_skill(self._house, reference)
                except UnknownSkillError as error:
                    raise or_unread(self._house, error) from None
            winner = next((s for s in scan.index.skills if s.name == skill.name), None)
        content, problem = None, ""
        try:
            check = self._house.services.installed_check.fault
            check_for_person(self._house.config.remote_directory, skill, check)
            content = load(skill)
        except (SkillError, OSError) as error:
            problem = str(error)
        with self._lock:
            state = state_of(self._house, skill)
            explanation = explain_loading(self._house, skill, content=content)
            code = facts_at(self._house, skill.directory, skill.scope)
        digest, digest_problem = "", ""
        try:
            digest = followed_digest(skill, content.links if content else None)
        except TreeError as error:
            digest_problem = str(error)
        listed = [item for item in scan.index.diagnostics if item.path == skill.location]
        return SkillDetail(
            skill=skill,
            reference=_reference(skill, scan.by_id),
            explanation=explanation,
            mark=self._house.view().mark(skill),
            content=content,
            problem=problem,
            tree_digest=digest,
            digest_problem=digest_problem,
            shadowed_by=None if winner is skill else winner,
            state=state,
            findings=tuple(
                dict.fromkeys(
                    [
                        *(content.diagnostics if content else ()),
                        *listed,
                        *(code.problems if code else ()),
                    ]
                )
            ),
            code=code,
        )

    def scan(self) -> SkillScan:
        """Return a scan that is at most `FRESH_SECONDS` old, and of the state as it is; raises
        SkillhouseError."""
        with self._lock:
            return self._fresh_scan()

    @contextmanager
    def using(self) -> Iterator[Skillhouse]:
        """Hold the lock that the `Skillhouse` needs."""
        with self._lock:
            yield self._house

    def at_hand(self) -> SkillScan | None:
        """Return the last scan without waiting, if it is fresh; none with a state on a server, of
        which a thread has to ask whether it has changed."""
        found = self._last_scan
        if self._clock() - self._scanned_at >= FRESH_SECONDS or state_server(self._state):
            return None
        return found if self._stamp_now() == self._stamp else None

    def expire(self) -> None:
        """Have the next request scan again, at each server of the state, after a change of ours."""
        with self._lock:
            self._last_scan = None
            if not state_exists(self._state):
                return
            try:
                with pooled(self._state, STATE) as store, store.transaction() as connection:
                    # The others go by the commit; what is written says nothing to them.
                    connection.execute(
                        "INSERT INTO notice (name, text) VALUES ('skills-changed', ?) "
                        "ON CONFLICT (name) DO UPDATE SET text = excluded.text",
                        (secrets.token_hex(8),),
                    )
            except SkillhouseError as error:
                logger.warning("other servers see a changed skill a second later: %s", error)

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            return commit_stamp(self._state)
        except SkillhouseError:
            return self._stamp  # What needs the state says so itself.

    def _fresh_scan(self) -> SkillScan:
        """Do what `scan` does; the lock is held."""
        now, stamp = self._clock(), self._stamp_now()
        found = self._last_scan
        if found is None or now - self._scanned_at >= FRESH_SECONDS or stamp != self._stamp:
            self._last_scan = None
            is_changed = self._house.refresh()
            # Else it is the same object: what was made of it holds as well.
            if found is None or is_changed or not _holds(found, self._house):
                found = _scan(self._house)
            self._last_scan, self._scanned_at, self._stamp = found, now, stamp
        return found


def _holds(scan: SkillScan, house: Skillhouse) -> bool:
    """Whether a scan of the same files still says what is so."""
    return (
        house.index is scan.index
        and house.view() is scan.view
        and house.is_project_trusted == scan.is_trusted
        and _roots(house, scan.index) == scan.roots
        and offered_code(house) == scan.code
    )


def _scan(house: Skillhouse) -> SkillScan:
    index = house.index
    every = (*index.skills, *index.shadowed)
    shown = house.snapshot.shown.index
    # Of two skills with one id, the one of higher precedence.
    by_id = {skill.id: skill for skill in reversed((*every, *shown.skills))}
    in_force = {skill.name: skill for skill in index.skills}
    view = house.view()
    catalog = catalog_bounds(view)
    return SkillScan(
        index=index,
        view=view,
        by_id=by_id,
        by_file={skill.file: skill for skill in every},
        shadowed=tuple(
            ShadowedLine(skill=one, winner=in_force[one.name], reference=_reference(one, by_id))
            for one in index.shadowed
        ),
        roots=_roots(house, index),
        is_trusted=house.is_project_trusted,
        catalog=catalog,
        code=offered_code(house),
        catalog_notes=tuple(catalog_notes(view, catalog.omitted, omitted_in_tool(catalog))),
    )


def _reference(skill: Skill, by_id: dict[str, Skill]) -> str:
    return skill.id if by_id.get(skill.id) is skill else skill.file


def _roots(house: Skillhouse, index: SkillIndex) -> tuple[RootAnswer, ...]:
    counts = Counter(skill.root for skill in (*index.skills, *index.shadowed))
    unread = {one.path for one in index.diagnostics if one.code == "project-untrusted"}
    lines = []
    for root in house.snapshot.roots:
        text = str(root.path)
        # Two roots may be one directory; it counts for the one of higher precedence.
        skills = 0 if "\0" in text else counts.pop(os.path.realpath(text), 0)
        state = "read" if os.path.isdir(text) else "missing"
        if root.path in unread:
            state = "unread"
        lines.append(RootAnswer(path=text, scope=root.scope, state=state, skills=skills))
    return tuple(lines)


def status_answer(status: Status, instance: InstanceAnswer) -> StatusAnswer:
    """Return the status: counts and roots."""
    scan = status.scan
    return StatusAnswer(
        instance=instance,
        version=skillhouse.__version__,
        project=str(status.project),
        trusted=scan.is_trusted,
        profile=status.profile,
        skills=len(scan.view.visible),
        hidden=len(scan.view.hidden),
        shadowed=len(scan.shadowed),
        diagnostics=len(scan.index.diagnostics),
        errors=scan.errors,
        changed=list(map(absent_skill, status.changed)),
        audit=list(status.audit),
        config_fault=status.config_fault,
        catalog=scan.catalog,
        roots=list(scan.roots),
        trust=list(status.trust),
        repositories=list(status.repositories),
    )
