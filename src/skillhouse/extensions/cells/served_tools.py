"""The tools that an executor serves, as the manifests of the skills that it has say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread
from msgspec import Struct

from skillhouse.floor import Severity, WireNames, as_error, tree_digest
from skillhouse.sandbox.code_call import TOOL_SECONDS, CellSpec
from skillhouse.skill import ManifestResult, SkillManifest, find_manifests


class ServedTool(Struct, frozen=True, kw_only=True):
    name: str
    """Its name on the wire, `skill:tool`."""
    tool: str
    """Its name in the skill's code."""
    spec: CellSpec
    description: str
    parameters: Mapping[str, Any]
    level: str
    """"read", "write" or "sign"."""
    seconds: float = TOOL_SECONDS
    env: tuple[str, ...] = ()
    """Names of the variables that its skill declares: a call may bring no others (S002-48)."""

    def info(self) -> dict[str, Any]:
        """Return its ToolInfo for `tool.list` (S002-17)."""
        return {
            "name": self.name,
            "skill": self.spec.skill,
            "description": self.description,
            "parameters": dict(self.parameters),
            "security": {"level": self.level},
        }


class SkillSource(Protocol):
    def tools(self) -> Sequence[ServedTool]: ...

    async def reload(self) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """Read the skills again; return the loaded names, and (name, error) of the others."""
        ...


class DirectorySource:
    """Reads manifests and runs nothing; of skills with one name the first directory's is used."""

    def __init__(self, roots: Sequence[Path], *, shared: Mapping[str, tuple[Path, ...]]) -> None:
        """Serve the skills below `roots`; `shared` packages are by language, nearest first."""
        self._roots = tuple(roots)
        self._shared = shared
        self._tools: tuple[ServedTool, ...] = ()

    def tools(self) -> Sequence[ServedTool]:
        return self._tools

    async def reload(self) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """Read the skills again; the old ones are served until all have been read."""
        tools, loaded, failed = await anyio.to_thread.run_sync(self._read)
        self._tools = tools
        return loaded, failed

    def _read(self) -> tuple[tuple[ServedTool, ...], list[str], list[tuple[str, str]]]:
        tools: list[ServedTool] = []
        loaded: list[str] = []
        failed: list[tuple[str, str]] = []
        names = WireNames()
        for root in self._roots:
            for result in find_manifests(root):
                errors = [one for one in result.diagnostics if one.severity is Severity.ERROR]
                name = result.directory.name if result.manifest is None else result.manifest.name
                failed += [(name, one.message) for one in errors]
                if result.manifest is None or errors or name in loaded:
                    continue
                try:
                    digest = tree_digest(result.directory)
                    for spec in result.manifest.tools:
                        names.add(name, spec.name)
                    tools += served_tools(result, result.manifest, digest, shared=self._shared)
                except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
                    failed.append((name, str(as_error(error))))
                else:
                    loaded.append(name)
        return tuple(tools), loaded, failed


def served_tools(
    result: ManifestResult,
    manifest: SkillManifest,
    digest: str,
    *,
    shared: Mapping[str, tuple[Path, ...]],
) -> list[ServedTool]:
    """Return the tools of one skill, whose tree has that digest."""
    cell = CellSpec(
        skill=manifest.name,
        digest=digest,
        directory=result.directory,
        language=manifest.language,
        entry=manifest.entry,
        shared=shared.get(manifest.language, ()),
    )
    return [
        ServedTool(
            name=f"{manifest.name}:{spec.name}",
            tool=spec.name,
            spec=cell,
            description=spec.description,
            parameters=spec.parameters,
            level=spec.level,
            seconds=TOOL_SECONDS if spec.timeout_ms is None else spec.timeout_ms / 1_000,
            env=manifest.env,
        )
        for spec in manifest.tools
    ]
