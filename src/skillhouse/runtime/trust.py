"""Which projects a person trusts, bound to their real path and to their skills' digests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor import TreeError, tree_digest
from skillhouse.store import STATE, pooled

if TYPE_CHECKING:
    from skillhouse.skill import Skill

STATE_FILE = "state.sqlite3"

_PROJECT = ""
"""The directory of the row that says that the project itself is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedSkill:
    """A skill of a project as it stands now, held against what was trusted."""

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


class TrustStore:
    """The trust that was given, kept outside every project."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def is_trusted(self, project: Path) -> bool:
        """Whether the project's skills may be read at all.

        Raises:
            StateError: the state cannot be read; nothing is trusted then.
        """
        return _PROJECT in self._digests(project)

    def projects(self) -> tuple[str, ...]:
        """Return the real paths of all trusted projects."""
        if not self._path.exists():
            return ()
        with pooled(self._path, STATE) as store:
            query = "SELECT project FROM trust WHERE directory = ? ORDER BY project"
            return tuple(project for (project,) in store.rows(query, (_PROJECT,)))

    def report(self, project: Path, skills: Iterable[Skill]) -> TrustReport:
        """Return how the skills of a project stand to what was trusted."""
        digests = self._digests(project)
        return TrustReport(
            project=project,
            is_trusted=_PROJECT in digests,
            skills=tuple(_judged(project, skill, digests) for skill in skills),
        )

    def trust(self, project: Path, skills: Iterable[Skill], now: datetime) -> TrustReport:
        """Trust the project and its skills as they are now; what was trusted before is replaced."""
        judged = [_judged(project, skill, {}) for skill in skills]
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
        """Take the trust back; whether there was any."""
        if not self.is_trusted(project):
            return False
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM trust WHERE project = ?", (os.path.realpath(project),))
        return True

    def _digests(self, project: Path) -> dict[str, str]:
        """Return the trusted digest of each directory of a project."""
        if not self._path.exists():
            return {}
        with pooled(self._path, STATE) as store:
            query = "SELECT directory, tree_digest FROM trust WHERE project = ?"
            return dict(store.rows(query, (os.path.realpath(project),)))


def _judged(project: Path, skill: Skill, trusted: dict[str, str]) -> TrustedSkill:
    directory = os.path.relpath(os.path.realpath(skill.directory), os.path.realpath(project))
    try:
        digest: str = tree_digest(skill.directory)
    except TreeError as error:
        # INVARIANT: what cannot be bound to its content is never trusted by it.
        return TrustedSkill(
            skill=skill, directory=directory, tree_digest="", state="unbound", problem=str(error)
        )
    known = trusted.get(directory)
    state = "new" if known is None else "trusted" if known == digest else "changed"
    return TrustedSkill(skill=skill, directory=directory, tree_digest=digest, state=state)
