"""The skills that an executor serves, from directories that its operator names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio.to_thread

from skillhouse.cells.cell import TOOL_SECONDS, CellSpec
from skillhouse.cells.service import ServedTool
from skillhouse.floor import Severity, TreeError, WireNameError, WireNames, tree_digest
from skillhouse.skill import ManifestResult, SkillManifest, find_manifests


class DirectorySource:
    """Reads manifests and runs nothing; of skills with one name the first directory's is used."""

    def __init__(self, roots: Sequence[Path], *, shared: Mapping[str, tuple[Path, ...]]) -> None:
        """Serve the skills directly below `roots`.

        Args:
            shared: The operator's directories of packages, nearest first, by language.
        """
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
                    tools += self._served(result, result.manifest, names)
                except (TreeError, WireNameError) as error:
                    failed.append((name, str(error)))
                else:
                    loaded.append(name)
        return tuple(tools), loaded, failed

    def _served(
        self, result: ManifestResult, manifest: SkillManifest, names: WireNames
    ) -> list[ServedTool]:
        cell = CellSpec(
            skill=manifest.name,
            digest=tree_digest(result.directory),
            directory=result.directory,
            language=manifest.language,
            entry=manifest.entry,
            shared=self._shared.get(manifest.language, ()),
        )
        for spec in manifest.tools:
            names.add(manifest.name, spec.name)
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
