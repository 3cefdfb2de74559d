"""The cells of each language: a Python process forked for each call, or one Node process a call."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from skillhouse.cells.call_channel import CallChannel, CallOutcome, CellOutput, attempt
from skillhouse.cells.cell import (
    CALLS_PER_CELL,
    EXECUTE,
    TAIL_BYTES,
    Capabilities,
    CellResult,
    CellSpec,
    HostCalls,
    Kind,
)
from skillhouse.cells.cell_environment import CellEnvironment
from skillhouse.cells.cell_process import BubblewrapCell, CellProcess, ContainerCell
from skillhouse.cells.frames import CodeFrame, own_frames
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox.bubblewrap import writable
from skillhouse.sandbox.guard import OPEN_FILES
from skillhouse.sandbox.process import GRACE_SECONDS
from skillhouse.sandbox.profile import SandboxError

READY_SECONDS = 20.0
"""Longest wait for a new cell; usually 40 ms."""
CHUNK = 65_536
END_SECONDS = 5.0
"""Longest wait for the end of a killed call; then its cell is killed, with all of its calls."""
DATA_SHARE = 0.875
"""Part of a cell's memory that one process of a call may take, so that it fails itself before the
kernel picks a process of the cell to kill."""
CPU_SLACK_SECONDS = 5
"""Processor time beyond the call's time after which the kernel ends a process by itself."""


@dataclass(slots=True)
class Ending:
    """How the process of one call ended, once it has."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    """Exit code, negative for a signal; None when it was not started or is unknown."""
    failed: str = ""


class LanguageCell:
    """The cell of one skill; made by `Executor` only."""

    def __init__(
        self,
        environment: CellEnvironment,
        spec: CellSpec,
        *,
        tree: Path,
        capabilities: Capabilities,
    ) -> None:
        self._environment = environment
        self._spec = spec
        self._tree = tree
        self._capabilities = capabilities
        self.turns = asyncio.Semaphore(CALLS_PER_CELL)
        self._prepare()

    def _prepare(self) -> None: ...

    def _cell_process(self, *, forks: bool, is_spare: bool = False) -> CellProcess:
        kind = ContainerCell if self._environment.is_contained else BubblewrapCell
        return kind(self._environment, self._spec, tree=self._tree, forks=forks, is_spare=is_spare)

    def _begun(
        self, link: socket.socket, token: str, method: str, params: Mapping[str, Any]
    ) -> CallChannel:
        channel = CallChannel(
            link, capabilities=self._capabilities, token=token, number=secrets.token_hex(8)
        )
        channel.begin(method, {**params, "capability": token})
        return channel

    async def _frames(self, claims: object, process: CellProcess) -> tuple[CodeFrame, ...]:
        if not claims:
            return ()
        place = str(process.settings()["skill"])
        return await in_thread(lambda: own_frames(claims, place=place, tree=self._tree))


class PythonCell(LanguageCell):
    def _prepare(self) -> None:
        self._process = self._cell_process(forks=True)
        self._control: socket.socket | None = None
        self._listener: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._endings: dict[int, Ending] = {}
        self._numbers = itertools.count(1)
        self._finishing: set[asyncio.Task[None]] = set()
        self._spent = False
        """True once a limit was exceeded: its counter would also be taken for the next call's."""

    @property
    def is_alive(self) -> bool:
        return not self._process.gone.is_set() and not self._spent

    @property
    def why(self) -> str:
        return self._process.how()

    async def start(self) -> None:
        self._control = self._process.start(socket.SOCK_SEQPACKET)
        settings = {
            "seccomp": self._environment.call_filter.hex(),
            "writable": writable(self._environment.limits),
            "entry": self._spec.entry,
            **self._process.settings(),
        }
        self._control.send(json.dumps(settings).encode())
        self._listener = asyncio.get_running_loop().create_task(self._listen(self._control))
        with anyio.move_on_after(READY_SECONDS):
            await self._ready.wait()

    async def _listen(self, control: socket.socket) -> None:
        try:
            while True:
                await anyio.wait_readable(control)
                data = control.recv(CHUNK)
                if not data:
                    break
                self._take(json.loads(data))
        except OSError:
            # It ended during a write; its calls are marked as ended below.
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await self._process.end_when_closed()
            for ending in self._endings.values():
                ending.done.set()
            self._ready.set()

    def _take(self, report: Mapping[str, Any]) -> None:
        if "ready" in report:
            self._ready.set()
        elif (ending := self._endings.get(report["ended"])) is not None:
            ending.status = report["status"]
            ending.failed = report.get("failed", "")
            ending.done.set()

    async def call(
        self, method: str, params: Mapping[str, Any], *, seconds: float, host: HostCalls
    ) -> CellResult:
        """Run one call in a process of its own, which is killed when it has answered.

        Another call takes its turn when that process is gone.
        """
        began = time.monotonic()
        number = next(self._numbers)
        ending = self._endings[number] = Ending()
        self._process.begin_call()
        outcome: CallOutcome | None = None
        is_ordered = False
        with contextlib.ExitStack() as stack:
            link, theirs = socket.socketpair()
            stack.enter_context(theirs)
            stack.enter_context(link)
            link.setblocking(False)  # noqa: FBT003 - the parameter has no name.
            token = stack.enter_context(self._capabilities.of(host))
            try:
                channel = self._begun(link, token, method, params)
                output = stack.enter_context(
                    contextlib.closing(self._order(number, seconds, link, theirs))
                )
                is_ordered = True
                outcome = await attempt(channel, seconds=seconds)
            finally:
                if not is_ordered:
                    ending.done.set()
                is_answered = outcome is not None and outcome.kind in ("ok", "error")
                await self._finish(number, ending, is_answered=is_answered)
            kind, error = self._judged(outcome, output, ending)
            return CellResult(
                value=outcome.value,
                error=error,
                kind=kind,
                stdout_tail=output.tail(TAIL_BYTES).decode("utf-8", "replace"),
                frames=await self._frames(outcome.frames, self._process),
                seconds=time.monotonic() - began,
            )

    def _started(self) -> socket.socket:
        if self._control is None:
            raise RuntimeError("expected a cell that was started")
        return self._control

    def _order(
        self, number: int, seconds: float, link: socket.socket, theirs: socket.socket
    ) -> CellOutput:
        reading, writing = os.pipe()

        def close_link() -> None:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

        output = CellOutput(reading, close_link)
        limits = [
            (resource.RLIMIT_DATA, int(self._environment.limits.memory_bytes * DATA_SHARE)),
            (resource.RLIMIT_NOFILE, OPEN_FILES),
            (resource.RLIMIT_CPU, int(seconds) + CPU_SLACK_SECONDS),
        ]
        order = json.dumps({"call": number, "limits": limits}).encode()
        try:
            # A cell that is gone is noticed where the answer is awaited.
            with contextlib.suppress(OSError):
                socket.send_fds(self._started(), [order], [theirs.fileno(), writing])
        finally:
            theirs.close()
            os.close(writing)
        return output

    async def _finish(self, number: int, ending: Ending, *, is_answered: bool) -> None:
        with contextlib.suppress(OSError):
            self._started().send(json.dumps({"kill": number}).encode())
        end = asyncio.get_running_loop().create_task(self._ended(number, ending))
        self._finishing.add(end)
        end.add_done_callback(self._finishing.discard)
        if not is_answered:
            with anyio.CancelScope(shield=True):
                await asyncio.wait({end}, timeout=GRACE_SECONDS)

    async def _ended(self, number: int, ending: Ending) -> None:
        """Return when the call's processes are gone; after a while, kill the whole cell."""
        try:
            with anyio.move_on_after(END_SECONDS):
                await ending.done.wait()
            if not ending.done.is_set():
                await self._process.end()
        finally:
            del self._endings[number]
            self._process.end_call()
            self.turns.release()

    def _judged(self, outcome: CallOutcome, output: CellOutput, ending: Ending) -> tuple[Kind, str]:
        if outcome.kind == "ok" or outcome.kind == "protocol":
            return outcome.kind, outcome.error
        if output.is_over:
            return "resource-limit", "the limit of output was met"
        if limit := self._process.limit():
            # The counters of the group stay as they are: the next call gets a new cell.
            self._spent = True
            detail = f": {outcome.error}" if outcome.error else ""
            return "resource-limit", f"the limit of {limit} was met{detail}"
        return outcome.kind, outcome.error or self._how(ending)

    def _how(self, ending: Ending) -> str:
        if ending.failed:
            return f"no process for the call: {ending.failed}"
        if self._process.gone.is_set():
            return f"the cell is gone: {self._process.how()}"
        if ending.status is None:
            return "the process ended before it answered"
        if ending.status < 0:
            return f"the process ended by signal {-ending.status} before it answered"
        return f"the process ended with exit code {ending.status} before it answered"

    async def close(self) -> None:
        """Kill it with all its calls, and return when they are gone."""
        await self._process.end()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})
        if self._finishing:
            await asyncio.wait(set(self._finishing))
        if self._control is not None:
            self._control.close()


OUT_OF_MEMORY = b"Allocation failed - JavaScript heap out of memory"
"""V8's message before it aborts."""
SPARES = 1
"""Processes that wait for a call, 45 MB each (issue "executor": idle cell at most 60)."""


class NodeCell(LanguageCell):
    def _prepare(self) -> None:
        self._spares: list[Worker] = []
        self._endings: set[asyncio.Task[None]] = set()
        self._closed = False
        self.why = "the cell was closed"

    @property
    def is_alive(self) -> bool:
        return not self._closed

    async def start(self) -> None:
        """Start the first process; it gets its call without being ready."""
        self._spares.append(self._worker(is_spare=False))

    def _worker(self, *, is_spare: bool) -> Worker:
        return Worker(self._cell_process(forks=False, is_spare=is_spare))

    async def call(
        self, method: str, params: Mapping[str, Any], *, seconds: float, host: HostCalls
    ) -> CellResult:
        """Run one call in a process that then ends; its end is awaited by `close` only."""
        began = time.monotonic()
        worker = self._spare()
        try:
            with self._capabilities.of(host) as token:
                channel = self._begun(worker.link, token, method, params)
                outcome = await attempt(channel, seconds=seconds)
            tail = worker.process.output_tail(TAIL_BYTES).decode("utf-8", "replace")
            kind, error = outcome.kind, outcome.error
            if kind != "ok":
                with anyio.CancelScope(shield=True):
                    kind, error = await worker.explain(outcome)
        finally:
            self._end(worker).add_done_callback(lambda _: self.turns.release())
            if method == EXECUTE:
                # Not before the answer is on its way: to start a process takes a millisecond.
                asyncio.get_running_loop().call_soon(self._refill)
        return CellResult(
            value=outcome.value,
            error=error,
            kind=kind,
            stdout_tail=tail,
            frames=await self._frames(outcome.frames, worker.process),
            seconds=time.monotonic() - began,
        )

    def _spare(self) -> Worker:
        while self._spares:
            worker = self._spares.pop(0)
            if not worker.process.gone.is_set():
                return worker
            self._end(worker)
        return self._worker(is_spare=False)

    def _end(self, worker: Worker) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(worker.close())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    def _refill(self) -> None:
        # The next call starts its own process, and reports the error.
        with contextlib.suppress(SandboxError, OSError):
            while not self._closed and len(self._spares) < SPARES:
                self._spares.append(self._worker(is_spare=True))

    async def close(self) -> None:
        """End the waiting processes, and return when all are gone; no call may be running."""
        self._closed = True
        for worker in self._spares:
            self._end(worker)
        self._spares.clear()
        if self._endings:
            await asyncio.wait(self._endings)


class Worker:
    def __init__(self, process: CellProcess) -> None:
        self.process = process
        self.link = process.start(socket.SOCK_STREAM)

    async def explain(self, outcome: CallOutcome) -> tuple[Kind, str]:
        process = self.process
        if outcome.kind == "crashed":
            # Its exit status, which comes soon, is the reason.
            await process.end_when_closed()
        limit = process.limit()
        if limit and outcome.kind != "protocol":
            detail = f": {outcome.error}" if outcome.error else ""
            return "resource-limit", f"the limit of {limit} was met{detail}"
        if outcome.kind == "crashed":
            ended = process.completed
            aborted = ended is not None and ended.signal == signal.SIGABRT
            if aborted and OUT_OF_MEMORY in process.output_tail(TAIL_BYTES):
                # Without a control group V8 itself meets the limit. A skill that only prints this
                # calls its own end by another name.
                return "resource-limit", "the limit of memory was met"
            return outcome.kind, f"{process.how()} before it answered"
        return outcome.kind, outcome.error

    async def close(self) -> None:
        with contextlib.closing(self.link):
            await self.process.end()
