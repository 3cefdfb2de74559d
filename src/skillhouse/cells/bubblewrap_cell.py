"""The life of a cell in namespaces of its own: one bubblewrap with what runs in it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
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
from skillhouse.cells.cell_process import CellProcess
from skillhouse.sandbox import bubblewrap
from skillhouse.sandbox.bubblewrap import CellView
from skillhouse.sandbox.errors import SandboxError
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.process import Command, Run


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
