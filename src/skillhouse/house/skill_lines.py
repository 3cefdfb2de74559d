"""Skills whose tools have no room in a request, and the lines that lists have of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse import skill as skill_package
from skillhouse import tools as toolbox
from skillhouse.floor import encode
from skillhouse.skill import Skill

if TYPE_CHECKING:
    from skillhouse.house.config import Config
    from skillhouse.skill import Profile

AS_TOOLS = "offered as tools"
"""A skill of code alone whose tools each request has: no list of skills names it."""

FINDERS = ("search", "skill")
"""Kinds of the tools by which a model finds those that are not in its list; the best first."""


def tool_budget(profile: Profile, config: Config) -> toolbox.ToolBudget:
    """Return what a request has room for: by the configuration, or else by the profile."""
    rule = profile.catalog
    count = rule.tool_count if config.tool_count is None else config.tool_count
    chars = rule.tool_list_chars if config.tool_list_chars is None else config.tool_list_chars
    return toolbox.ToolBudget(
        count=None if count == "none" else count, chars=None if chars == "none" else chars
    )


def deferred_of(
    code: Iterable[toolbox.Tool],
    profile: Profile,
    config: Config,
    *,
    shows: Callable[[Any], bool],
    own_tools: int,
) -> toolbox.DeferredTools | None:
    """Return the tools of skills for which a request has no room; None where it has.

    Tools of ours count as if the agent had each of them, so that a rule about one of them changes
    nothing here.

    Args:
        code: The tools that skills bring to the agent.
        profile: Has the bounds, where the configuration sets none.
        config: Of the agent.
        shows: Whether the agent's model is shown a tool.
        own_tools: How many a program and extensions add.
    """
    tools = [one for one in code if isinstance(one, toolbox.SkillCodeTool) and shows(one)]
    if not tools:
        return None
    # Neither what calls tools without room nor what a user has not turned on.
    ours = len(toolbox.BUILTIN_TOOLS) - 2 + config.find_and_install.enabled
    others = ours + len(profile.tools) + own_tools
    rules = [rule for kind in FINDERS for rule in profile.tools if rule.kind == kind]

    def finders() -> list[str]:
        found = (toolbox.ProfileTool(name=rule.name, kind=rule.kind) for rule in rules)
        return [tool.name for tool in found if shows(tool)]

    budget = tool_budget(profile, config)
    return toolbox.deferral(tools, budget, others=others, names=finders) or None


def lines_of(deferred: toolbox.DeferredTools, known: Iterable[Skill]) -> tuple[Skill, ...]:
    """Return the skills of code alone, as lists name them; `known` have a line of their own."""
    directories = {skill.directory for skill in known}
    found = []
    for directory, tools in deferred.skills.items():
        if directory in directories:
            continue
        skill = tools[0].skill
        manifest = skill.manifest
        is_python = manifest.language == "python"
        file = skill_package.PYTHON_FILE if is_python else skill_package.JAVASCRIPT_FILE
        found.append(
            Skill(
                name=manifest.name,
                description=manifest.description or tools[0].description,
                scope=skill.scope,
                file=str(directory / file),
                root=str(directory.parent),
                packed_fields=encode({}),
            )
        )
    return tuple(found)


def names_of(lines: tuple[Skill, ...]) -> dict[str, Path]:
    """Return the directories of skills of code alone, by name and by id; the stronger one's."""
    found: dict[str, Path] = {}
    for skill in lines:
        for name in (skill.name, skill.id):
            found.setdefault(name, skill.directory)
    return found
