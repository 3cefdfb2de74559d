"""The cell of a JavaScript skill: one Node process for each call, some of them started ahead."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.extensions.cells.call_channel import CallOutcome, attempt
from skillhouse.extensions.cells.cell import EXECUTE, TAIL_BYTES
from skillhouse.extensions.cells.cell_environment import WAITING_BYTES
from skillhouse.extensions.cells.cell_process import CellProcess
from skillhouse.extensions.cells.language_cells import READY_SECONDS, LanguageCell
from skillhouse.extensions.cells.ready_calls import READY_MAX, ReadyCalls
from skillhouse.extensions.cells.rpc import Frames
from skillhouse.sandbox.code_call import CellResult, HostCalls, Kind

if TYPE_CHECKING:
    from skillhouse.net import EgressProxy

OUT_OF_MEMORY = b"Allocation failed - JavaScript heap out of memory"
"""V8's message before it aborts."""


class NodeCell(LanguageCell):
    """The cell of one JavaScript skill."""

    def _prepare(self) -> None:
        self._ready_calls = ReadyCalls[Worker](self, loads=self.has_packages)
        self._first: Worker | None = None
        self._endings: set[asyncio.Task[None]] = set()
        self._closed = False
        self.why = "the cell was closed"

    @property
    def is_alive(self) -> bool:
        return not self._closed

    @property
    def has_packages(self) -> bool:
        return super().has_packages or (self._tree / "node_modules").is_dir()

    async def start(self) -> None:
        """Start the first process; it gets its call without being ready."""
        self._first = self._worker(is_spare=False)

    def _worker(self, *, is_spare: bool) -> Worker:
        return Worker(self._cell_process(forks=False, is_spare=is_spare))

    async def call(
        self, method: str, params: Mapping[str, Any], *, seconds: float, host: HostCalls
    ) -> CellResult:
        """Run one call in a process that then ends; its end is awaited by `close` only."""
        began = time.monotonic()
        env = params["context"]["env"]
        worker = self._waiting(seconds, env)
        try:
            async with worker.reaching(host.network) as has_way:
                with self._capabilities.of(host) as token:
                    channel = self._begin_call(
                        worker.link, token, method, params, frames=worker.frames
                    )
                    outcome = await attempt(channel, seconds=seconds)
            tail = worker.process.output_tail(TAIL_BYTES).decode("utf-8", "replace")
            kind, error = outcome.kind, outcome.error
            if kind != "ok":
                with anyio.CancelScope(shield=True):
                    kind, error = await worker.explain(outcome)
        finally:
            self._end(worker).add_done_callback(lambda _: self.turns.release())
            if method == EXECUTE and not self._spec.is_single:
                # Not before the answer is on its way: to start a process takes a millisecond.
                asyncio.get_running_loop().call_soon(self._refill, seconds, env)
        return CellResult(
            value=outcome.value,
            error=error,
            kind=kind,
            stdout_tail=tail,
            frames=await self._frames(outcome.frames, worker.process),
            unreached=outcome.unreached,
            has_way=has_way,
            seconds=time.monotonic() - began,
        )

    def _waiting(self, seconds: float, env: Mapping[str, str]) -> Worker:
        first, self._first = self._first, None
        if first is not None:
            if not first.is_gone:
                return first
            self._end(first)
        return self._ready_calls.take(seconds, env) or self._worker(is_spare=False)

    def _end(self, worker: Worker) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(worker.close())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    def _refill(self, seconds: float, env: Mapping[str, str]) -> None:
        if not self._closed:
            self._ready_calls.refill(seconds, env)

    def start_ready(self, seconds: float) -> Worker:
        return self._worker(is_spare=True)

    def discard_ready(self, process: Worker) -> None:
        self._end(process)

    def watch_ready(self, process: Worker, *, closely: bool) -> None:
        if closely:
            process.process.begin_call()
        else:
            process.process.end_call()

    def stop_ready(self, process: Worker) -> None:
        """It waits in a read, in which JavaScript's only thread runs nothing else."""

    resume_ready = stop_ready

    def start_learner(self) -> Worker | None:
        """Each process has limits of its own, and cannot be forked: nothing is to be learned."""

    def take_report(self, report: Mapping[str, Any]) -> None:
        self._learned.learn(self._spec, report)

    def max_ready(self) -> int:
        if self._learned.known(self._spec) is None:
            return READY_MAX
        return self._learned.fitting(self._spec, WAITING_BYTES)

    async def close(self) -> None:
        """End the waiting processes, and return when all are gone; no call may be running."""
        self._closed = True
        self._ready_calls.close()
        if self._first is not None:
            self._end(self._first)
            self._first = None
        if self._endings:
            await asyncio.wait(self._endings)


class Worker:
    def __init__(self, process: CellProcess) -> None:
        self.process = process
        self.link = process.start(socket.SOCK_STREAM)
        self.frames = Frames()
        self.env: Mapping[str, str] = {}
        self.is_stopped = False
        self.seconds = math.inf

    @property
    def is_gone(self) -> bool:
        return self.process.gone.is_set()

    @contextlib.asynccontextmanager
    async def reaching(self, network: EgressProxy | None) -> AsyncIterator[bool]:
        """Serve its way out while the block lasts; whether it has one."""
        link = self.process.way
        if network is None or link is None:
            yield False
            return
        given: list[int] = []
        with anyio.move_on_after(READY_SECONDS):
            await anyio.wait_readable(link)
            _, given, _, _ = socket.recv_fds(link, 1, 1)
        if not given:
            # It has ended, which is noticed where its answer is awaited.
            yield False
            return
        with socket.socket(fileno=given[0]) as way:
            async with network.serving(way):
                yield True

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
        if self.process.way is not None:
            self.process.way.close()
