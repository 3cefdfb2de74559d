"""What cells are built from on this machine, and the life of the process that is one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import shutil
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio

from skillhouse.sandbox import bubblewrap
from skillhouse.sandbox.bubblewrap import SKILL_PLACE, CellView
from skillhouse.sandbox.cell import SHARED_MAX, CellSpec
from skillhouse.sandbox.cgroup import CgroupPlace
from skillhouse.sandbox.errors import SandboxError
from skillhouse.sandbox.guard import CgroupGuard, Guard, RlimitGuard
from skillhouse.sandbox.means import means_of
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.process import GRACE_SECONDS, Command, Run
from skillhouse.sandbox.profile import MIB, Completed, Limits
from skillhouse.sandbox.seccomp import program as filter_program
from skillhouse.sandbox.seccomp_alone import alone_program
from skillhouse.sandbox.status import Level, SandboxStatus, surroundings

PYTHON_CELL = Path(__file__).with_name("cell_python.py")
NODE_CELL = Path(__file__).with_name("cell_node.cjs")
NODE_FLAGS = ("--disable-proto=delete", "--no-addons", "--no-warnings")
"""Not --max-old-space-size: with it Node cannot use its own code cache, which takes 5 ms."""
SCRIPT_PLACE = "/cell"
"""Where a cell sees the script that it runs."""
IDLE_WATCH_SECONDS = 0.5
"""Pause between two looks at a cell without control group in which no call runs."""
CONTAINED_BYTES = 320 * MIB
"""Memory of a cell in a container of its own, whose 512 MiB hold what runs it as well (S002-90)."""
CONTAINED_FILE_BYTES = 32 * MIB
"""Of all files of such a cell: its /tmp is memory too."""
_PR_SET_DUMPABLE = 4
CPU_WEIGHT = 50
"""A cell's share of contended processors, all its processes together; the core's is 100 or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Housing:
    """The means of this machine; made once for all cells."""

    program: Path
    """bubblewrap; for `Level.CONTAINER` the interpreter of what confines itself."""
    place: CgroupPlace | None
    limits: Limits
    call_filter: bytes
    """For the code of skills."""
    cell_filter: bytes
    """For the process that gives each call its own namespaces."""
    is_contained: bool = False
    """True: the container is the outer boundary, and there are no namespaces."""

    def guard(self) -> CellGuard:
        if self.place is None:
            return RlimitCellGuard(self.limits)
        return CgroupCellGuard(self.place, self.limits, cpu_weight=CPU_WEIGHT)


def housing_for(status: SandboxStatus, limits: Limits) -> Housing:
    """Return the means of the level that `detect` or `self_test` found.

    Raises:
        SandboxUnavailableError: there is none; it carries the reasons and the hint.
    """
    if status.level is Level.CONTAINER:
        return _contained(limits)
    around, program, place = means_of(status)
    return Housing(
        program=program,
        place=place,
        limits=dataclasses.replace(limits, seconds=float("inf")),
        call_filter=filter_program(around.machine, shared_objects=False),
        cell_filter=filter_program(around.machine, namespaces=True),
    )


def _contained(limits: Limits) -> Housing:
    protect_self()
    machine = surroundings().machine
    return Housing(
        program=Path(interpreter()[0]),
        place=None,
        limits=dataclasses.replace(
            limits,
            seconds=float("inf"),
            memory_bytes=min(limits.memory_bytes, CONTAINED_BYTES),
            file_bytes=min(limits.file_bytes, CONTAINED_FILE_BYTES),
        ),
        call_filter=filter_program(machine, shared_objects=False),
        cell_filter=alone_program(machine),
        is_contained=True,
    )


def protect_self() -> None:
    """Let nobody of the same user read this process's memory, variables and descriptors.

    Raises:
        OSError: the kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def places(spec: CellSpec) -> tuple[str, tuple[tuple[Path, str], ...]]:
    """Return where a cell sees its skill, and its packages with the place of each, nearest first.

    Python is told the places; Node looks by itself in `node_modules` beside each directory above
    the skill, so the skill lies as deep as there are packages of others.
    """
    found = [path.resolve() for path in (spec.dependencies, *spec.shared) if path is not None]
    if len(spec.shared) > SHARED_MAX:
        message = f"expected at most {SHARED_MAX} directories of shared packages"
        raise SandboxError("place-refused", f"{message}, got {len(spec.shared)}")
    if spec.language == "python":
        return SKILL_PLACE, tuple((path, f"/packages/{n}") for n, path in enumerate(found))
    above = ["", "/skills", "/skills/skills"][: max(1, len(found))]
    packages = zip(found, (f"{level}/node_modules" for level in reversed(above)), strict=False)
    return above[-1] + SKILL_PLACE, tuple(packages)


class CellGuard(Guard):
    """A guard of what lives long: it looks less often while nothing happens."""

    active: int = 0
    """Calls that are running."""


class CgroupCellGuard(CgroupGuard, CellGuard):
    """The kernel counts; nothing is looked at."""


class RlimitCellGuard(RlimitGuard, CellGuard):
    """Looks often while calls run."""

    async def pause(self) -> None:
        await (super().pause() if self.active else anyio.sleep(IDLE_WATCH_SECONDS))


class Inhabited(Protocol):
    """What a cell lives in: `Habitat`, or `contained.ContainedHabitat`."""

    completed: Completed | None
    failure: SandboxError | None
    gone: asyncio.Event

    def start(self, kind: socket.SocketKind) -> socket.socket: ...

    async def end(self) -> None: ...

    async def end_when_closed(self) -> None: ...

    def said(self, max_bytes: int) -> bytes: ...

    def begin_call(self) -> None: ...

    def end_call(self) -> None: ...

    def limit(self) -> str: ...

    def how(self) -> str: ...

    def settings(self) -> Mapping[str, Any]: ...


class Habitat:
    """One bubblewrap with what runs in it, from its start until nothing of it is left."""

    def __init__(
        self, housing: Housing, spec: CellSpec, *, tree: Path, forks: bool, is_spare: bool = False
    ) -> None:
        """Prepare it; `start` spawns.

        Args:
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
        self._guard = housing.guard()
        self._task: asyncio.Task[None] | None = None
        self._run: Run | None = None
        self._running = asyncio.Event()
        self._is_ending = False
        self.completed: Completed | None = None
        self.failure: SandboxError | None = None
        self.gone = asyncio.Event()
        """Set when nothing of it is left."""

    def start(self, kind: socket.SocketKind) -> socket.socket:
        """Spawn, and return our end of the socket to it."""
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
        """Kill it, and return when nothing of it is left."""
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

    async def end_when_closed(self) -> None:
        """Return when nothing of it is left, once it has closed the socket; help if need be."""
        with anyio.move_on_after(GRACE_SECONDS):
            await self.gone.wait()
            return
        await self.end()

    def said(self, max_bytes: int) -> bytes:
        return self._run.said(max_bytes) if self._run else b""

    def settings(self) -> Mapping[str, Any]:
        """Return what a process that forks is told of its place."""
        skill, packages = places(self._spec)
        return {"namespaces": True, "skill": skill, "packages": [place for _, place in packages]}

    def begin_call(self) -> None:
        self._guard.active += 1

    def end_call(self) -> None:
        self._guard.active -= 1

    def limit(self) -> str:
        """Return the limit that was met: "memory", "processes", "output" or ""."""
        if self.completed is not None and self.completed.limit:
            return self.completed.limit
        return "" if self.gone.is_set() else self._guard.reached()

    def how(self) -> str:
        """Return how it ended, in words for a person."""
        if self.failure is not None:
            return str(self.failure)
        if self.completed is None:
            return "the cell was closed"
        if self.completed.signal is not None:
            return f"the process ended by signal {self.completed.signal}"
        return f"the process ended with exit code {self.completed.exit_code}"

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


def node_program() -> str:
    """Return the path of Node.

    Raises:
        SandboxError: there is none.
    """
    node = shutil.which("node", path=bubblewrap.PROGRAM_PATH)
    if node is None:
        message = f"no program 'node' in {bubblewrap.PROGRAM_PATH}: install Node.js 20 or later"
        raise SandboxError("exec-not-found", message)
    return node
