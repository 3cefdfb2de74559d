"""The process of a cell with all that it starts: in bubblewrap, or in a container.

In a container no namespaces can be made: it confines the code itself, and inside it `confine.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio

from skillhouse.extensions.cells import confine
from skillhouse.extensions.cells.call_channel import CellOutput
from skillhouse.extensions.cells.cell_environment import (
    IDLE_WATCH_SECONDS,
    LISTEN_PLACE,
    NODE_CELL,
    NODE_FLAGS,
    NODE_LISTEN,
    NODE_OWN_TMP,
    NODE_PARTS,
    PYTHON_CELL,
    READABLE,
    SCRIPT_PLACE,
    CellEnvironment,
    code_cache_of,
    node_program,
    places,
    scripts,
    way_variables,
)
from skillhouse.sandbox import Completed, SandboxError, bubblewrap, default_python, scratch
from skillhouse.sandbox.bubblewrap import CellView
from skillhouse.sandbox.code_call import CellSpec
from skillhouse.sandbox.guard import OPEN_FILES, WATCH_SECONDS, usage
from skillhouse.sandbox.process import GRACE_SECONDS, Command, Run
from skillhouse.sandbox.profile import PROGRAM_PATH


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
        """
        waits = forks and bool(places(spec)[1])
        self._environment = environment.with_waiting() if waits else environment
        self._spec = spec
        self._tree = tree
        self._forks = forks
        self._is_spare = is_spare
        self._python = spec.python or default_python()
        self._active = 0
        self.completed: Completed | None = None
        self.failure: SandboxError | None = None
        self._met = ""
        """The limit that it had met when it was killed, where it was slow to go."""
        self.way: socket.socket | None = None
        """Where a process of one call with hosts sends the socket of its way out."""
        self.gone = asyncio.Event()
        """Set when the process and all that it started are gone."""
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def start(self, kind: socket.SocketKind) -> socket.socket:
        """Spawn it, and return our end of its socket."""

    @abstractmethod
    async def end(self) -> None: ...

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return the paths that a forking process needs."""

    @property
    def memory_bytes(self) -> int:
        """Of it and all that it forks."""
        return self._environment.limits.memory_bytes

    @abstractmethod
    def output_tail(self, max_bytes: int) -> bytes: ...

    def begin_call(self) -> None:
        self._active += 1

    def end_call(self) -> None:
        self._active -= 1

    def _pause_seconds(self) -> float:
        """Return the time between two checks of its limits, longer while no call runs."""
        return WATCH_SECONDS if self._active else IDLE_WATCH_SECONDS

    @abstractmethod
    def limit(self) -> str:
        """Return the exceeded limit: "memory", "processes", "files", "output" or ""."""

    async def end_when_closed(self) -> None:
        """Return when it is gone, after it has closed the socket; kill it after a while."""
        with anyio.move_on_after(GRACE_SECONDS):
            await self.gone.wait()
            return
        # Killed, it has no status that says so, and its group is removed.
        self._met = self.limit()
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
        self._guard = self._environment.guard(self._pause_seconds)
        self._task: asyncio.Task[None] | None = None
        self._run: Run | None = None
        self._listening: socket.socket | None = None
        # INVARIANT: the task itself is never cancelled: no shield holds that off, and what it
        # interrupts may be the clean-up of a process that has ended by itself, which then stays.
        self._ending = anyio.CancelScope()

    def start(self, kind: socket.SocketKind) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        given = contextlib.ExitStack()
        given.enter_context(theirs)
        if self._spec.hosts and not self._forks:
            self.way, self._listening = socket.socketpair()
            self.way.setblocking(False)  # noqa: FBT003 - likewise.
            given.enter_context(self._listening)
        self._run = Run(self._command(theirs.fileno()), self._guard, self._environment.limits)
        self._task = asyncio.get_running_loop().create_task(self._live(self._run, given))
        return ours

    async def _live(self, run: Run, given: contextlib.ExitStack) -> None:
        try:
            with self._ending:
                self.completed = await run.complete(b"", spawned=given.close)
        except SandboxError as error:
            self.failure = error
        except OSError as error:
            self.failure = SandboxError("sandbox-failed", f"cannot start a cell: {error}")
        finally:
            given.close()
            with anyio.CancelScope(shield=True):
                with contextlib.suppress(SandboxError):
                    await self._guard.remove()
                self.gone.set()

    async def end(self) -> None:
        if self._task is None:
            await self._guard.remove()
            return
        self._ending.cancel()
        await asyncio.wait({self._task})

    def output_tail(self, max_bytes: int) -> bytes:
        return self._run.output_tail(max_bytes) if self._run else b""

    def settings(self) -> Mapping[str, Any]:
        skill, packages = places(self._spec)
        return {"namespaces": True, "skill": skill, "packages": [place for _, place in packages]}

    def limit(self) -> str:
        if self.completed is not None and self.completed.limit:
            return self.completed.limit
        return self._met if self.gone.is_set() else self._guard.reached()

    def _command(self, descriptor: int) -> Command:
        spec, environment = self._spec, self._environment
        texts = {path: text.encode() for path, text in bubblewrap.CELL_FILES.items()}
        texts |= scripts(self._python if self._forks else None)
        inherited: tuple[int, ...] = (descriptor,)
        if self._listening is not None:
            texts[LISTEN_PLACE] = NODE_LISTEN.read_bytes()
            inherited = (descriptor, self._listening.fileno())
        skill_place, packages = places(spec)
        view = CellView(
            skill=self._tree,
            skill_place=skill_place,
            mounts=(*packages, *(self._python.mounts if self._forks or spec.hosts else ())),
            environment=self._python.environment if self._forks or spec.hosts else {},
            limits=environment.limits,
            forks=self._forks,
            reaches=bool(spec.hosts),
        )

        def options(descriptors: Mapping[str, int]) -> Iterable[str]:
            files = {path: descriptors[path] for path in texts}
            return bubblewrap.cell_options(view, files=files)

        return Command(
            program=environment.program,
            argv=self._argv(descriptor),
            files={
                "seccomp": environment.cell_filter if self._forks else environment.call_filter,
                **texts,
            },
            options=options,
            inherited=inherited,
        )

    def _argv(self, descriptor: int) -> tuple[str, ...]:
        if self._forks:
            return (self._python.inside, "-I", "-S", "-u", SCRIPT_PLACE, str(descriptor))
        skill, packages = places(self._spec)
        cache = code_cache_of(self._spec, packages[0][1] if packages else "")
        spare = "spare" if self._is_spare else ""
        own = (str(descriptor), f"{skill}/{self._spec.entry}", spare, cache)
        argv = (node_program(), *NODE_FLAGS, SCRIPT_PLACE, *own)
        if self._listening is None:
            return argv
        variables = json.dumps(way_variables(""))
        start = (self._python.inside, "-I", "-S", LISTEN_PLACE)
        return (*start, str(self._listening.fileno()), variables, *argv)


CONFINE = Path(confine.__file__)
FILES_EVERY = 20
"""Checks of memory for each check of files."""


class ContainerCell(CellProcess):
    def _prepare(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="call-", dir=self._tree.parent))
        self._place = self._base / "tmp"
        self._place.mkdir(mode=0o700)
        self._packages = [
            p.resolve() for p in (self._spec.dependencies, *self._spec.shared) if p is not None
        ]
        self._skill = self._tree if self._forks else self._linked()
        self._argv = () if self._forks else (node_program(), *NODE_FLAGS)
        self._process: subprocess.Popen[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._output: CellOutput
        """Made by `start`."""
        self._limit = ""

    def _linked(self) -> Path:
        """Return where Node sees the skill, nested as deep as there are shared packages."""
        places = [self._base / "view"]
        places += [places[0].joinpath(*["skills"] * n) for n in range(1, len(self._packages))]
        places[-1].mkdir(parents=True)
        for place, packages in zip(reversed(places), self._packages, strict=False):
            (place / "node_modules").symlink_to(packages)
        skill = places[-1] / "skill"
        skill.symlink_to(self._tree)
        return skill

    def settings(self) -> Mapping[str, Any]:
        packages = [str(path) for path in self._packages]
        return {"namespaces": False, "skill": str(self._skill), "packages": packages}

    def start(self, kind: socket.SocketKind) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        reading, writing = os.pipe()
        limit = self._environment.limits.output_bytes
        self._output = CellOutput(reading, lambda: self._stop("output"), max_bytes=limit)
        settings = self._settings_for(theirs.fileno())
        argv = (str(self._python.program), "-I", "-S", "-u", str(CONFINE), settings)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,
            )
            handle = os.pidfd_open(self._process.pid)
        except OSError as error:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            self._output.close()
            self.failure = SandboxError("sandbox-failed", f"cannot start a cell: {error}")
            self._clear()
            self.gone.set()
            return ours
        finally:
            theirs.close()
            os.close(writing)
        self._task = asyncio.get_running_loop().create_task(self._live(self._process, handle))
        return ours

    def _settings_for(self, descriptor: int) -> str:
        limits, environment = self._environment.limits, self._environment
        skill = str(self._skill)
        readable = [*READABLE, str(self._tree), *map(str, self._packages)]
        readable += map(str, self._python.readable)
        settings: dict[str, Any] = {
            "parent": os.getpid(),
            "descriptor": descriptor,
            "place": str(self._place),
            "skill": skill,
            "path": PROGRAM_PATH,
            "alone": environment.cell_filter.hex(),
            "limits": [
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_NOFILE, OPEN_FILES),
                (resource.RLIMIT_FSIZE, limits.file_bytes),
                (resource.RLIMIT_DATA, limits.memory_bytes),
            ],
        }
        if self._forks:
            own = {"script": str(PYTHON_CELL), "scratch": scratch.__file__, "readable": readable}
            return json.dumps(settings | own)
        # Otherwise Node would resolve the links, and search other directories for packages.
        flags = ("--preserve-symlinks", "--preserve-symlinks-main", "--require", str(NODE_OWN_TMP))
        cache = code_cache_of(self._spec, str(self._skill.parent / "node_modules"))
        entry, spare = f"{skill}/{self._spec.entry}", "spare" if self._is_spare else ""
        argv = (*self._argv, *flags, str(NODE_CELL), str(descriptor), entry, spare, cache)
        readable += map(str, (self._base / "view", NODE_CELL, NODE_OWN_TMP, *NODE_PARTS))
        filters = {"seccomp": environment.call_filter.hex()}
        return json.dumps({**settings, **filters, "readable": readable, "argv": argv})

    async def _live(self, process: subprocess.Popen[bytes], handle: int) -> None:
        watch = asyncio.get_running_loop().create_task(self._watch(process))
        try:
            await anyio.wait_readable(handle)
        finally:
            watch.cancel()
            with anyio.CancelScope(shield=True):
                # Its forks end with it, as their filter keeps PR_SET_PDEATHSIG unchanged.
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                await anyio.wait_readable(handle)
                os.close(handle)
                self._finished(process.wait())
                try:
                    await anyio.to_thread.run_sync(self._clear)
                finally:
                    # INVARIANT: set whatever a call left, so that waiters continue.
                    self.gone.set()

    def _clear(self) -> None:
        scratch.remove(str(self._base))

    def _finished(self, status: int) -> None:
        stdout = self._output.tail(self._environment.limits.output_bytes)
        self._output.close()
        self.completed = Completed(
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            stdout=stdout,
            stderr=b"",
            limit=self._limit,
            duration_seconds=0.0,
        )

    async def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Poll its memory and files, since the kernel counts neither for us."""
        looks = 0
        while True:
            # The files are in memory too: the container's /tmp is a tmpfs.
            _, memory = usage(process.pid, stop_at=self._environment.limits.processes)
            if looks % FILES_EVERY == 0:
                count, size = scratch.files_of(str(self._place))
                if count > scratch.FILES_MAX or size > self._environment.limits.file_bytes:
                    self._stop("files")
            if memory > self._environment.limits.memory_bytes:
                self._stop("memory")
            looks += 1
            await asyncio.sleep(self._pause_seconds())

    def _stop(self, limit: str) -> None:
        self._limit = self._limit or limit
        if self._process is not None:
            self._process.kill()

    async def end(self) -> None:
        if self._process is None:
            self._clear()
            return
        if not self.gone.is_set():
            self._process.kill()
        await self.gone.wait()

    def output_tail(self, max_bytes: int) -> bytes:
        return self._output.tail(max_bytes)

    def limit(self) -> str:
        return self._limit

    def how(self) -> str:
        """Add its output if it exited by itself, for example when it cannot confine itself."""
        how, done = super().how(), self.completed
        if self.failure is not None or done is None or done.signal is not None:
            return how
        output = " ".join(done.stdout[-300:].decode("utf-8", "replace").split())
        return f"{how}: {output}" if output else how
