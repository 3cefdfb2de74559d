"""Skills inside the directories of other skills, which discovery does not enter."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill import MENDS, SKILL_FILE, Skill

DIRECTORIES_MAX = 50_000
"""Directories of all skills together that are looked at."""


def skills_below(
    skills: Iterable[Skill], *, known: Collection[str] = (), skipped: Collection[str] = ()
) -> Iterator[Diagnostic]:
    """Yield an info for each SKILL.md below the directory of a skill.

    It costs a listing of every directory of every skill, so `discover` does not ask (decision
    0253). Links are not followed.

    Args:
        known: Files that are skills by themselves and so not reported.
        skipped: Names of directories that are not entered.
    """
    left = DIRECTORIES_MAX
    for skill in skills:
        pending = [os.path.dirname(skill.file)]
        if skill.root == pending[0]:
            # What is below a root is found by itself.
            continue
        while pending and left:
            left -= 1
            place = pending.pop()
            try:
                with os.scandir(place) as entries:
                    found = sorted(entries, key=lambda entry: entry.name, reverse=True)
            except OSError:
                continue
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in skipped:
                        pending.append(entry.path)
                elif entry.name == SKILL_FILE and entry.path not in known:
                    yield _found(entry.path, skill)


def _found(path: str, skill: Skill) -> Diagnostic:
    return Diagnostic(
        code="below-a-skill",
        severity=Severity.INFO,
        message=f"a skill inside the skill `{skill.name}`: a file of that one, and not listed",
        path=Path(path),
        mend=MENDS["below-a-skill"],
    )
