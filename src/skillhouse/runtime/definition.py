"""A skill as the management operations give it, with its files and their types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from skillhouse.runtime.mcp_skills import load_known
from skillhouse.skill import list_resources, revealed

if TYPE_CHECKING:
    from skillhouse.runtime.settings import SkillSettings
    from skillhouse.skill import Profile, Skill

FileKind = Literal["markdown", "script", "template", "other"]

_SCRIPTS = (".py", ".js", ".ts", ".sh", ".bash")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """One file of a skill (S004-11)."""

    name: str
    """Relative to the skill's directory."""
    path: str
    """Absolute."""
    type: FileKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDefinition:
    """A skill as the management operations give it (S004-82)."""

    id: str
    name: str
    description: str
    source: str
    path: str
    """The SKILL.md."""
    directory_path: str
    enabled: bool
    instructions: str
    allowed_tools: tuple[str, ...]
    files: tuple[SkillFile, ...]


def define(skill: Skill, settings: SkillSettings, profile: Profile) -> SkillDefinition:
    """Return what is known of a skill; its body is read now.

    Raises:
        SkillError: the file cannot be used any more.
    """
    content = load_known(skill)
    return SkillDefinition(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        source=profile.scope(skill.scope).source or skill.scope,
        path=skill.file,
        directory_path=str(skill.directory),
        enabled=settings.is_enabled(skill.id),
        instructions=revealed(content.body.strip()),
        allowed_tools=skill.frontmatter.allowed_tools,
        files=skill_files(skill),
    )


def skill_files(skill: Skill) -> tuple[SkillFile, ...]:
    """Return the skill's other files with their types, sorted; at most `RESOURCES_MAX`."""
    listed, _ = list_resources(skill.directory)
    return tuple(
        SkillFile(name=name, path=str(skill.directory / name), type=file_kind(name))
        for name in listed
    )


def file_kind(name: str) -> FileKind:
    """Return the type of a file by its path (S004-11).

    >>> [file_kind(name) for name in ("a.md", "run.py", "templates/t.txt", "logo.png")]
    ['markdown', 'script', 'template', 'other']
    """
    path = PurePosixPath(name)
    if path.suffix == ".md":
        return "markdown"
    if path.suffix in _SCRIPTS:
        return "script"
    if "templates" in path.parts[:-1] or "template" in path.name:
        return "template"
    return "other"
