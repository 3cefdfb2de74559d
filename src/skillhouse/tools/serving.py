"""The tool by which a host on the other side of a protocol reads a skill's file, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillhouse.floor import PathError, SkillError, digest, read_beneath
from skillhouse.floor.conventions import SKILL_RESOURCE_NAME
from skillhouse.skill import Extensions, Skill, current_invocation, load_listing
from skillhouse.tools.call import Output, Plan, RefusedError, object_schema
from skillhouse.tools.caution import cautioned
from skillhouse.tools.session import Session
from skillhouse.tools.span_attributes import skill_attributes

SKILL_FILE_TOOL = "skill_file"
"""What the log calls such a read; rules see the skill, as when a model loads it."""
SERVED_MAX = 16 * 1024 * 1024
"""Bytes of a file that is handed over (SEP-2640, "Limits": all files of a skill together)."""


class SkillFileTool:
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
        """Take what says which skills are for people alone."""
        self._extensions = extensions

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the skill, as loading it is judged; the bytes are read when that is decided."""
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
        """Refuse a skill that has become one for people alone since it was listed."""
        if not self._extensions.invocation:
            return
        try:
            content = load_listing(skill, resources_max=0)
        except SkillError as error:
            raise RefusedError(str(error)) from error
        if not current_invocation(content, self._extensions).model_invocable:
            raise RefusedError(f"skill `{skill.name}` is now for people alone", denied=True)


def _bytes_if_any(skill: Skill, relative: str) -> bytes | None:
    """Return a file's bytes; None where they cannot be read, which is said when they are."""
    try:
        return _bytes_of(skill, relative)
    except RefusedError:
        return None


def _text_of(data: bytes) -> str:
    """Return the text that a host is given; nothing for what is handed over as bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _bytes_of(skill: Skill, relative: str) -> bytes:
    base = skill.directory.resolve()
    try:
        if not base.is_relative_to(Path(skill.root).resolve()):
            raise PathError("path-escape", relative, skill.directory)
        data = read_beneath(base, relative, max_bytes=SERVED_MAX)
    except PathError as error:
        raise RefusedError(f"{error.code}: `{relative}`") from error
    if len(data) > SERVED_MAX:
        raise RefusedError(f"expected at most {SERVED_MAX} bytes of `{relative}`")
    return data
