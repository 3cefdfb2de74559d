"""The values of a manifest: what an executable skill says about itself, and its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skillhouse.floor import Diagnostic

JAVASCRIPT_FILE = "package.json"
"""Manifest of a skill in JavaScript (S002-24)."""
PYTHON_FILE = "pyproject.toml"
"""Manifest of a skill in Python, in the manner of its language."""

MANIFEST_MAX = 262_144
"""Bytes of a manifest, as of a SKILL.md (DESIGN, bounds)."""
TOOLS_MAX = 64
"""Tools of one skill; each costs the model its description at every turn."""
ENV_MAX = 64
"""Environment variables of one skill."""
TEXT_MAX = 4_096
"""Characters of a description, of a skill or a tool."""
TIMEOUT_MAX_MS = 600_000
"""Longest time that a tool may ask for (10 minutes)."""

Level = Literal["read", "write", "sign"]
"""What a tool does at most: look, change local state, or sign (S002-29)."""
LEVELS: tuple[Level, ...] = ("read", "write", "sign")

Language = Literal["javascript", "python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool as a manifest declares it; its code has not been looked at."""

    name: str
    """Without the skill's name; the full name is `skill:tool` (S002-67)."""
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema 2020-12 of an object, with what `manifest_schema` refuses left out."""
    level: Level
    timeout_ms: int | None = None
    """None takes the default of whoever runs it (S002-73)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillManifest:
    """One executable skill as its manifest declares it; nothing of it was run."""

    name: str
    """Of the package, which may differ from the directory's; it is the tools' prefix."""
    version: str
    """Empty when the manifest has none."""
    description: str
    language: Language
    entry: str
    """The module to import: a relative POSIX path of a regular file in the skill."""
    env: tuple[str, ...]
    """Names of the only environment variables that its code may see (S002-48)."""
    tools: tuple[ToolSpec, ...]
    author: str = ""
    license: str = ""
    dependencies: tuple[str, ...] = ()
    """What it needs, as written (`viem@^2.0.0`, `httpx>=0.28`); a lock file says which exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestResult:
    """The result of reading one directory."""

    directory: Path
    manifest: SkillManifest | None
    """None when a diagnostic is an error, or when the directory holds no executable skill."""
    diagnostics: tuple[Diagnostic, ...] = ()
