"""Installs the packages of skills ahead of their first call; nothing of a skill is run."""

from __future__ import annotations

from collections.abc import Callable, Collection

from skillhouse.floor import ConfigError
from skillhouse.house.house import Skillhouse
from skillhouse.sandbox import SandboxError, SandboxUnavailableError
from skillhouse.tools import SkillCodeTool


async def prepare_code(
    house: Skillhouse, skills: Collection[str], *, say: Callable[[str], None]
) -> tuple[tuple[str, str], ...]:
    """Return each of the skills whose packages could not be installed, with the reason.

    Args:
        skills: SCOPE:NAME of each; what has no code, or none that runs here, needs none.
        say: Hears what is being installed, once for each skill.
    """
    house.refresh()
    code = house.services.skill_code
    own = {}
    for tool in house.tools():
        if isinstance(tool, SkillCodeTool):
            skill = tool.skill
            if f"{skill.scope}:{skill.directory.name}" in skills:
                own[skill.manifest.name] = skill
    failed: list[tuple[str, str]] = []
    for name, skill in own.items():
        said: set[str] = set()

        def hear(_: float, text: str, name: str = name, said: set[str] = said) -> None:
            if text not in said:
                said.add(text)
                say(f"{name}: {text}")

        try:
            # What compiles the packages is part of what is installed.
            await code.executor(skill.manifest.language)
            await code.packages(skill, say=hear)
        except (SandboxError, SandboxUnavailableError, ConfigError, OSError) as error:
            failed.append((name, str(error)))
    return tuple(failed)
