"""Have a person asked before a model gets text that hides something, whatever the rules allow.

What a text hides is known when the call is planned, so the question comes before anything is handed
over. A text of another server is fetched by the call itself: the first call then ends in a refusal,
and the next one asks.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor import SkillError, TreeError, tree_digest
from skillhouse.skill import (
    SKILL_FILE,
    Skill,
    hidden_text,
    load_listing,
    revealed,
)
from skillhouse.tools.call import OUTPUT_MAX, RefusedError
from skillhouse.tools.permission_request import UNBOUND

if TYPE_CHECKING:
    from skillhouse.skill import (
        HiddenText,
        SkillContent,
    )
    from skillhouse.tools.permission_request import PermissionRequest
    from skillhouse.tools.session import Session

Facts = tuple[tuple[str, str], ...]


def content_here(session: Session, skill: Skill, *, resources_max: int) -> SkillContent | None:
    """Return a skill as its file is now; None where that is elsewhere or cannot be used."""
    if session.remote_skills is not None and session.remote_skills.files(skill) is not None:
        return None
    try:
        return load_listing(skill, resources_max=resources_max)
    except SkillError:
        return None


def cautioned(
    session: Session,
    needs: tuple[PermissionRequest, ...],
    *,
    skill: Skill | Path,
    file: str,
    text: str | None,
) -> tuple[tuple[PermissionRequest, ...], Facts]:
    """Return the needs of handing over a skill's text, and what a person should see of it.

    Args:
        session: The conversation that gets it.
        needs: What it needs by the rules; the first one becomes a question where text is hidden.
        skill: Whose text it is, or the skill's directory.
        file: The path of the text.
        text: The text; None where it is not here, so that only an earlier call may know it.
    """
    found = session.hiding.get(file) if text is None else hidden_text(text)
    if found is None or not found.asks:
        return needs, ()
    binding = needs[0].skill_digest or _binding(session, skill)
    first = replace(needs[0], caution=caution_of(file, found), skill_digest=binding)
    return (first, *needs[1:]), facts_of(found)


def caution_of(file: str, found: HiddenText) -> str:
    """Return why a person is asked; a model may read it, so it has nothing of the text."""
    return f"`{Path(file).name}` holds text that people do not see: {found.summary}"


def facts_of(found: HiddenText) -> Facts:
    """Return what a person sees of hidden text."""
    spelled = (("tag characters spell", found.spelled),) if found.spelled else ()
    return (("hidden text", found.summary), *spelled)


def check_fetched(
    session: Session, needs: tuple[PermissionRequest, ...], file: str, text: str
) -> None:
    """Refuse a text that was read after the call was planned and hides something unasked.

    Raises:
        RefusedError: it does; the same call again asks a person.
    """
    found = hidden_text(text)
    if found is None or not found.asks or needs[0].caution:
        return
    session.hiding[file] = found
    raise RefusedError(
        f"nothing was loaded: {caution_of(file, found)}; the same call again asks a person",
        denied=True,
    )


def handed(text: str) -> str:
    """Return a text for a model: what people do not see as escapes, and its first line says so."""
    found = hidden_text(text)
    if found is None:
        return text
    # The gate cuts the rest, and escapes only make a text longer.
    return f"{found.notice}\n{revealed(text[:OUTPUT_MAX])}{text[OUTPUT_MAX:]}"


def skill_directory_of(file: Path, base: Path) -> Path | None:
    """Return the nearest directory of a skill that a file is in, at or below `base`."""
    within = (place for place in file.parents if place.is_relative_to(base))
    return next((place for place in within if os.path.lexists(place / SKILL_FILE)), None)


def _binding(session: Session, skill: Skill | Path) -> str:
    """Return what a lasting yes is bound to."""
    if isinstance(skill, Skill) and session.remote_skills is not None:
        listed = session.remote_skills.binding(skill)
        if listed:
            return listed
    try:
        return tree_digest(skill.directory if isinstance(skill, Skill) else skill)
    except (TreeError, OSError):
        return UNBOUND
