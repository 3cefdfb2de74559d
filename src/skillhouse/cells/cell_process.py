"""What a cell lives in, whatever holds it: one process with what it started."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from skillhouse.cells.cell import CellSpec
from skillhouse.cells.cell_environment import CellEnvironment
from skillhouse.sandbox.errors import SandboxError
from skillhouse.sandbox.process import GRACE_SECONDS
from skillhouse.sandbox.profile import Completed


class CellProcess(ABC):
    """One process, from its start until nothing of it is left."""

    def __init__(
        self,
        housing: CellEnvironment,
        spec: CellSpec,
        *,
        tree: Path,
        forks: bool,
        is_spare: bool = False,
    ) -> None:
        """Prepare it; `start` spawns.

        Args:
            housing: What it is built from.
            spec: Whose code runs in it.
            tree: The private copy of the skill's tree.
            forks: True for a process that forks for each call, False for one call's own.
            is_spare: True for one call's own that is to be ready before there is a call.

        Raises:
            SandboxError: a control group or the program for the language is missing.
        """
        self._housing = housing
        self._spec = spec
        self._tree = tree
        self._forks = forks
        self._is_spare = is_spare
        self.completed: Completed | None = None
        self.failure: SandboxError | None = None
        self.gone = asyncio.Event()
        """Set when nothing of it is left."""

    @abstractmethod
    def start(self, kind: socket.SocketKind) -> socket.socket:
        """Spawn, and return our end of the socket to it."""

    @abstractmethod
    async def end(self) -> None:
        """Kill it, and return when nothing of it is left."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return what a process that forks is told of its place."""

    @abstractmethod
    def said(self, max_bytes: int) -> bytes:
        """Return the end of what it printed."""

    @abstractmethod
    def begin_call(self) -> None:
        """Look at it often: a call runs."""

    @abstractmethod
    def end_call(self) -> None:
        """Look at it less often, if that was the last."""

    @abstractmethod
    def limit(self) -> str:
        """Return the limit that was met: "memory", "processes", "files", "output" or ""."""

    async def end_when_closed(self) -> None:
        """Return when nothing of it is left, once it has closed the socket; help if need be."""
        with anyio.move_on_after(GRACE_SECONDS):
            await self.gone.wait()
            return
        await self.end()

    def how(self) -> str:
        """Return how it ended, in words for a person."""
        if self.failure is not None:
            return str(self.failure)
        if self.completed is None:
            return "the cell was closed"
        if self.completed.signal is not None:
            return f"the process ended by signal {self.completed.signal}"
        return f"the process ended with exit code {self.completed.exit_code}"
