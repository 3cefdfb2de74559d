"""Duplicates that are copies which `export` made: an info, not a clash of names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from skillhouse import clients
from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill import Skill, SkillIndex
from skillhouse.store import STATE_FILE

EXPORTED_COPY = "exported-copy"


def with_exported_copies(found: SkillIndex, state_directory: Path) -> SkillIndex:
    """Return the index with an info for each duplicate that is an exported copy.

    Without an export nothing of the index is looked at.
    """
    if not (state_directory / STATE_FILE).exists():
        return found
    sources = clients.exported_sources(state_directory)
    said = dict(_copies(found, sources)) if sources else {}
    if not said:
        return found
    return SkillIndex(
        found.skills,
        shadowed=found.shadowed,
        diagnostics=tuple(_as_copy(one, said) for one in found.diagnostics),
        left_out=found.left_out,
        name_match=found.name_match,
    )


def _copies(found: SkillIndex, sources: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the file of each shadowed skill that an export explains, and the explanation."""
    winners = {skill.name: skill for skill in found.skills}
    for skill in found.shadowed:
        winner = winners.get(skill.name)
        if winner is None:
            continue
        here, there = _real(skill), _real(winner)
        if sources.get(here) == there:
            yield skill.file, f"exported copy of `{winner.id}` at `{winner.file}`"
        elif sources.get(there) == here:
            yield skill.file, f"its exported copy `{winner.id}` at `{winner.file}` is used"


def _real(skill: Skill) -> str:
    return os.path.realpath(skill.directory)


def _as_copy(found: Diagnostic, said: dict[str, str]) -> Diagnostic:
    message = said.get(str(found.path)) if found.code == "shadowed" else None
    if message is None:
        return found
    return replace(found, code=EXPORTED_COPY, severity=Severity.INFO, message=message, mend="")
