"""What follows from the manifests that were found: which tools are offered, and why one is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from skillhouse.floor import (
    Diagnostic,
    Severity,
    TreeError,
    WireNameError,
    tree_digest,
    wire_name,
)
from skillhouse.floor.structs import replace
from skillhouse.house.reloads import Lacking
from skillhouse.house.trusted_text import PROJECT

if TYPE_CHECKING:
    from skillhouse.approval import Level
    from skillhouse.skill import ManifestResult, SkillManifest

Found: TypeAlias = "tuple[tuple[str, ManifestResult], ...]"
"""The manifests below the roots, each with the scope of its root."""


def why_absent(name: str, found: Found) -> str:
    """Return why no tool has this name although its skill is there; "" where it is not."""
    skill, _, tool = name.replace("__", ":", 1).partition(":")
    if not tool:
        return ""
    for scope, result in found:
        known = result.directory.name if result.manifest is None else result.manifest.name
        if skill not in (known, result.directory.name):
            continue
        faults = [one for one in result.diagnostics if one.severity is Severity.ERROR]
        if result.manifest is None and faults and scope == PROJECT:
            # A finding quotes the manifest, which may be other text than a person trusted.
            return f"the skill `{skill}` cannot be loaded; `skillhouse reload` says why"
        if result.manifest is None and faults:
            return f"the skill `{skill}` cannot be loaded: {_placed(faults[0])}"
        lacks = [one for one in result.diagnostics if f"`{tool}`" in one.message]
        if lacks:
            return f"the skill `{skill}` does not offer it: {_placed(lacks[0])}"
    return ""


def _placed(found: Diagnostic) -> str:
    """Return a finding with its file and line, in one line of printable text for a model."""
    file = "" if found.path is None else found.path.name
    line = "" if found.line is None else f":{found.line}"
    text = " ".join(f"{file}{line}: {found.message}".removeprefix(": ").split())[:500]
    return "".join(c if c.isprintable() else "?" for c in text)


def clash(error: WireNameError, directory: Path) -> Diagnostic:
    return Diagnostic(
        code="tool-name-taken",
        severity=Severity.ERROR,
        message=str(error),
        path=directory,
    )


def without_missing(result: ManifestResult, lacking: Lacking | None) -> ManifestResult:
    """Return a result without tools that this very code lacks (S002-40)."""
    manifest = result.manifest
    if manifest is None or lacking is None or not lacking.tools:
        return result
    if not is_of(lacking, result.directory):
        return result
    warnings = tuple(
        Diagnostic(
            code="tool-not-exported",
            severity=Severity.WARNING,
            message=f"the manifest declares `{tool.name}`, and `{manifest.entry}` does not export "
            "it; it is not offered",
            path=result.directory / manifest.entry,
        )
        for tool in manifest.tools
        if tool.name in lacking.tools
    )
    tools = tuple(tool for tool in manifest.tools if tool.name not in lacking.tools)
    return replace(
        result,
        manifest=replace(manifest, tools=tools),
        diagnostics=result.diagnostics + warnings,
    )


def is_of(lacking: Lacking, directory: Path) -> bool:
    try:
        return tree_digest(directory) == lacking.digest
    except (TreeError, OSError):
        return False


def least_levels(levels: Mapping[str, Level], skill: str) -> Mapping[str, Level]:
    """Return the operator's least levels of one skill's tools, by their names; "" is all of them.

    >>> least_levels({"dex:swap": "sign", "dex": "write", "other": "write"}, "dex")
    {'swap': 'sign', '': 'write'}
    """
    pairs = ((*key.partition(":"), level) for key, level in levels.items())
    return {tool: level for name, _, tool, level in pairs if name == skill}


def levels_of_unknown_tools(
    levels: Mapping[str, Level], manifests: Iterable[SkillManifest]
) -> list[Diagnostic]:
    """Return a warning for each level that names no tool, such as a typing error."""
    known = {
        name
        for manifest in manifests
        for name in (manifest.name, *(f"{manifest.name}:{tool.name}" for tool in manifest.tools))
    }
    return [
        Diagnostic(
            code="level-of-nothing",
            severity=Severity.WARNING,
            message=f"`levels` below `[skill_code]` names `{name}`, and there is no such tool",
        )
        for name in levels
        if name not in known
    ]


def may_start_early(tool: str, found: Found) -> bool:
    """Whether a tool is of a Python skill whose cell shows nothing but the skill."""
    return any(
        tool in (f"{manifest.name}:{spec.name}", wire_name(manifest.name, spec.name))
        for _, result in found
        if (manifest := result.manifest) is not None
        and manifest.language == "python"
        and not manifest.dependencies
        for spec in manifest.tools
    )
