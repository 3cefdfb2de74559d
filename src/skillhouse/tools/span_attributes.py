"""What telemetry may say of a skill."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from skillhouse.floor import conventions as words
from skillhouse.skill import Skill
from skillhouse.tools.session import Session


def skill_attributes(skill: Skill, session: Session) -> Mapping[str, str]:
    """Return what telemetry may say of a skill: what lists say of it, and where it comes from."""
    away = "" if session.remote_skills is None else session.remote_skills.address(skill)
    return {
        words.SKILL_NAME: skill.name,
        words.SKILL_DESCRIPTION: skill.description,
        words.SKILL_SOURCE: _without_credentials(away or skill.uri),
    }


def _without_credentials(uri: str) -> str:
    """Return an address without what may let somebody in.

    >>> _without_credentials("https://me:word@example.org/skills/a?token=b")
    'https://example.org/skills/a'
    """
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
