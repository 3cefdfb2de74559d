"""Duplicates that are no clash of names: copies which `export` made, and other work trees.

Of both the finding is an info that says what they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from skillhouse import clients
from skillhouse.floor import Diagnostic, Severity, git_root
from skillhouse.floor.structs import replace
from skillhouse.house.project import same_repository
from skillhouse.skill import HINTS, Skill, SkillIndex
from skillhouse.store import STATE_FILE, state_exists

EXPORTED_COPY = "exported-copy"
OTHER_CHECKOUT = "other-checkout"


def with_explained_duplicates(found: SkillIndex, state_directory: Path) -> SkillIndex:
    """Return the index with an info for each duplicate that is one skill in two places.

    Without an export no file is read for it but those of git's directories.
    """
    said = {file: (OTHER_CHECKOUT, message) for file, message in _in_other_checkouts(found)}
    if state_exists(state_directory / STATE_FILE) and (
        sources := clients.exported_sources(state_directory)
    ):
        said |= {file: (EXPORTED_COPY, message) for file, message in _copies(found, sources)}
    if not said:
        return found
    return SkillIndex(
        found.skills,
        shadowed=found.shadowed,
        diagnostics=tuple(_explained(one, said) for one in found.diagnostics),
        left_out=found.left_out,
        name_match=found.name_match,
    )


def _in_other_checkouts(found: SkillIndex) -> Iterator[tuple[str, str]]:
    """Yield the file of each shadowed skill that is the one in use, in another work tree of its
    repository, and the explanation."""
    for skill, winner in _clashes(found):
        one, other = (git_root(Path(each.file).parent) for each in (skill, winner))
        if one is None or other is None:
            continue
        is_same = os.path.relpath(skill.file, one) == os.path.relpath(winner.file, other)
        if is_same and same_repository(other, [str(one)]):
            yield (
                skill.file,
                f"`{skill.id}` is of another checkout, `{one}`; `{winner.file}` is used",
            )


def _copies(found: SkillIndex, sources: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the file of each shadowed skill that an export explains, and the explanation."""
    for skill, winner in _clashes(found):
        here, there = _real(skill), _real(winner)
        if sources.get(here) == there:
            yield skill.file, f"exported copy of `{winner.id}` at `{winner.file}`"
        elif sources.get(there) == here:
            yield skill.file, f"its exported copy `{winner.id}` at `{winner.file}` is used"


def _clashes(found: SkillIndex) -> Iterator[tuple[Skill, Skill]]:
    """Yield each shadowed skill with the one of its name that is used."""
    winners = {skill.name: skill for skill in found.skills}
    for skill in found.shadowed:
        if (winner := winners.get(skill.name)) is not None:
            yield skill, winner


def _real(skill: Skill) -> str:
    return os.path.realpath(skill.directory)


def _explained(found: Diagnostic, said: Mapping[str, tuple[str, str]]) -> Diagnostic:
    if found.code != "shadowed" or str(found.path) not in said:
        return found
    code, message = said[str(found.path)]
    hint = HINTS.get(code, "")
    return replace(found, code=code, severity=Severity.INFO, message=message, hint=hint)
