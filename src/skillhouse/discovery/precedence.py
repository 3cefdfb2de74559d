"""Resolves duplicates: two skills that a profile identifies as the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill import Duplicates, Identity, Skill


class Precedence:
    """The skills of several roots, added in the order of the roots."""

    def __init__(self, identity: Identity, duplicates: Duplicates) -> None:
        self.skills: dict[Hashable, Skill] = {}
        """Winners by their identity, in catalog order."""
        self.shadowed: list[Skill] = []
        self.clashes: list[Diagnostic] = []
        self._key = _KEYS[identity]
        self._duplicates = duplicates
        self._files: set[str] = set()
        self._refused: dict[Hashable, Skill] = {}

    def add(self, skill: Skill) -> None:
        """Add a skill; a file below two roots counts once, as the stronger root has it."""
        key = self._key(skill)
        if skill.file in self._files:
            other = self.skills.get(key)
            if self._duplicates == "last" and other is not None and other.file == skill.file:
                self.skills[key] = skill
            return
        self._files.add(skill.file)
        other = self.skills.setdefault(key, skill)
        if other is not skill:
            self._clash(key, skill, other)
        elif self._refused and key in self._refused:
            del self.skills[key]
            self._refuse(skill, self._refused[key])

    def _clash(self, key: Hashable, skill: Skill, other: Skill) -> None:
        if self._duplicates == "first":
            self._shadow(skill, other)
        elif self._duplicates == "last":
            # In the position of the earlier one, like a JavaScript map.
            self.skills[key] = skill
            self._shadow(other, skill)
        elif self._duplicates == "keep_all":
            self.skills[key, skill.file] = skill
            self._warn("duplicate", skill, f"`{skill.id}` is also `{other.id}` at `{other.file}`")
        else:
            del self.skills[key]
            self._refused[key] = other
            self._refuse(other, skill)
            self._refuse(skill, other)

    def _shadow(self, loser: Skill, winner: Skill) -> None:
        self.shadowed.append(loser)
        message = f"`{loser.id}` is shadowed by `{winner.id}` at `{winner.file}`"
        self._warn("shadowed", loser, message)

    def _refuse(self, skill: Skill, other: Skill) -> None:
        self.shadowed.append(skill)
        message = f"neither is in force: `{skill.id}`, and `{other.id}` at `{other.file}`"
        self._warn("duplicate", skill, message, Severity.ERROR)

    def _warn(
        self, code: str, skill: Skill, message: str, severity: Severity = Severity.WARNING
    ) -> None:
        self.clashes.append(
            Diagnostic(code=code, severity=severity, message=message, path=skill.location, line=1)
        )


_KEYS: dict[Identity, Callable[[Skill], Hashable]] = {
    "name": lambda skill: skill.name,
    "directory": lambda skill: os.path.basename(os.path.dirname(skill.file)),
    "source_name": lambda skill: (skill.scope, skill.name),
    "path": lambda skill: skill.file,
}
