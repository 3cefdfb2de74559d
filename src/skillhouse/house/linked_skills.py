"""Skills that links of a person's own folders find in git work trees: bound to what was first seen.

A pull there changes what a person linked once. A changed skill is listed by its old text, and
loading it asks, until the person takes it as it is (docs/decisions/0399-links-of-a-person.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from skillhouse.floor import Diagnostic, Severity, StateError, TreeError, git_root
from skillhouse.floor.structs import replace
from skillhouse.skill import HINTS, Skill, SkillIndex, SkillLinks, followed_digest, skill_links
from skillhouse.store import STATE, STATE_FILE, pooled, state_exists

LinkedState = Literal["", "seen", "changed", "unbound"]
"""Nothing for a skill that is not bound."""
CHANGED = "linked-changed"
LINKED_WORDS = {
    "changed": "has changed since it was first seen; `skillhouse trust` takes it as it is",
    "unbound": "cannot be bound to its content",
}


class _Seen(Struct, frozen=True, kw_only=True):
    """A linked skill when it was first seen, or taken as it is since."""

    tree_digest: str
    name: str
    description: str


class LinkedSkills:
    """What linked skills held when they were first seen."""

    def __init__(self, state_directory: Path, project: Path) -> None:
        """Keep them in the state; what is inside `project`, where tools write, is bound too."""
        self._path = state_directory / STATE_FILE
        self._project = os.path.realpath(project)

    def state(self, skill: Skill, links: SkillLinks | None = None) -> LinkedState:
        """Return the state of a skill; one that is seen for the first time is kept as it is.

        `links` are those of the skill, where they are known.
        """
        bound = self._bound([skill], links)
        return self._judged(bound)[skill.file][0] if bound else ""

    def as_seen(self, found: SkillIndex) -> SkillIndex:
        """Return an index in which changed skills have the name and description that were seen."""
        bound = self._bound(skill for skill in found.skills if skill.link)
        judged = self._judged(bound) if bound else {}
        old = {file: seen for file, (state, seen) in judged.items() if state == "changed" and seen}
        if not old:
            return found
        said = (_finding(skill) for skill in found.skills if skill.file in old)

        def shown(skill: Skill) -> Skill:
            seen = old.get(skill.file)
            if seen is None:
                return skill
            return replace(skill, name=seen.name, description=seen.description)

        return SkillIndex(
            map(shown, found.skills),
            shadowed=found.shadowed,
            diagnostics=(*found.diagnostics, *said),
            left_out=found.left_out,
            name_match=found.name_match,
            cache=found.cache,
        )

    def changed(self, skills: Iterable[Skill]) -> tuple[Skill, ...]:
        """Return those skills that are not as they were first seen."""
        bound = self._bound(skills)
        judged = self._judged(bound) if bound else {}
        return tuple(skill for skill, _ in bound if judged[skill.file][0] == "changed")

    def accept(self, skills: Iterable[Skill]) -> None:
        """Keep skills as they are now: StateError where that cannot be written."""
        rows = [(skill, followed_digest(skill)) for skill in skills]
        self._keep(rows)

    def _bound(
        self, skills: Iterable[Skill], known: SkillLinks | None = None
    ) -> list[tuple[Skill, SkillLinks]]:
        """Return those skills that are bound to their content, each with its links.

        The links of a skill are looked for once, which reads its whole directory.
        """
        found = []
        for skill in skills:
            if skill.scope != "user" or not (skill.link or skill.follows):
                continue
            links = known or skill_links(skill)
            places = [one.real for one in links.files]
            if skill.link:
                places += [os.path.realpath(skill.file), str(skill.directory)]
            if any(map(self._is_changeable, places)):
                found.append((skill, links))
        return found

    def _is_changeable(self, real: str) -> bool:
        is_inside = real.startswith(self._project.rstrip("/") + "/")
        return is_inside or git_root(Path(real)) is not None

    def _judged(
        self, skills: Sequence[tuple[Skill, SkillLinks]]
    ) -> dict[str, tuple[LinkedState, _Seen | None]]:
        found: dict[str, tuple[LinkedState, _Seen | None]] = {}
        first: list[tuple[Skill, str]] = []
        try:
            known = self._known()
            for skill, links in skills:
                try:
                    digest = followed_digest(skill, links)
                except (TreeError, OSError):
                    # INVARIANT: what cannot be bound to its content is never taken as seen.
                    found[skill.file] = ("unbound", None)
                    continue
                seen = known.get(_place(skill))
                if seen is None:
                    first.append((skill, digest))
                is_same = seen is None or seen.tree_digest == digest
                found[skill.file] = ("seen" if is_same else "changed", seen)
            self._keep(first)
        except StateError:
            # A state that cannot be kept binds nothing: loading asks.
            return {skill.file: ("unbound", None) for skill, _ in skills}
        return found

    def _known(self) -> dict[str, _Seen]:
        if not state_exists(self._path):
            return {}
        with pooled(self._path, STATE) as store:
            query = "SELECT directory, tree_digest, name, description FROM linked_skill"
            return {
                directory: _Seen(tree_digest=digest, name=name, description=description)
                for directory, digest, name, description in store.rows(query)
            }

    def _keep(self, rows: Iterable[tuple[Skill, str]]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        values = [
            (_place(skill), digest, skill.name, skill.description, now) for skill, digest in rows
        ]
        if not values:
            return
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany(
                "DELETE FROM linked_skill WHERE directory = ?", [(row[0],) for row in values]
            )
            connection.executemany("INSERT INTO linked_skill VALUES (?, ?, ?, ?, ?)", values)


def _finding(skill: Skill) -> Diagnostic:
    return Diagnostic(
        code=CHANGED,
        severity=Severity.WARNING,
        message=f"`{skill.id}` has changed since it was first seen; loading it asks",
        path=skill.location,
        hint=HINTS[CHANGED],
    )


def _place(skill: Skill) -> str:
    return os.path.realpath(skill.directory)
