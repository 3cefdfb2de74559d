"""What of signatures and of repositories' metadata ended or soon does, for lists and pages."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.floor import StateError, isolated
from skillhouse.floor.errors import first_of
from skillhouse.manage.skill_states import installed_marks

if TYPE_CHECKING:
    from skillhouse.house.config import RepositorySettings
    from skillhouse.house.house import Skillhouse
    from skillhouse.registry import RepositoryLook

_TIME = "%Y-%m-%dT%H:%M:%SZ"

NAMES_SHOWN = 5
"""Skills that one line about their signatures names."""


def trust_notes(house: Skillhouse) -> list[str]:
    """Return what of signatures ended or soon does, and when repositories are asked by themselves,
    after what is wrong with the bundle of skills.

    A lock that cannot be used is passed over: `changed_skills` names it.
    """
    endings: dict[str, list[str]] = {}
    with suppress(StateError):
        for mark in installed_marks(house):
            if mark.is_well and mark.ending:
                endings.setdefault(mark.ending, []).append(f"{mark.scope}:{mark.name}")
    lines = _bundle_notes(house)
    lines += [one.warning for one in repository_freshness(house) if one.warning]
    for text, names in endings.items():
        lines.append(f"{first_of(names, NAMES_SHOWN)}: {text}")
    wanted = [one for one in house.config.repositories if one.refresh]
    if not wanted:
        return lines
    with isolated() as failed:
        looks = {one.repository: one for one in house.services.installed_check.memory.looks()}
        lines += [_asked(one, looks.get(one.name)) for one in wanted]
    return [*lines, *map(str, failed)]


def _bundle_notes(house: Skillhouse) -> list[str]:
    if not house.config.skills.source:
        return []
    # Most have no bundle, and need none of it.
    from skillhouse.house.skill_bundle import bundle_note  # noqa: PLC0415

    return [*filter(None, [bundle_note(house.config)])]


def signature_warnings(house: Skillhouse) -> dict[str, str]:
    """Return what of the signature of each installed skill ended or soon does, by its directory.

    A lock that cannot be used is passed over: `changed_skills` names it.
    """
    with suppress(StateError):
        marks = installed_marks(house)
        return {str(one.directory): one.ending for one in marks if one.is_well and one.ending}
    return {}


class RepositoryFreshness(Struct, frozen=True, kw_only=True):
    """How current the signed metadata of a repository was when it was asked last."""

    repository: str
    asked_at: str
    """UTC, ISO 8601."""
    ends_at: str
    """When the first of its parts ends; empty where it was refused."""
    warning: str
    """That it ended, or why it was refused; empty for nothing."""


def repository_freshness(house: Skillhouse) -> list[RepositoryFreshness]:
    """Return it of each configured repository whose root is pinned and that was asked before."""
    if not house.config.repositories:
        return []
    # What reads it takes a while to load.
    from skillhouse.registry.freshness import last_freshness  # noqa: PLC0415

    now, lines = datetime.now(UTC), []
    for settings in house.config.repositories:
        found = last_freshness(house.config.state_directory, settings.name)
        if found is not None:
            lines.append(
                RepositoryFreshness(
                    repository=settings.name,
                    asked_at=f"{found.asked:{_TIME}}",
                    ends_at="" if found.ends is None else f"{found.ends:{_TIME}}",
                    warning=found.warning(now),
                )
            )
    return lines


def _asked(settings: RepositorySettings, look: RepositoryLook | None) -> str:
    """Return when a repository was asked by itself, and why it was not since."""
    said = f"repository `{settings.name}` (refresh = {settings.refresh!r})"
    if look is None or look.url != settings.url:
        return f"{said} was not asked yet: `up`, `mcp` and `chat` do it"
    when = "never"
    if look.asked_ms:
        when = f"{datetime.fromtimestamp(look.asked_ms / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
    failures = f", {look.failures} tries failed since" if look.failures else ""
    problem = f": {look.problem}" if look.problem else ""
    return f"{said} was asked {when} what it took down{failures}{problem}"
