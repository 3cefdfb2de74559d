"""The skills that were found, and how they are looked up by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from skillhouse.floor import AmbiguousSkillError, Diagnostic, UnknownSkillError, nearest
from skillhouse.skill.model import Skill


class UnvisitedDirectories(NamedTuple):
    """Directories of one root that a bound kept from being looked at."""

    root: str
    bound: Literal["directories", "depth"]
    most: int
    paths: tuple[str, ...]
    """Those whose names are known, in the order of the walk."""
    unopened: int = 0
    """Further directories that were looked at, and not below."""


NameMatch = Literal["exact", "casefold"]
_Key = Callable[[Skill], str]


class IndexContent(Struct, frozen=True, kw_only=True):
    """The skills of an index, apart from how names are looked up."""

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    left_out: tuple[UnvisitedDirectories, ...] = ()


class SkillIndex:
    """The skills that were found, in catalog order; decoded when first looked at."""

    def __init__(
        self,
        skills: Iterable[Skill] = (),
        *,
        shadowed: Iterable[Skill] = (),
        diagnostics: Iterable[Diagnostic] = (),
        left_out: Iterable[UnvisitedDirectories] = (),
        source: Callable[[], IndexContent] | None = None,
        name_match: NameMatch = "casefold",
        cache: Path | None = None,
    ) -> None:
        """Hold these values, or those that `source` returns when they are first needed.

        With "casefold" a reference in another case finds what it fits alone. `cache` is the
        directory where the search index of these skills is kept, if it is.
        """
        self.cache = cache
        self.name_match = name_match
        if source is None:
            content = IndexContent(
                skills=tuple(skills),
                shadowed=tuple(shadowed),
                diagnostics=tuple(diagnostics),
                left_out=tuple(left_out),
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

    @property
    def left_out(self) -> tuple[UnvisitedDirectories, ...]:
        """What a bound of a root kept from being looked at."""
        return self._content.left_out

    def of_id(self, skill_id: str) -> Sequence[Skill]:
        """Return the skills in force with an id, in their order; several files may have one."""
        return self._of_id.get(skill_id, ())

    @cached_property
    def _of_id(self) -> Mapping[str, Sequence[Skill]]:
        found: dict[str, list[Skill]] = {}
        for skill in self.skills:
            found.setdefault(skill.id, []).append(skill)
        return found

    def get(self, reference: str) -> Skill:
        """Return the skill with that id, name or directory name, or at that SKILL.md.

        They are tried in this order, so that no name can take the place of an id; each finds
        skills in force before shadowed ones. Only when nothing fits exactly is the case of an
        id, name or directory name passed over, if the index does that at all (S003-34).
        UnknownSkillError lists the nearest names, AmbiguousSkillError what to ask for instead.
        """
        found = self._only(_KEYS, reference, reference)
        if found is None and self.name_match == "casefold":
            keys = [_folded(key) for key in _KEYS[:-1]]
            found = self._only(keys, reference.casefold(), reference)
        if found is not None:
            return found
        if ":" in reference:
            known = {skill.id for skill in (*self.skills, *self.shadowed)}
        else:
            known = {skill.name for skill in self.skills}
        raise UnknownSkillError(reference, nearest(reference, known))

    def _only(self, keys: Sequence[_Key], wanted: str, reference: str) -> Skill | None:
        for key in keys:
            for among in (self.skills, self.shadowed):
                fitting = [skill for skill in among if key(skill) == wanted]
                if len(fitting) > 1:
                    ids = tuple(skill.id for skill in fitting)
                    distinct = len(set(ids)) == len(ids)
                    raise AmbiguousSkillError(
                        reference, ids if distinct else tuple(skill.file for skill in fitting)
                    )
                if fitting:
                    return fitting[0]
        return None

    def where(self, keep: Callable[[Skill], bool]) -> SkillIndex:
        """Return an index of those skills in force that `keep` accepts, with the same look-up."""
        kept = filter(keep, self.skills)
        return SkillIndex(kept, name_match=self.name_match, cache=self.cache)

    def __len__(self) -> int:
        return len(self.skills)


def _directory_name(skill: Skill) -> str:
    # Not `skill.directory.name`: this is asked of thousands of skills for one look-up.
    return os.path.basename(os.path.dirname(skill.file))


def _folded(key: _Key) -> _Key:
    return lambda skill: key(skill).casefold()


_KEYS: tuple[_Key, ...] = (
    attrgetter("id"),
    attrgetter("name"),
    _directory_name,
    attrgetter("file"),
)
