"""What a cell lives in, whatever holds it: one process with what it started."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio

from skillhouse.cells.cell import CellSpec
from skillhouse.cells.cell_environment import (
    NODE_CELL,
    NODE_FLAGS,
    PYTHON_CELL,
    SCRIPT_PLACE,
    CellEnvironment,
    node_program,
    places,
)
from skillhouse.sandbox import bubblewrap
from skillhouse.sandbox.bubblewrap import CellView
from skillhouse.sandbox.errors import SandboxError
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.process import GRACE_SECONDS, Command, Run
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


class BubblewrapCell(CellProcess):
    """One bubblewrap with what runs in it."""

    def __init__(
        self,
        housing: CellEnvironment,
        spec: CellSpec,
        *,
        tree: Path,
        forks: bool,
        is_spare: bool = False,
    ) -> None:
        super().__init__(housing, spec, tree=tree, forks=forks, is_spare=is_spare)
        self._guard = housing.guard()
        self._task: asyncio.Task[None] | None = None
        self._run: Run | None = None
        self._running = asyncio.Event()
        self._is_ending = False

    def start(self, kind: socket.SocketKind) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        self._run = Run(self._command(theirs.fileno()), self._guard, self._housing.limits)
        self._task = asyncio.get_running_loop().create_task(self._live(self._run, theirs))
        return ours

    async def _live(self, run: Run, theirs: socket.socket) -> None:
        self._running.set()
        try:
            self.completed = await run.complete(b"", spawned=theirs.close)
        except SandboxError as error:
            self.failure = error
        except OSError as error:
            self.failure = SandboxError("sandbox-failed", f"cannot start a cell: {error}")
        finally:
            theirs.close()
            with anyio.CancelScope(shield=True):
                with contextlib.suppress(SandboxError):
                    await self._guard.remove()
                self.gone.set()

    async def end(self) -> None:
        if self._task is None:
            await self._guard.remove()
            return
        # A task that is cancelled before its first step never comes to its end's work.
        await self._running.wait()
        if not self._is_ending:
            # INVARIANT: once. A second one would break off what the first one set going.
            self._is_ending = True
            self._task.cancel()
        await asyncio.wait({self._task})

    def said(self, max_bytes: int) -> bytes:
        return self._run.said(max_bytes) if self._run else b""

    def settings(self) -> Mapping[str, Any]:
        skill, packages = places(self._spec)
        return {"namespaces": True, "skill": skill, "packages": [place for _, place in packages]}

    def begin_call(self) -> None:
        self._guard.active += 1

    def end_call(self) -> None:
        self._guard.active -= 1

    def limit(self) -> str:
        if self.completed is not None and self.completed.limit:
            return self.completed.limit
        return "" if self.gone.is_set() else self._guard.reached()

    def _command(self, descriptor: int) -> Command:
        spec, housing = self._spec, self._housing
        argv, readable = self._argv(descriptor)
        script = PYTHON_CELL if self._forks else NODE_CELL
        texts = {path: text.encode() for path, text in bubblewrap.CELL_FILES.items()}
        texts[SCRIPT_PLACE] = script.read_bytes()
        skill_place, packages = places(spec)
        view = CellView(
            skill=self._tree,
            skill_place=skill_place,
            packages=packages,
            readable=readable,
            limits=housing.limits,
            forks=self._forks,
        )

        def options(descriptors: Mapping[str, int]) -> Iterable[str]:
            yield from ("--seccomp", str(descriptors["seccomp"]))
            yield from ("--json-status-fd", str(descriptors["status"]))
            if "block" in descriptors:
                yield from ("--block-fd", str(descriptors["block"]))
            files = {path: descriptors[path] for path in texts}
            yield from bubblewrap.cell_options(view, files=files)

        return Command(
            program=housing.program,
            argv=argv,
            files={"seccomp": housing.cell_filter if self._forks else housing.call_filter, **texts},
            options=options,
            inherited=(descriptor,),
        )

    def _argv(self, descriptor: int) -> tuple[tuple[str, ...], tuple[Path, ...]]:
        """Return the program and its arguments, and what it needs beside the system's."""
        if self._forks:
            program, readable = interpreter()
            return (program, "-I", "-S", SCRIPT_PLACE, str(descriptor)), readable
        entry = f"{places(self._spec)[0]}/{self._spec.entry}"
        spare = ("spare",) if self._is_spare else ()
        return (node_program(), *NODE_FLAGS, SCRIPT_PLACE, str(descriptor), entry, *spare), ()
