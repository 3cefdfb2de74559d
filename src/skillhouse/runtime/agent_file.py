"""The skills that a subagent's file names, as Claude Code writes such files."""

from __future__ import annotations

import re
from pathlib import Path

from skillhouse.floor import ConfigError, read_regular
from skillhouse.skill import parse

AGENT_FILE_MAX = 262_144
"""Bytes of such a file, as of a SKILL.md."""


def agent_skills(path: Path) -> tuple[str, ...]:
    """Return what the field `skills` of a subagent's Markdown file names, for `preload`.

    It is a list or a line with commas (reference/standard.md section 6). Nothing else of the file
    is used, and naming a skill grants nothing.

    Raises:
        ConfigError: the file cannot be read, or has no frontmatter that can be used.
    """
    try:
        data = read_regular(path, AGENT_FILE_MAX)
    except OSError as error:
        raise ConfigError(f"cannot read the agent: {error.strerror}", path=path) from error
    result = parse(data, directory=path.stem, path=path)
    if result.skill is None:
        found = next(found for found in result.diagnostics if found.severity == "error")
        raise ConfigError(f"not an agent's file: {found.message}", path=path)
    named = result.skill.frontmatter.fields.get("skills", "")
    parts = re.split(r"[,\s]+", named) if isinstance(named, str) else named
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ConfigError("expected names in `skills`", path=path, key="skills")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
