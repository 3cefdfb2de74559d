"""Finds the person's tools for runs: their places, their caches and the settings of git."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor.structs import replace
from skillhouse.sandbox.person_git import IDENTITY, PersonGit
from skillhouse.sandbox.tool_caches import CachesSeen, FoundCaches, caches_for
from skillhouse.sandbox.toolchains import ToolPlaces
from skillhouse.sandbox.toolset import Toolset

KEPT_MAX = 64
"""Workspaces, with the programs that commands named there, whose places are remembered."""
CHECKED = ("git", "node", "python", "python3", "cargo", "go", "java", "uv", "gh")
"""Programs that `doctor` compares (issue 34)."""


class ToolSettings(Struct, frozen=True, kw_only=True):
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
        self._kept: dict[tuple[str, tuple[str, ...]], _KeptPlaces] = {}
        self._lock = threading.Lock()

    def find(self, workspace: Path, programs: Sequence[str] = ()) -> Toolset:
        """Return the tools of runs in a workspace, as they are now.

        Args:
            workspace: Its real path.
            programs: Absolute paths of programs in it that will run.
        """
        kept = self._kept_for(workspace, programs)
        tools = self._with_git(kept.tools, workspace)
        caches, variables, problem = kept.caches(workspace, self._caches)
        return replace(
            tools,
            environment={**tools.environment, **variables},
            caches=caches,
            notes=(*tools.notes, *filter(None, (problem,))),
        )

    def places(self, workspace: Path, programs: Sequence[str] = ()) -> Toolset:
        """Return the tools without their caches: nothing is made for it."""
        return self._with_git(self._kept_for(workspace, programs).tools, workspace)

    def _with_git(self, tools: Toolset, workspace: Path) -> Toolset:
        program = shutil.which("git", path=tools.outside_path)
        return replace(tools, git=self._git.of(workspace, program))

    def _kept_for(self, workspace: Path, programs: Sequence[str]) -> _KeptPlaces:
        key = (str(workspace), tuple(programs))
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.places.hold():
            return kept
        places = ToolPlaces(self._environment, self._home, workspace)
        found = places.find(
            own=self._settings.path, mounts=self._settings.mounts, programs=programs
        )
        path = tuple(found.path)
        identity = {n: self._environment[n] for n in IDENTITY if self._environment.get(n)}
        tools = Toolset(
            path=path,
            mounts=tuple(map(Path, sorted(found.mounts))),
            links=found.links,
            pinned=places.pinned(path),
            environment={**found.variables, **identity},
            notes=tuple(dict.fromkeys(found.notes)),
        )
        kept = _KeptPlaces(places, tools)
        with self._lock:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[key] = kept
        return kept


class _KeptPlaces:
    """The places of one workspace, which hold until something of them changes."""

    def __init__(self, places: ToolPlaces, tools: Toolset) -> None:
        self.places = places
        self.tools = tools
        self._found: dict[str, str | None] = {}
        self._caches: tuple[CachesSeen, FoundCaches] | None = None

    def caches(self, workspace: Path, base: Path) -> FoundCaches:
        """Return what `caches_for` does, looked at again where anything of it changed."""
        kept = self._caches
        if kept is None or not kept[0].hold(time.time()):
            seen = CachesSeen()
            found = caches_for(workspace, base, self.which, self.cache_place, seen=seen)
            kept = seen, found
            self._caches = kept if found[0] is not None else None
        return kept[1]

    def cache_place(self, texts: Sequence[str]) -> str:
        return self.places.cache_place(texts, self.tools)

    def which(self, name: str) -> str | None:
        """Return where a run found a program when it was first asked for."""
        if name not in self._found:
            self._found[name] = self.tools.which(name)
        return self._found[name]


class ProgramPlaces(Struct, frozen=True, kw_only=True):
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
