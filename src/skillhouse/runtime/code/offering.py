"""What of a skill's declared tools is offered, and at which level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor import Diagnostic, Severity, TreeError, tree_digest

if TYPE_CHECKING:
    from skillhouse.approval import Level
    from skillhouse.runtime.code.reloads import Lacking
    from skillhouse.skill import ManifestResult, SkillManifest


def without(result: ManifestResult, lacking: Lacking | None) -> ManifestResult:
    """Return what was found in a directory without the tools that its code lacks (S002-40).

    Other code than that which was looked at may have them, so all of its tools stay.
    """
    manifest = result.manifest
    if manifest is None or lacking is None or not lacking.tools:
        return result
    if not _is_of(lacking, result.directory):
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


def _is_of(lacking: Lacking, directory: Path) -> bool:
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


def levels_of_nothing(
    levels: Mapping[str, Level], manifests: Iterable[SkillManifest]
) -> list[Diagnostic]:
    """Return a warning for each level that is about no tool: a slip of the pen raises nothing."""
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
