"""Which files a client loads by the name of a skill."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse
    from skillhouse.skill import Skill
    from skillhouse.tools import NativeCall


def skill_files(house: Skillhouse, client: str, call: NativeCall) -> tuple[str, ...] | None:
    """Return the real paths of the files; none for a skill that the client does not list, and None
    where it is not known what it lists."""
    # Only loads of skills need it, and a hook may be a process of its own.
    from skillhouse import clients
    from skillhouse.clients.verdicts import LISTED

    name = str(call.values.get("name") or "").strip().removeprefix("/")
    places = house.config.places
    try:
        report = clients.compare(
            start=places.start,
            home=places.home,
            environment=places.environment,
            profiles=[clients.client_profile(client, places)],
        )
    except SkillhouseError:
        return None
    return tuple(
        os.path.realpath(skill.file)
        for skill in report.skills
        for verdict in skill.verdicts[:1]
        if verdict.state in LISTED and (verdict.name or skill.name) == name
    )


def other_skill(files: Sequence[str], skill: Skill) -> str:
    """Return the first of the files, as of `skill_files`, that is neither that of a skill nor a
    copy of it; empty where there is none."""
    # Only loads of skills need it.
    from skillhouse.house.skill_hints import is_copy

    real = os.path.realpath(skill.file)
    return next((file for file in files if file != real and not is_copy(skill.file, file)), "")
