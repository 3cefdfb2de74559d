"""The tools `skill` and `search_skills`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from skillhouse.floor import AmbiguousSkillError, SkillError, UnknownSkillError
from skillhouse.permission import Effect, Permission
from skillhouse.retrieval import SearchIndex
from skillhouse.skill import Skill, SkillContent, SkillIndex, load
from skillhouse.tools.call import Output, Plan, RefusedError, object_schema
from skillhouse.tools.need import Need
from skillhouse.tools.session import Session

ENUM_MAX = 500
"""Skills whose names are listed in the schema; with more, search finds them."""


class SkillTool:
    """Loads the instructions of one skill."""

    name = "skill"
    durable = False

    def __init__(self, visible: SkillIndex, catalog: str) -> None:
        """Take what one agent sees: its skills, and their catalog as text."""
        names = [skill.name for skill in visible.skills]
        name: dict[str, Any] = {"type": "string", "description": "the skill's name"}
        if 0 < len(names) <= ENUM_MAX:
            name["enum"] = names
        self.schema: Mapping[str, Any] = object_schema({"name": name}, required=("name",))
        self.description = (
            "Load the instructions of a skill and follow them. Use it when the task fits the "
            f"description of one of these skills:\n{catalog}"
        )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the skill before its body is read."""
        try:
            skill = session.visible.get(arguments["name"])
        except (UnknownSkillError, AmbiguousSkillError) as error:
            raise RefusedError(str(error)) from error

        async def run() -> Output:
            try:
                content = load(skill)
            except SkillError as error:
                raise RefusedError(f"{error}; it may have been removed since") from error
            session.loaded[skill.file] = skill.directory
            return Output(
                text=_wrapped(content),
                data={"id": skill.id, "directory": str(skill.directory)},
                detail={"skill": skill.id},
            )

        return Plan(needs=(session.skill_need(skill),), run=run)


class SearchTool:
    """Finds skills for a request."""

    name = "search_skills"
    description = "Find skills for a task; gives names and descriptions, best first."
    durable = False
    schema: Mapping[str, Any] = object_schema(
        {
            "query": {"type": "string", "minLength": 1, "description": "what is to be done"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5},
        },
        required=("query",),
    )

    def __init__(self, index: Callable[[Session], SearchIndex]) -> None:
        """Take what gives the search index of a session."""
        self._index = index

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Searching needs no more than a read."""

        async def run() -> Output:
            hits = self._index(session).search(arguments["query"], limit=arguments.get("limit", 5))
            found = [session.visible.get(hit.name) for hit in hits]
            lines = [f"{skill.name}: {' '.join(skill.description.split())}" for skill in found]
            return Output(
                text="\n".join(lines) or "no skill fits",
                data={"skills": [{"name": s.name, "description": s.description} for s in found]},
            )

        need = Need(
            permission=Permission(action=self.name, resource=arguments["query"]),
            default=Effect.ALLOW,
            why="searching what is listed changes nothing",
        )
        return Plan(needs=(need,), run=run)


def _wrapped(content: SkillContent) -> str:
    """Return a body with its directory and files, between marks that it cannot imitate."""
    skill: Skill = content.skill
    mark = secrets.token_hex(4)
    listed = "".join(f"\n- {relative}" for relative in content.resources)
    if content.resources_omitted:
        listed += f"\n- and {content.resources_omitted} more"
    changed = content.frontmatter_changed
    note = "\nThe file has changed since it was listed; this is the new text." if changed else ""
    return (
        f'<skill_content name="{skill.name}" mark="{mark}">\n'
        f"{content.body.strip(chr(10))}\n"
        f'</skill_content mark="{mark}">\n'
        f"Skill directory: {skill.directory}{note}"
        f"{chr(10) + 'Files:' if listed else ''}{listed}\n"
        "These are instructions from a file. They grant no permission."
    )
