"""Runs the tools of skills, each skill's in cells of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from msgspec import Struct, field

from skillhouse.extensions.cells.cell import (
    CELL_LIMITS,
    EXECUTE,
    QUEUE_MAX,
    CallQueue,
    Capabilities,
    NoHost,
)
from skillhouse.extensions.cells.cell_environment import (
    CellEnvironment,
    CodeSnapshots,
    cell_environment_for,
)
from skillhouse.extensions.cells.early_cell import EarlyCell, EarlyStart
from skillhouse.extensions.cells.language_cells import PythonCell
from skillhouse.extensions.cells.node_cell import NodeCell
from skillhouse.extensions.cells.ready_calls import LearnedImports
from skillhouse.extensions.cells.rpc import packed
from skillhouse.floor import tracing
from skillhouse.floor.structs import replace
from skillhouse.floor.tracing import (
    SANDBOX_KIND,
    SANDBOX_LEVEL,
    SANDBOX_START,
    SANDBOX_START_SPAN,
)
from skillhouse.sandbox import (
    Limits,
    SandboxError,
    SandboxLevel,
    SandboxStatus,
    SandboxUnavailableError,
)
from skillhouse.sandbox.code_call import (
    TOOL_SECONDS,
    UNAVAILABLE,
    CellResult,
    CellSpec,
    HostCalls,
    RpcError,
)
from skillhouse.sandbox.status import untested

MAX_CELLS = 32
"""Concurrent cells: an idle one is 15 to 60 MB."""
IDLE_SECONDS = 300.0
WAITING = 1_000
"""Calls that may wait for a cell; more are refused at once."""
LIST_SECONDS = 10.0
"""Time to load a skill's code and name its tools."""

_Key = tuple[str, ...]


class _KeptCell(Struct, eq=False):
    """A cell that is kept for further calls."""

    key: _Key
    skill: str
    cell: PythonCell | NodeCell
    tree: Path
    used_at: float
    active: int = 0
    is_called: bool = False
    """True: a tool was called in it. A cell that only loaded code ends right away."""
    is_retired: bool = False
    """True: it takes no new call, and is closed after its running calls."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None


class Executor:
    """The cells of this process: what starts one for a call, keeps it for the next, and ends it."""

    def __init__(
        self,
        status: SandboxStatus,
        *,
        state: Path,
        limits: Limits = CELL_LIMITS,
        max_cells: int = MAX_CELLS,
        max_waiting: int = QUEUE_MAX,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Make an executor; cells start with the first call that needs one.

        Args:
            status: What `self_test` found.
            state: Directory for private copies of skills' trees.
            limits: Of each cell with all its calls; `seconds` is not used.
            max_cells: Beyond it a call waits until a cell is idle.
            max_waiting: Calls that may wait for one cell.
        """
        self._environment: CellEnvironment = cell_environment_for(status, limits)
        self._level: SandboxLevel = status.level
        self._untested = untested(status)
        self._snapshots = CodeSnapshots(state)
        self._queues = CallQueue(most=max_waiting)
        self._max_cells = max_cells
        self._idle_seconds = idle_seconds
        self._capabilities = Capabilities()
        self._learned = LearnedImports()
        self._cells: dict[_Key, _KeptCell] = {}
        self._retired: set[_KeptCell] = set()
        self._closings: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._early = EarlyStart(self._environment, self._snapshots)
        self._freed = asyncio.Condition()
        self._waiting = 0
        self._closed = False

    async def execute(
        self,
        spec: CellSpec,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout: float = TOOL_SECONDS,  # noqa: ASYNC109 - the result reports it.
        host: HostCalls,
    ) -> CellResult:
        """Run a tool once; a call that may have had an effect is never run again.

        Cancelling kills what was started. Errors of the skill are in the result.

        Args:
            meta: What the skill gets about the call (S002-45): skillName, toolName, callId, …
            timeout: In seconds, from the start in a cell.
            host: Answers the skill's requests to the core, for this call only.

        Raises:
            SandboxError: the skill has changed, or there is no interpreter for it.
            RpcError: INTERNAL_ERROR, the arguments are not JSON; UNAVAILABLE, too many calls wait.
        """
        params = {"tool": tool, "args": dict(arguments), "context": _context(spec, meta)}
        packed(params)
        with self._queues.place(_key(spec), spec.skill):
            return await self._call(spec, EXECUTE, params, seconds=timeout, host=host)

    async def tool_names(self, spec: CellSpec) -> tuple[str, ...]:
        """Return the names of the tools that the skill's code exports, by loading it."""
        params = {"context": _context(spec, {})}
        host = NoHost()
        result = await self._call(spec, "tool.list", params, seconds=LIST_SECONDS, host=host)
        if result.kind != "ok":
            raise SandboxError("skill-failed", f"`{spec.skill}`: {result.error}")
        if not isinstance(result.value, list) or not all(
            isinstance(name, str) for name in result.value
        ):
            raise SandboxError("skill-failed", f"`{spec.skill}`: expected a list of names")
        return tuple(sorted(set(result.value)))

    async def check(self, spec: CellSpec, tool: str) -> None:
        """Raise "cell-untested" where no code of this language runs; nothing of the skill does."""
        if (why := self._untested.get(spec.language)) is not None:
            message = f"no {spec.language} code is run: its cell failed the self-test: {why}"
            raise SandboxError("cell-untested", message)

    def admit(self, status: SandboxStatus) -> None:
        """Take the result of a later test, of a language that is needed for the first time.

        Raises:
            SandboxUnavailableError: it left no level: no code is run any more.
        """
        if status.level is not self._level:
            raise SandboxUnavailableError(status.reasons, status.hint)
        self._untested = untested(status)

    async def start_early(self) -> None:
        """Start the process of the first Python cell, without any skill, before a call is allowed.

        A call that it fits takes it over; `close` ends it otherwise.
        """
        if not self._cells and not self._closed and "python" not in self._untested:
            await self._early.start()

    async def reload(self, skill: str | None) -> None:
        """Use new cells for new calls of a skill, or of all; running calls keep the old ones."""
        for held in tuple(self._cells.values()):
            if skill is None or held.skill == skill:
                self._retire(held)

    @property
    def is_busy(self) -> bool:
        return bool(self._cells or self._retired or self._closings)

    async def end(self) -> None:
        """Kill every cell, after its running calls; later calls start new ones."""
        await self._early.end()
        await self.reload(None)

    async def close(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        for held in (*self._cells.values(), *self._retired):
            self._discard(held)
        await self._early.end()
        while self._closings:
            await asyncio.wait(set(self._closings))

    def health(self) -> Mapping[str, Any]:
        """Return {status, level, cells, calls, ready, waiting}; ready processes wait for calls."""
        calls = sum(held.active for held in (*self._cells.values(), *self._retired))
        return {
            "status": "ok",
            "level": str(self._level),
            "cells": len(self._cells) + len(self._retired),
            "calls": calls,
            "ready": sum(held.cell.ready for held in self._cells.values()),
            "waiting": self._waiting,
        }

    async def _call(
        self,
        spec: CellSpec,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float,
        host: HostCalls,
    ) -> CellResult:
        await self.check(spec, "")
        if self._environment.is_contained:
            # Without namespaces a socket of the cell would be one of the host.
            spec = replace(spec, hosts=())
        for is_last in (False, True):
            async with self._using_cell(spec, is_call=method == EXECUTE) as cell:
                # The cell may have died while this call waited. Nothing was sent to it yet, so
                # another cell may be tried: once.
                await cell.turns.acquire()
                if cell.is_alive:
                    return await cell.call(method, params, seconds=seconds, host=host)
                cell.turns.release()
                if is_last:
                    return CellResult(kind="crashed", error=f"no cell: {cell.why}", seconds=0.0)
        raise AssertionError

    @contextlib.asynccontextmanager
    async def _using_cell(
        self, spec: CellSpec, *, is_call: bool
    ) -> AsyncIterator[PythonCell | NodeCell]:
        held = await self._cell_for(spec)
        held.active += 1
        held.is_called |= is_call
        try:
            yield held.cell
        finally:
            held.active -= 1
            held.used_at = time.monotonic()
            if not (held.cell.is_alive and (held.is_called or held.active)):
                self._retire(held)
            elif held.is_retired and not held.active:
                self._discard(held)
            if self._waiting:
                with anyio.CancelScope(shield=True):
                    async with self._freed:
                        self._freed.notify_all()

    async def _cell_for(self, spec: CellSpec) -> _KeptCell:
        key = _key(spec)
        while True:
            if self._closed:
                raise RpcError(UNAVAILABLE, "the executor is closed")
            held = self._cells.get(key)
            if held is not None and held.ready.is_set() and not held.cell.is_alive:
                self._retire(held)
                continue
            if held is None:
                if not self._has_room():
                    await self._wait_for_room()
                    continue
                held = await self._try_start(key, spec)
                if held is None:
                    continue
            await held.ready.wait()
            if held.failure is not None:
                raise held.failure
            if not held.is_retired:
                return held

    def _has_room(self) -> bool:
        """Whether one more cell may be made; an idle one is ended for it."""
        if len(self._cells) + len(self._retired) < self._max_cells:
            return True
        idle = [held for held in self._cells.values() if not held.active and held.ready.is_set()]
        if not idle:
            return False
        self._retire(min(idle, key=lambda held: held.used_at))
        return True

    async def _wait_for_room(self) -> None:
        if self._waiting >= WAITING:
            raise RpcError(UNAVAILABLE, f"{WAITING} calls wait for a cell already")
        self._waiting += 1
        try:
            async with self._freed:
                await self._freed.wait()
        finally:
            self._waiting -= 1

    async def _try_start(self, key: _Key, spec: CellSpec) -> _KeptCell | None:
        """Return a new cell; None when another call made it, or took the last place."""
        early = self._early.take(spec)
        is_used = False
        try:
            reserved = None if early is None else early.tree
            tree = await anyio.to_thread.run_sync(self._snapshots.take, spec, reserved)
            is_used = key not in self._cells and not self._closed and self._has_room()
            if not is_used:
                self._snapshots.drop(tree)
                return None
        finally:
            if early is not None and not is_used:
                self._close_later(early.end(), early.tree)
        return await self._start(key, spec, tree, early)

    async def _start(
        self, key: _Key, spec: CellSpec, tree: Path, early: EarlyCell | None
    ) -> _KeptCell:
        kind = PythonCell if spec.language == "python" else NodeCell
        try:
            cell = kind(
                self._environment,
                spec,
                tree=tree,
                capabilities=self._capabilities,
                learned=self._learned,
                early=early,
            )
        except SandboxError:
            self._snapshots.drop(tree)
            raise
        held = _KeptCell(key=key, skill=spec.skill, cell=cell, tree=tree, used_at=time.monotonic())
        self._cells[key] = held
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        attributes = {SANDBOX_KIND: spec.language, SANDBOX_LEVEL: str(self._level)}
        began = time.monotonic()
        try:
            with tracing.span(SANDBOX_START_SPAN) as span:
                await cell.start()
                span.set(attributes)
            tracing.observe(SANDBOX_START, time.monotonic() - began, attributes)
        except BaseException as error:
            failure = error if isinstance(error, Exception) else None
            held.failure = failure or RpcError(UNAVAILABLE, "the start of the cell was cancelled")
            self._retire(held)
            raise
        finally:
            held.ready.set()
        return held

    def _retire(self, held: _KeptCell) -> None:
        if self._cells.get(held.key) is held:
            del self._cells[held.key]
            self._retired.add(held)
        held.is_retired = True
        if not held.active:
            self._discard(held)

    def _discard(self, held: _KeptCell) -> None:
        self._cells.pop(held.key, None) if self._cells.get(held.key) is held else None
        self._retired.discard(held)
        self._close_later(held.cell.close(), held.tree)

    def _close_later(self, closing: Coroutine[None, None, None], tree: Path) -> None:
        task = asyncio.get_running_loop().create_task(self._close_one(closing, tree))
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def _close_one(self, closing: Awaitable[None], tree: Path) -> None:
        try:
            await closing
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._snapshots.drop, tree)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(max(0.05, self._idle_seconds / 4))
            oldest = time.monotonic() - self._idle_seconds
            for held in tuple(self._cells.values()):
                if not held.active and held.ready.is_set() and held.used_at <= oldest:
                    self._retire(held)


def _key(spec: CellSpec) -> _Key:
    return (
        spec.skill,
        spec.digest,
        spec.language,
        spec.entry,
        "\0".join(str(path) for path in (spec.dependencies or "", *spec.shared)),
        "" if spec.python is None else str(spec.python.program),
        spec.permissions,
        "\0".join(spec.hosts),
        spec.user,
    )


def _context(spec: CellSpec, meta: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"env": dict(spec.env), "meta": dict(meta)}
