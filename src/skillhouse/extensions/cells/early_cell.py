"""A Python cell's process that starts while it is still decided whether its call may run.

It is bubblewrap with an interpreter that has loaded our own code and waits for its settings. It
shows an empty directory where the skill is to be, so before the decision there is nothing of any
skill in it. After the decision the private copy is made in that directory.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import anyio
import anyio.to_thread

from skillhouse.extensions.cells.cell_environment import CellEnvironment, CodeSnapshots, places
from skillhouse.extensions.cells.cell_process import BubblewrapCell
from skillhouse.sandbox import SandboxError, default_python
from skillhouse.sandbox.code_call import CellSpec


class EarlyCell:
    """The process, until a `PythonCell` takes it over or it is ended."""

    def __init__(self, environment: CellEnvironment, tree: Path) -> None:
        """Spawn it.

        Args:
            tree: The empty directory for the copy of a skill's tree.
        """
        spec = CellSpec(skill="", digest="", directory=tree, language="python", entry="")
        self.tree = tree
        self.process = BubblewrapCell(environment, spec, tree=tree, forks=True)
        self.control = self.process.start(socket.SOCK_SEQPACKET)

    def fits(self, spec: CellSpec) -> bool:
        """Whether a cell for this skill would have been started in the same way."""
        has_same_view = spec.language == "python" and not places(spec)[1] and not spec.hosts
        has_same_python = spec.python in (None, default_python())
        return has_same_view and has_same_python and not self.process.gone.is_set()

    async def end(self) -> None:
        """Kill it, where nothing took it over."""
        self.control.close()
        await self.process.end()


class EarlyStart:
    """At most one such process, and the directory that it shows."""

    def __init__(self, environment: CellEnvironment, snapshots: CodeSnapshots) -> None:
        self._environment = environment
        self._snapshots = snapshots
        self._cell: EarlyCell | None = None

    async def start(self) -> None:
        if self._cell is not None or self._environment.is_contained:
            return
        tree = self._snapshots.reserve()
        try:
            self._cell = EarlyCell(self._environment, tree)
        except SandboxError:
            self._snapshots.drop(tree)
            raise
        # In this step bubblewrap gets all that it needs from us; it starts the rest by itself.
        await asyncio.sleep(0)

    def take(self, spec: CellSpec) -> EarlyCell | None:
        """Return the process if it fits a skill; nothing else gets it then."""
        early = self._cell
        if early is None or not early.fits(spec):
            return None
        self._cell = None
        return early

    async def end(self) -> None:
        """Kill the process that no call took."""
        early, self._cell = self._cell, None
        if early is not None:
            await early.end()
            await anyio.to_thread.run_sync(self._snapshots.drop, early.tree)
