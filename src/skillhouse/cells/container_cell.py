"""The process of a cell in a container, where no namespaces can be made.

The container itself confines the code, and inside it `confine.py`.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from skillhouse.cells import scratch_cleanup
from skillhouse.cells.cell import CellSpec
from skillhouse.cells.cell_environment import (
    IDLE_WATCH_SECONDS,
    NODE_CELL,
    NODE_FLAGS,
    PYTHON_CELL,
    CellEnvironment,
    node_program,
)
from skillhouse.cells.cell_process import BubblewrapCell, CellProcess
from skillhouse.sandbox import bubblewrap
from skillhouse.sandbox.guard import OPEN_FILES, WATCH_SECONDS, usage
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.profile import Completed
from skillhouse.sandbox.sandbox_errors import SandboxError

CONFINE = Path(__file__).with_name("confine.py")
LEFTOVERS = Path(scratch_cleanup.__file__)
FILES_EVERY = 20
"""Checks of memory for each check of files."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_READABLE = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/openssl.cnf")
"""Nothing of it is secret; Node exits if it cannot read OpenSSL's configuration."""
_DEVICES = ("/dev/zero", "/dev/urandom", "/dev/random")


def cell_process_for(
    environment: CellEnvironment, spec: CellSpec, *, tree: Path, forks: bool, is_spare: bool = False
) -> CellProcess:
    kind = ContainerCell if environment.is_contained else BubblewrapCell
    return kind(environment, spec, tree=tree, forks=forks, is_spare=is_spare)


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
        self._output = bytearray()
        self._reading = -1
        self._active = 0
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
        return {"namespaces": False, "skill": str(self._tree), "packages": packages}

    def start(self, kind: socket.SocketKind) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        argv = (
            str(self._environment.program),
            "-I",
            "-S",
            str(CONFINE),
            self._settings_for(theirs.fileno()),
        )
        loop = asyncio.get_running_loop()
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
        except OSError as error:
            os.close(reading)
            self.failure = SandboxError("sandbox-failed", f"cannot start a cell: {error}")
            self._clear()
            self.gone.set()
            return ours
        finally:
            theirs.close()
            os.close(writing)
        self._reading = reading
        loop.add_reader(reading, self._read)
        self._task = loop.create_task(self._live(self._process))
        return ours

    def _settings_for(self, descriptor: int) -> str:
        limits, environment = self._environment.limits, self._environment
        skill = str(self._skill)
        readable = [*_SYSTEM, *_READABLE, str(self._tree), *map(str, self._packages)]
        readable += map(str, interpreter()[1])
        settings: dict[str, Any] = {
            "parent": os.getpid(),
            "descriptor": descriptor,
            "place": str(self._place),
            "skill": skill,
            "path": bubblewrap.PROGRAM_PATH,
            "devices": _DEVICES,
            "alone": environment.cell_filter.hex(),
            "limits": [
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_NOFILE, OPEN_FILES),
                (resource.RLIMIT_FSIZE, limits.file_bytes),
                (resource.RLIMIT_DATA, limits.memory_bytes),
            ],
        }
        if self._forks:
            settings |= {"script": str(PYTHON_CELL), "leftovers": str(LEFTOVERS)}
            return json.dumps({**settings, "readable": readable})
        # Otherwise Node would resolve the links, and search other directories for packages.
        flags = ("--preserve-symlinks", "--preserve-symlinks-main")
        entry = f"{skill}/{self._spec.entry}"
        spare = ("spare",) if self._is_spare else ()
        argv = (*self._argv, *flags, str(NODE_CELL), str(descriptor), entry, *spare)
        readable += [str(self._base / "view"), str(NODE_CELL)]
        filters = {"seccomp": environment.call_filter.hex()}
        return json.dumps({**settings, **filters, "readable": readable, "argv": argv})

    async def _live(self, process: subprocess.Popen[bytes]) -> None:
        handle = os.pidfd_open(process.pid)
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
        scratch_cleanup.remove(str(self._base))

    def _finished(self, status: int) -> None:
        self._read()
        self._stop_reading()
        self.completed = Completed(
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            stdout=bytes(self._output),
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
                count, size = scratch_cleanup.files_of(str(self._place))
                if count > scratch_cleanup.FILES_MAX or size > self._environment.limits.file_bytes:
                    self._stop("files")
            if memory > self._environment.limits.memory_bytes:
                self._stop("memory")
            looks += 1
            await asyncio.sleep(WATCH_SECONDS if self._active else IDLE_WATCH_SECONDS)

    def _stop(self, limit: str) -> None:
        self._limit = self._limit or limit
        if self._process is not None:
            self._process.kill()

    def _read(self) -> None:
        if self._reading < 0:
            return
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._reading, 65_536)
            if not chunk:
                self._stop_reading()
                return
        self._output += chunk
        if len(self._output) > self._environment.limits.output_bytes:
            self._stop_reading()
            self._stop("output")

    def _stop_reading(self) -> None:
        if self._reading >= 0:
            asyncio.get_running_loop().remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1

    async def end(self) -> None:
        if self._process is None:
            self._clear()
            return
        if not self.gone.is_set():
            self._process.kill()
        await self.gone.wait()

    def output_tail(self, max_bytes: int) -> bytes:
        self._read()
        return bytes(self._output[-max_bytes:])

    def begin_call(self) -> None:
        self._active += 1

    def end_call(self) -> None:
        self._active -= 1

    def limit(self) -> str:
        return self._limit

    def how(self) -> str:
        """Add its output if it exited by itself, for example when it cannot confine itself."""
        how, done = super().how(), self.completed
        if self.failure is not None or done is None or done.signal is not None:
            return how
        output = " ".join(done.stdout[-300:].decode("utf-8", "replace").split())
        return f"{how}: {output}" if output else how
