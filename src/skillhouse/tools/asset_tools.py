"""The tools for a skill's other files (S003-77 to S003-79)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skillhouse.floor import PathError, SkillError, digest, is_leftover_name, read_beneath
from skillhouse.floor.tracing import SKILL_RESOURCE_NAME
from skillhouse.skill import Extensions, Skill, ToolRule, current_invocation, load_listing
from skillhouse.tools.assets import AssetError, list_assets, read_asset, script_path
from skillhouse.tools.call import Output, Plan, RefusedError, object_schema
from skillhouse.tools.messages import render
from skillhouse.tools.remote_skills import fetched
from skillhouse.tools.skill_text import cautioned, check_fetched, handed
from skillhouse.tools.skills import (
    CATEGORY,
    FindSkills,
    SearchTool,
    SkillReference,
    SkillTool,
    VisibleSkills,
)
from skillhouse.tools.telemetry import skill_attributes
from skillhouse.tools.tool import Session, Tool

_SKILL = {"type": "string", "description": "the skill's name"}


class _AboutASkill(Tool):
    """A tool that names a skill and needs the permission to load it."""

    durable = False
    category = CATEGORY
    reads_only = True
    is_about_skills = True
    kind = ""

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
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
        return self._reference.canonical(arguments)


class AssetTool(_AboutASkill):
    kind = "asset"

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        super().__init__(rule, shown)
        self.schema = self._schema(path="the file, relative to the skill's directory")

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        skill = self._reference.skill(arguments, session)
        relative: str = arguments[self._parameter("path")]
        file = str(skill.directory / relative)
        is_away = session.remote_files(skill) is not None
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
    kind = "script_path"

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        super().__init__(rule, shown)
        self.schema = self._schema(script="the name of a file in scripts/")

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """The skill's directory may be read from then on, so that the script can run."""
        skill = self._reference.skill(arguments, session)
        name: str = arguments[self._parameter("script")]

        async def run() -> Output:
            try:
                path = script_path(skill, name, self._profile)
            except AssetError as error:
                return Output(text=str(error), failed=True)
            session.begin(skill)
            return Output(text=str(path), data=_about(skill, path=str(path)))

        span_attributes = skill_attributes(skill, session)
        return Plan(needs=session.needs_of(skill), run=run, span_attributes=span_attributes)


class AssetsTool(_AboutASkill):
    kind = "assets"

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        super().__init__(rule, shown)
        self.schema = self._schema()

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        skill = self._reference.skill(arguments, session)

        async def run() -> Output:
            away = session.remote_files(skill)
            paths = list_assets(skill, self._profile) if away is None else away
            return Output(
                text="\n".join(paths) or render(self._profile.messages, "none"),
                data={**_about(skill), "paths": list(paths)},
            )

        span_attributes = skill_attributes(skill, session)
        return Plan(needs=session.needs_of(skill), run=run, span_attributes=span_attributes)


def _about(skill: Skill, **more: str) -> dict[str, Any]:
    return {"id": skill.id, **more}


SKILL_FILE_TOOL = "skill_file"
"""What the log calls such a read; rules see the skill, as when a model loads it."""
SERVED_MAX = 16 * 1024 * 1024
"""Bytes of a file that is handed over (SEP-2640, "Limits": all files of a skill together)."""


class SkillFileTool(Tool):
    """Hands over one file of a skill that the agent sees; no model is offered this tool."""

    name = SKILL_FILE_TOOL
    description = "Read a file of a skill for a host."
    durable = False
    schema: Mapping[str, Any] = object_schema(
        {
            "skill": {"type": "string", "description": "absolute path of the SKILL.md"},
            "path": {"type": "string", "minLength": 1, "description": "below its directory"},
        },
        required=("skill", "path"),
    )

    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        wanted = arguments["skill"]
        skill = next((one for one in session.visible.skills if one.file == wanted), None)
        if skill is None:
            raise RefusedError("no such skill")
        relative: str = arguments["path"]
        known = _bytes_if_any(skill, relative)
        needs, hidden = cautioned(
            session,
            session.needs_of(skill),
            skill=skill,
            file=str(skill.directory / relative),
            text=None if known is None else _text_of(known),
        )

        async def run() -> Output:
            self._check_model_may(skill)
            data = _bytes_of(skill, relative) if known is None else known
            return Output(
                text=f"{len(data)} bytes",
                data={"bytes": data},
                detail={"skill": skill.id, "file": relative, "digest": digest(data)},
                span_attributes={SKILL_RESOURCE_NAME: relative},
            )

        facts = (("skill", skill.id), ("file", relative), *hidden)
        span_attributes = skill_attributes(skill, session)
        return Plan(needs=needs, run=run, facts=facts, span_attributes=span_attributes)

    def _check_model_may(self, skill: Skill) -> None:
        """Refuse a skill that is for people alone since it was listed."""
        if not self._extensions.invocation:
            return
        try:
            content = load_listing(skill, resources_max=0)
        except SkillError as error:
            raise RefusedError(str(error)) from error
        if not current_invocation(content, self._extensions).model_invocable:
            raise RefusedError(f"skill `{skill.name}` is now for people alone", denied=True)


def _bytes_if_any(skill: Skill, relative: str) -> bytes | None:
    """None where they cannot be read, which then fails the call."""
    try:
        return _bytes_of(skill, relative)
    except RefusedError:
        return None


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _bytes_of(skill: Skill, relative: str) -> bytes:
    base = skill.directory.resolve()
    try:
        if not base.is_relative_to(skill.bound.resolve()):
            raise PathError("path-escape", relative, skill.directory)
        if is_leftover_name(relative):
            raise PathError("not-found", relative, skill.directory)
        data = read_beneath(base, relative, max_bytes=SERVED_MAX)
    except PathError as error:
        raise RefusedError(f"{error.code}: `{relative}`") from error
    if len(data) > SERVED_MAX:
        raise RefusedError(f"expected at most {SERVED_MAX} bytes of `{relative}`")
    return data


def tool_about_skills(rule: ToolRule, shown: VisibleSkills, find: FindSkills) -> Tool:
    if rule.kind == "search":
        return SearchTool(rule, shown, find)
    return _MAKERS[rule.kind](rule, shown)


_MAKERS: Mapping[str, Callable[[ToolRule, VisibleSkills], Tool]] = {
    "skill": SkillTool,
    "asset": AssetTool,
    "script_path": ScriptPathTool,
    "assets": AssetsTool,
}
