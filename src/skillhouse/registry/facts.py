"""Says of a skill that is not in use yet what a person wants to know of it first."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import Diagnostic, PathError, Severity, SkillError, read_beneath
from skillhouse.skill import (
    SKILL_FILE,
    SKILL_FILE_MAX,
    HiddenText,
    SkillManifest,
    ToolSpec,
    hidden_text,
    parse,
    read_manifest,
    validate_name,
)

VERSION_MAX = 64
"""Characters of a version."""


class SkillFacts(Struct, frozen=True, kw_only=True):
    """What the files of a skill say of themselves: nothing of it is checked."""

    name: str
    description: str
    version: str = ""
    """Of the frontmatter or the manifest; empty where there is none."""
    license: str = ""
    allowed_tools: tuple[str, ...] = ()
    """What it would like to use; it grants nothing."""
    tools: tuple[ToolSpec, ...] = ()
    """Its own, in code."""
    env: tuple[str, ...] = ()
    """Environment variables that its code asks for."""
    dependencies: tuple[str, ...] = ()
    body: str = ""
    hidden: HiddenText | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


def read_facts(directory: Path, folder: str, *, any_name: bool = False) -> SkillFacts:
    """Return what is known of the skill in `directory`, whose name was `folder` where it is from.

    Args:
        any_name: Also where its name is no name for a directory.

    Raises:
        SkillError: it is no skill that could be loaded, or its name is no name for a directory.
    """
    file = directory / SKILL_FILE
    declared = read_manifest(directory)
    manifest = declared.manifest
    if manifest is not None and not os.path.lexists(file):
        # A skill of code alone needs no SKILL.md.
        return _checked(_of_manifest(manifest, declared.diagnostics), directory)
    try:
        data = read_beneath(directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
    except PathError as error:
        raise SkillError(error.code, file, "cannot read this skill") from error
    result = parse(data, directory=folder, path=file)
    skill = result.skill
    if skill is None:
        refused = next(one for one in result.diagnostics if one.severity is Severity.ERROR)
        raise SkillError(refused.code, file, refused.message)
    said = skill.frontmatter
    facts = SkillFacts(
        name=skill.name,
        description=skill.description,
        version=_version(said.version or (manifest.version if manifest else "")),
        license=said.license or (manifest.license if manifest else ""),
        allowed_tools=said.allowed_tools,
        tools=manifest.tools if manifest else (),
        env=manifest.env if manifest else (),
        dependencies=manifest.dependencies if manifest else (),
        body=result.body,
        hidden=hidden_text(result.text),
        diagnostics=(*result.diagnostics, *declared.diagnostics),
    )
    return facts if any_name else _checked(facts, file)


def _of_manifest(manifest: SkillManifest, diagnostics: tuple[Diagnostic, ...]) -> SkillFacts:
    return SkillFacts(
        name=manifest.name,
        description=manifest.description,
        version=_version(manifest.version),
        license=manifest.license,
        tools=manifest.tools,
        env=manifest.env,
        dependencies=manifest.dependencies,
        diagnostics=diagnostics,
    )


def _checked(facts: SkillFacts, path: Path) -> SkillFacts:
    # A package is named after it.
    if findings := validate_name(facts.name, directory=facts.name):
        raise SkillError(findings[0].code, path, findings[0].message)
    return facts


def _version(text: str) -> str:
    """Return a version that can be part of a file's name, or nothing."""
    kept = text.strip()
    is_plain = kept.isascii() and all(c.isalnum() or c in ".-+" for c in kept)
    return kept if is_plain and len(kept) <= VERSION_MAX and kept[:1].isalnum() else ""
