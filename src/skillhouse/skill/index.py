"""The skills of one place at one moment: an immutable list with look-up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from skillhouse.floor import AmbiguousSkillError, Diagnostic, UnknownSkillError, nearest
from skillhouse.skill.model import Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexContent:
    """What an index holds once it is needed."""

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


class SkillIndex:
    """The skills that were found, in catalog order; decoded when first looked at."""

    def __init__(
        self,
        skills: Iterable[Skill] = (),
        *,
        shadowed: Iterable[Skill] = (),
        diagnostics: Iterable[Diagnostic] = (),
        source: Callable[[], IndexContent] | None = None,
    ) -> None:
        """Hold the given values, or those that `source` returns when they are first needed."""
        if source is None:
            content = IndexContent(
                skills=tuple(skills), shadowed=tuple(shadowed), diagnostics=tuple(diagnostics)
            )
            self._source: Callable[[], IndexContent] = lambda: content
        else:
            self._source = source

    @cached_property
    def _content(self) -> IndexContent:
        return self._source()

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills in force, strongest scope first, by name within a root."""
        return self._content.skills

    @property
    def shadowed(self) -> tuple[Skill, ...]:
        """Skills whose name a stronger one has; still found by id."""
        return self._content.shadowed

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All findings, in the order of the files."""
        return self._content.diagnostics

    def get(self, reference: str) -> Skill:
        """Return the skill with that id, name or directory name, or at that SKILL.md.

        They are tried in this order, so that no name can take the place of an id; each finds
        skills in force before shadowed ones.

        Raises:
            UnknownSkillError: nothing fits; it lists the nearest names.
            AmbiguousSkillError: several fit; it lists what to ask for instead.
        """
        for key in _KEYS:
            for among in (self.skills, self.shadowed):
                fitting = [skill for skill in among if key(skill) == reference]
                if len(fitting) > 1:
                    ids = tuple(skill.id for skill in fitting)
                    distinct = len(set(ids)) == len(ids)
                    raise AmbiguousSkillError(
                        reference, ids if distinct else tuple(skill.file for skill in fitting)
                    )
                if fitting:
                    return fitting[0]
        if ":" in reference:
            known = {skill.id for skill in (*self.skills, *self.shadowed)}
        else:
            known = {skill.name for skill in self.skills}
        raise UnknownSkillError(reference, nearest(reference, known))

    def __len__(self) -> int:
        return len(self.skills)


def _directory_name(skill: Skill) -> str:
    # Not `skill.directory.name`: this is asked of thousands of skills for one look-up.
    return os.path.basename(os.path.dirname(skill.file))


_KEYS: tuple[Callable[[Skill], str], ...] = (
    attrgetter("id"),
    attrgetter("name"),
    _directory_name,
    attrgetter("file"),
)
