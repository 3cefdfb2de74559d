"""The process of a cell with all that it starts, and its form in bubblewrap."""

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
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.process import GRACE_SECONDS, Command, Run
from skillhouse.sandbox.profile import Completed
from skillhouse.sandbox.sandbox_errors import SandboxError


class CellProcess(ABC):
    """One process, from its start until all that it started is gone."""

    def __init__(
        self,
        environment: CellEnvironment,
        spec: CellSpec,
        *,
        tree: Path,
        forks: bool,
        is_spare: bool = False,
    ) -> None:
        """Prepare it; `start` spawns.

        Args:
            tree: The private copy of the skill's tree.
            forks: True for a process that forks for each call, False for one call's own.
            is_spare: True for one call's process that is started before the call arrives.

        Raises:
            SandboxError: a control group or the program for the language is missing.
        """
        self._environment = environment
        self._spec = spec
        self._tree = tree
        self._forks = forks
        self._is_spare = is_spare
        self.completed: Completed | None = None
        self.failure: SandboxError | None = None
        self.gone = asyncio.Event()
        """Set when the process and all that it started are gone."""
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def start(self, kind: socket.SocketKind) -> socket.socket:
        """Spawn it, and return our end of its socket."""

    @abstractmethod
    async def end(self) -> None:
        """Kill it, and return when it is gone."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return the paths that a forking process needs."""

    @abstractmethod
    def output_tail(self, max_bytes: int) -> bytes: ...

    @abstractmethod
    def begin_call(self) -> None:
        """Check its limits often: a call runs."""

    @abstractmethod
    def end_call(self) -> None:
        """Check its limits less often, if that was the last call."""

    @abstractmethod
    def limit(self) -> str:
        """Return the exceeded limit: "memory", "processes", "files", "output" or ""."""

    async def end_when_closed(self) -> None:
        """Return when it is gone, after it has closed the socket; kill it after a while."""
        with anyio.move_on_after(GRACE_SECONDS):
            await self.gone.wait()
            return
        await self.end()

    def how(self) -> str:
        if self.failure is not None:
            return str(self.failure)
        if self.completed is None:
            return "the cell was closed"
        if self.completed.signal is not None:
            return f"the process ended by signal {self.completed.signal}"
        return f"the process ended with exit code {self.completed.exit_code}"


class BubblewrapCell(CellProcess):
    def _prepare(self) -> None:
        self._guard = self._environment.guard()
        self._task: asyncio.Task[None] | None = None
        self._run: Run | None = None
        self._running = asyncio.Event()
        self._is_ending = False

    def start(self, kind: socket.SocketKind) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        self._run = Run(self._command(theirs.fileno()), self._guard, self._environment.limits)
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
        # A task that is cancelled before its first step never runs its `finally`.
        await self._running.wait()
        if not self._is_ending:
            # INVARIANT: once. A second cancellation would interrupt the clean-up of the first.
            self._is_ending = True
            self._task.cancel()
        await asyncio.wait({self._task})

    def output_tail(self, max_bytes: int) -> bytes:
        return self._run.output_tail(max_bytes) if self._run else b""

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
        spec, environment = self._spec, self._environment
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
            limits=environment.limits,
            forks=self._forks,
        )

        def options(descriptors: Mapping[str, int]) -> Iterable[str]:
            files = {path: descriptors[path] for path in texts}
            return bubblewrap.cell_options(view, files=files)

        return Command(
            program=environment.program,
            argv=argv,
            files={
                "seccomp": environment.cell_filter if self._forks else environment.call_filter,
                **texts,
            },
            options=options,
            inherited=(descriptor,),
        )

    def _argv(self, descriptor: int) -> tuple[tuple[str, ...], tuple[Path, ...]]:
        if self._forks:
            program, readable = interpreter()
            return (program, "-I", "-S", SCRIPT_PLACE, str(descriptor)), readable
        entry = f"{places(self._spec)[0]}/{self._spec.entry}"
        spare = ("spare",) if self._is_spare else ()
        return (node_program(), *NODE_FLAGS, SCRIPT_PLACE, str(descriptor), entry, *spare), ()
