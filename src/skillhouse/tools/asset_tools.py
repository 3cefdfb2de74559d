"""The tools for a skill's other files (S003-77 to S003-79)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillhouse.floor.conventions import SKILL_RESOURCE_NAME
from skillhouse.skill import Skill, ToolRule
from skillhouse.tools.assets import AssetError, list_assets, read_asset, script_path
from skillhouse.tools.call import Output, Plan, object_schema
from skillhouse.tools.caution import cautioned, check_fetched, handed
from skillhouse.tools.messages import render
from skillhouse.tools.remote_skills import fetched, files_elsewhere
from skillhouse.tools.session import Session
from skillhouse.tools.skills import CATEGORY, SkillReference, VisibleSkills
from skillhouse.tools.span_attributes import skill_attributes

_SKILL = {"type": "string", "description": "the skill's name"}


class _AboutASkill:
    """What the three tools share: a skill is named, and needs the permission to load it."""

    durable = False
    category = CATEGORY
    reads_only = True
    kind = ""

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        """Take what the profile calls this tool, and what one agent sees."""
        self.name = rule.name
        self.title = rule.title or rule.name
        self.description = render(shown.profile.messages, f"{self.kind}_description")
        self._rule = rule
        self._profile = shown.profile
        self._reference = SkillReference(rule, shown)

    def _schema(self, **more: str) -> Mapping[str, Any]:
        properties: dict[str, Any] = {self._reference.parameter: _SKILL}
        for name, about in more.items():
            properties[self._parameter(name)] = {"type": "string", "description": about}
        return object_schema(properties, required=tuple(properties))

    def _parameter(self, name: str) -> str:
        return self._rule.parameters.get(name, name)

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments under the schema's names."""
        return self._reference.canonical(arguments)


class AssetTool(_AboutASkill):
    """Reads a text file of a skill."""

    kind = "asset"

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        super().__init__(rule, shown)
        self.schema = self._schema(path="the file, relative to the skill's directory")

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the skill; the path is checked when the file is opened."""
        skill = self._reference.skill(arguments, session)
        relative: str = arguments[self._parameter("path")]
        file = str(skill.directory / relative)
        is_away = files_elsewhere(session, skill) is not None
        known = None if is_away else self._text(skill, relative)
        needs, hidden = cautioned(
            session, session.needs_of(skill), skill=skill, file=file, text=known
        )

        async def run() -> Output:
            if is_away:
                await fetched(session, skill, relative)
            try:
                text = read_asset(skill, relative, self._profile) if known is None else known
            except AssetError as error:
                return Output(text=str(error), failed=True)
            check_fetched(session, needs, file, text)
            span_attributes = {SKILL_RESOURCE_NAME: relative}
            return Output(
                text=handed(text),
                data=_about(skill, path=relative),
                span_attributes=span_attributes,
            )

        span_attributes = skill_attributes(skill, session)
        return Plan(needs=needs, run=run, facts=hidden, span_attributes=span_attributes)

    def _text(self, skill: Skill, relative: str) -> str | None:
        try:
            return read_asset(skill, relative, self._profile)
        except AssetError:
            return None


class ScriptPathTool(_AboutASkill):
    """Says where a skill's script lies."""

    kind = "script_path"

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        super().__init__(rule, shown)
        self.schema = self._schema(script="the name of a file in scripts/")

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the skill; its directory may be read from then on, so that the script can run."""
        skill = self._reference.skill(arguments, session)
        name: str = arguments[self._parameter("script")]

        async def run() -> Output:
            try:
                path = script_path(skill, name, self._profile)
            except AssetError as error:
                return Output(text=str(error), failed=True)
            session.loaded[skill.file] = skill.directory
            return Output(text=str(path), data=_about(skill, path=str(path)))

        span_attributes = skill_attributes(skill, session)
        return Plan(needs=session.needs_of(skill), run=run, span_attributes=span_attributes)


class AssetsTool(_AboutASkill):
    """Lists the files of a skill."""

    kind = "assets"

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        super().__init__(rule, shown)
        self.schema = self._schema()

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the skill."""
        skill = self._reference.skill(arguments, session)

        async def run() -> Output:
            away = files_elsewhere(session, skill)
            paths = list_assets(skill, self._profile) if away is None else away
            return Output(
                text="\n".join(paths) or render(self._profile.messages, "none"),
                data={**_about(skill), "paths": list(paths)},
            )

        span_attributes = skill_attributes(skill, session)
        return Plan(needs=session.needs_of(skill), run=run, span_attributes=span_attributes)


def _about(skill: Skill, **more: str) -> dict[str, Any]:
    return {"id": skill.id, **more}
