"""Finds the person's tools for runs: their places, their caches and the settings of git."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from skillhouse.floor import dataclass
from skillhouse.sandbox.person_git import IDENTITY, PersonGit
from skillhouse.sandbox.tool_caches import caches_for
from skillhouse.sandbox.toolchains import ToolPlaces, pinned_programs
from skillhouse.sandbox.toolset import PROGRAM_PATH, Toolset

CHECKED = ("git", "node", "python", "python3", "cargo", "go", "java", "uv", "gh")
"""Programs that `doctor` compares (issue 34)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """What the operator says of tools."""

    path: tuple[str, ...] = ()
    """Directories of programs before those of PATH; relative ones are of the workspace."""
    mounts: tuple[str, ...] = ()
    """Further places that tools read."""


class ToolFinder:
    """Finds the tools of one person."""

    def __init__(
        self,
        environment: Mapping[str, str],
        home: Path,
        caches: Path,
        settings: ToolSettings = ToolSettings(),  # noqa: B008 - a frozen value.
    ) -> None:
        """Make one; `environment` is the person's, and `caches` the directory of all caches."""
        self._environment = environment
        self._home = home
        self._caches = caches
        self._settings = settings
        self._git = PersonGit(environment, home)

    def find(self, workspace: Path, programs: Sequence[str] = ()) -> Toolset:
        """Return the tools of runs in a workspace, as they are now.

        Args:
            workspace: Its real path.
            programs: Absolute paths of programs in it that will run.
        """
        tools = self.places(workspace, programs)
        caches, variables, problem = caches_for(workspace, self._caches, tools.which)
        return replace(
            tools,
            environment={**tools.environment, **variables},
            caches=caches,
            notes=(*tools.notes, *filter(None, (problem,))),
        )

    def places(self, workspace: Path, programs: Sequence[str] = ()) -> Toolset:
        """Return the tools without their caches: nothing is made for it."""
        found = ToolPlaces(self._environment, self._home, workspace).find(
            own=self._settings.path, mounts=self._settings.mounts, programs=programs
        )
        path = tuple(found.path)
        identity = {n: self._environment[n] for n in IDENTITY if self._environment.get(n)}
        outside = ":".join((*path, PROGRAM_PATH))
        return Toolset(
            path=path,
            mounts=tuple(map(Path, sorted(found.mounts))),
            links=found.links,
            pinned=pinned_programs(path),
            environment={**found.variables, **identity},
            git=self._git.of(workspace, shutil.which("git", path=outside)),
            notes=tuple(dict.fromkeys(found.notes)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPlaces:
    """Where a program is found."""

    name: str
    inside: str
    """In the sandbox; empty where it is not found there."""
    shell: str
    """In the person's shell; likewise."""

    @property
    def is_same(self) -> bool:
        return os.path.realpath(self.inside) == os.path.realpath(self.shell)


def compared_programs(tools: Toolset, path: str) -> tuple[ProgramPlaces, ...]:
    """Return where the programs are that are found anywhere; `path` is the person's PATH."""
    found = (
        ProgramPlaces(
            name=name, inside=tools.which(name) or "", shell=shutil.which(name, path=path) or ""
        )
        for name in CHECKED
    )
    return tuple(one for one in found if one.inside or one.shell)
