"""Which projects a person trusts, bound to their real path and to their skills' digests.

The work trees of one git repository (`worktrees.py`) share what was trusted in one of them: where a
work tree has no trust of its own, that in the others counts, for the same bytes at the same path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from skillhouse.approval import OWNER
from skillhouse.floor import SkillError, as_error, dataclass, tree_digest
from skillhouse.runtime.worktrees import same_repository
from skillhouse.skill import Skill
from skillhouse.store import STATE, STATE_FILE, pooled

_PROJECT = ""
"""The directory of the row that says that the project itself is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedSkill:
    """A skill of a project, compared with its state when it was trusted."""

    skill: Skill
    directory: str
    """Relative to the project."""
    tree_digest: str
    """Empty when the directory has none; `problem` then says why."""
    state: str
    """trusted, new, changed, or unbound when it has no digest."""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustReport:
    """A project and its skills."""

    project: Path
    is_trusted: bool
    skills: tuple[TrustedSkill, ...]
    through: tuple[str, ...] = ()
    """The trusted work trees of the same repository, where the project has no trust of its own."""


class TrustStore:
    """The trust that was given, kept outside every project."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def is_trusted(self, project: Path) -> bool:
        """Whether the project's skills may be read; StateError if the state cannot be."""
        return self._has_own(project) or bool(self._others(project))

    def trusted_through(self, project: Path) -> tuple[str, ...]:
        """Return the work trees of the same repository by which alone the project is trusted."""
        return () if self._has_own(project) else self._others(project)

    def projects(self) -> tuple[str, ...]:
        if not self._path.exists():
            return ()
        with pooled(self._path, STATE) as store:
            query = "SELECT project FROM trust WHERE directory = ? ORDER BY project"
            return tuple(project for (project,) in store.rows(query, (_PROJECT,)))

    def report(self, project: Path, skills: Iterable[Skill]) -> TrustReport:
        """Compare the skills of a project with the trusted digests."""
        through = self.trusted_through(project)
        # INVARIANT: of a project that was trusted itself, only that trust counts, so that an older
        # one elsewhere brings nothing back.
        digests = self._digests(through or [os.path.realpath(project)])
        return TrustReport(
            project=project,
            is_trusted=_PROJECT in digests,
            skills=tuple(_judged(project, skill, digests) for skill in skills),
            through=through,
        )

    def trust(
        self,
        project: Path,
        skills: Iterable[Skill],
        now: datetime,
        *,
        shown: TrustReport | None = None,
    ) -> TrustReport:
        """Trust the project and its skills as they are now, in place of earlier trust.

        Raises:
            SkillError: one of them is not as in `shown`, which a person agreed to.
        """
        judged = [_judged(project, skill, {}) for skill in skills]
        # INVARIANT: what is trusted is what was shown, byte for byte.
        if shown is not None and _digests_of(judged) != _digests_of(shown.skills):
            message = "the skills changed while they were shown: nothing was trusted, look again"
            raise SkillError("changed", project, message)
        real = os.path.realpath(project)
        rows = [(_PROJECT, "")] + [
            (found.directory, found.tree_digest) for found in judged if found.tree_digest
        ]
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM trust WHERE project = ?", (real,))
            connection.executemany(
                "INSERT INTO trust VALUES (?, ?, ?, ?)",
                [(real, *row, now.isoformat(timespec="seconds")) for row in rows],
            )
        return self.report(project, [found.skill for found in judged])

    def revoke(self, project: Path) -> bool:
        """Revoke the trust in the project and in all work trees of its repository.

        Returns whether there was any.
        """
        revoked = self.shared(project)
        if not revoked:
            return False
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany("DELETE FROM trust WHERE project = ?", [(p,) for p in revoked])
        return True

    def shared(self, project: Path) -> tuple[str, ...]:
        """Return the trusted projects whose trust ends with this one's: its repository's."""
        own = (os.path.realpath(project),) if self._has_own(project) else ()
        return own + self._others(project)

    def _has_own(self, project: Path) -> bool:
        return os.path.realpath(project) in self.projects()

    def _others(self, project: Path) -> tuple[str, ...]:
        return same_repository(project, self.projects())

    def _digests(self, projects: Iterable[str]) -> dict[str, set[str]]:
        """Return the digests that were trusted of each directory, in any of the projects."""
        found: dict[str, set[str]] = {}
        if not self._path.exists():
            return found
        with pooled(self._path, STATE) as store:
            query = "SELECT directory, tree_digest FROM trust WHERE project = ?"
            for project in projects:
                for directory, tree in store.rows(query, (project,)):
                    found.setdefault(directory, set()).add(tree)
        return found


class EventLog(Protocol):
    """Records events; `noted` does not fail when the audit log does."""

    def event(self, what: str, *, user: str, reason: str = "") -> None: ...
    def noted(self, what: str, *, user: str, reason: str = "") -> None: ...


class ProjectTrust:
    """The trust in one project; each change is in the audit log."""

    def __init__(
        self,
        store: TrustStore,
        project: Path,
        skills: Callable[[], tuple[Skill, ...]],
        log: EventLog,
        refresh: Callable[[], bool],
    ) -> None:
        """Bind the store to a project, whose real path is trusted; `skills` reads its skills."""
        self._store = store
        self._project = project
        self._skills = skills
        self._log = log
        self._refresh = refresh

    def report(self) -> TrustReport:
        """Return the state of each of the project's skills; reads them."""
        return self._store.report(self._project, self._skills())

    def trust(self, shown: TrustReport | None = None) -> TrustReport:
        """Trust this project and its skills as they are now, and as in `shown`.

        Raises:
            SkillError: they are not as in `shown` any more.
        """
        self._log.event("trust", user=OWNER, reason=str(self._project))
        report = self._store.trust(self._project, self._skills(), datetime.now(UTC), shown=shown)
        self._refresh()
        return report

    def revoke(self) -> bool:
        """Revoke the trust in this project and in its repository; whether there was any."""
        for project in self._store.shared(self._project) or (str(self._project),):
            self._log.noted("trust-revoked", user=OWNER, reason=project)
        revoked = self._store.revoke(self._project)
        self._refresh()
        return revoked


def _digests_of(skills: Iterable[TrustedSkill]) -> dict[str, str]:
    return {found.directory: found.tree_digest for found in skills}


def _judged(project: Path, skill: Skill, trusted: Mapping[str, Collection[str]]) -> TrustedSkill:
    directory = os.path.relpath(os.path.realpath(skill.directory), os.path.realpath(project))
    try:
        digest: str = tree_digest(skill.directory)
    except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
        # INVARIANT: what cannot be bound to its content is never trusted by it.
        problem = str(as_error(error))
        return TrustedSkill(
            skill=skill, directory=directory, tree_digest="", state="unbound", problem=problem
        )
    known = trusted.get(directory)
    state = "new" if known is None else "trusted" if digest in known else "changed"
    return TrustedSkill(skill=skill, directory=directory, tree_digest=digest, state=state)
