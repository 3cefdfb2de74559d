"""The cell of a JavaScript skill: one Node process for each call, some of them started ahead."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

import anyio

from skillhouse.cells.call_channel import CallOutcome, attempt
from skillhouse.cells.cell import EXECUTE, TAIL_BYTES, CellResult, HostCalls, Kind
from skillhouse.cells.cell_process import CellProcess
from skillhouse.cells.language_cells import LanguageCell
from skillhouse.sandbox.profile import SandboxError

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
