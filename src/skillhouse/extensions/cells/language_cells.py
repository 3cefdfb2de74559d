"""What the cells of all languages share, and that of Python, which forks for each call."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.extensions.cells.call_channel import CallChannel, CallOutcome, CellOutput, attempt
from skillhouse.extensions.cells.cell import CALLS_PER_CELL, EXECUTE, TAIL_BYTES, Capabilities
from skillhouse.extensions.cells.cell_environment import CellEnvironment, places, way_variables
from skillhouse.extensions.cells.cell_process import BubblewrapCell, CellProcess, ContainerCell
from skillhouse.extensions.cells.early_cell import EarlyCell
from skillhouse.extensions.cells.frames import own_frames
from skillhouse.extensions.cells.ready_calls import (
    LOAD_SECONDS,
    Ending,
    Fork,
    LearnedImports,
    ReadyCalls,
)
from skillhouse.extensions.cells.rpc import Frames
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox.bubblewrap import writable
from skillhouse.sandbox.code_call import CellResult, CellSpec, CodeFrame, HostCalls, Kind
from skillhouse.sandbox.guard import OPEN_FILES
from skillhouse.sandbox.process import GRACE_SECONDS

if TYPE_CHECKING:
    from skillhouse.net import EgressProxy

READY_SECONDS = 20.0
"""Longest wait for a new cell; usually 40 ms."""
CHUNK = 65_536
END_SECONDS = 5.0
"""Longest wait for the end of a killed call; then its cell is killed, with all of its calls."""
CPU_SLACK_SECONDS = 5
"""Processor time beyond the call's time after which the kernel ends a process by itself."""


class LanguageCell:
    """The cell of one skill; made by `Executor` only."""

    _ready_calls: ReadyCalls[Any]

    def __init__(
        self,
        environment: CellEnvironment,
        spec: CellSpec,
        *,
        tree: Path,
        capabilities: Capabilities,
        learned: LearnedImports,
        early: EarlyCell | None = None,
    ) -> None:
        """Make it; `early` is its process where that was started before the call was allowed."""
        self._environment = environment
        self._early = early
        self._spec = spec
        self._tree = tree
        self._capabilities = capabilities
        self._learned = learned
        self.turns = asyncio.Semaphore(CALLS_PER_CELL)
        self._prepare()

    def _prepare(self) -> None: ...

    def _cell_process(self, *, forks: bool, is_spare: bool = False) -> CellProcess:
        kind = ContainerCell if self._environment.is_contained else BubblewrapCell
        return kind(self._environment, self._spec, tree=self._tree, forks=forks, is_spare=is_spare)

    @property
    def ready(self) -> int:
        """How many processes wait for calls."""
        return self._ready_calls.count

    @property
    def has_packages(self) -> bool:
        """Whether the skill may import more than its own code and what its language brings."""
        return bool(places(self._spec)[1])

    def _begin_call(
        self,
        link: socket.socket,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        frames: Frames | None = None,
    ) -> CallChannel:
        channel = CallChannel(
            link,
            capabilities=self._capabilities,
            token=token,
            number=secrets.token_hex(8),
            frames=frames,
        )
        channel.begin(method, {**params, "capability": token})
        return channel

    async def _frames(self, claims: object, process: CellProcess) -> tuple[CodeFrame, ...]:
        if not claims:
            return ()
        place = str(process.settings()["skill"])
        return await in_thread(lambda: own_frames(claims, place=place, tree=self._tree))


class PythonCell(LanguageCell):
    """A Python process that has loaded nothing of the skill, and forks for each call."""

    def _prepare(self) -> None:
        early = self._early
        self._process = self._cell_process(forks=True) if early is None else early.process
        self._control = None if early is None else early.control
        self._listener: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._endings: dict[int, Ending] = {}
        self._numbers = itertools.count(1)
        self._finishing: set[asyncio.Task[None]] = set()
        self._ready_calls = ReadyCalls[Fork](self)
        self._spent = False
        """True once a limit was exceeded: its counter would also be taken for the next call's."""
        self._is_closed = False

    @property
    def is_alive(self) -> bool:
        return not self._process.gone.is_set() and not self._spent

    @property
    def why(self) -> str:
        return self._process.how()

    async def start(self) -> None:
        if self._control is None:
            self._control = self._process.start(socket.SOCK_SEQPACKET)
        settings = {
            "seccomp": self._environment.call_filter.hex(),
            "writable": writable(self._environment.limits),
            "entry": self._spec.entry,
            **self._process.settings(),
        }
        self._say(settings)
        self._listener = asyncio.get_running_loop().create_task(self._listen(self._control))
        with anyio.move_on_after(READY_SECONDS):
            await self._ready.wait()
        if known := self._learned.known(self._spec):
            self._say({"import": known.names})

    async def _listen(self, control: socket.socket) -> None:
        try:
            while True:
                await anyio.wait_readable(control)
                data, given, _, _ = socket.recv_fds(control, CHUNK, 1)
                if not data:
                    break
                self._take_report(json.loads(data), [socket.socket(fileno=one) for one in given])
        except OSError:
            # It ended during a write; its calls are marked as ended below.
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await self._process.end_when_closed()
            for ending in self._endings.values():
                ending.end()
            self._ready.set()

    def _take_report(self, report: Mapping[str, Any], given: Sequence[socket.socket]) -> None:
        if "ready" in report:
            self._ready.set()
        elif "way" in report:
            fork = self._endings.get(report["way"])
            for one in given:
                if fork is None or fork.way is not None:
                    one.close()
                    continue
                fork.way = one
            if fork is not None:
                # Also where the descriptor was lost on its way: nothing else will come.
                fork.has_way.set()
        elif (ending := self._endings.get(report["ended"])) is not None:
            ending.status = report["status"]
            ending.failed = report.get("failed", "")
            ending.end()

    async def call(
        self, method: str, params: Mapping[str, Any], *, seconds: float, host: HostCalls
    ) -> CellResult:
        """Run one call in a process of its own, which is killed when it has answered.

        Another call takes its turn when that process is gone.
        """
        began = time.monotonic()
        env = params["context"]["env"]
        self._process.begin_call()
        outcome: CallOutcome | None = None
        fork: Fork | None = None
        with contextlib.ExitStack() as stack:
            try:
                token = stack.enter_context(self._capabilities.of(host))
                fork = self._ready_calls.take(seconds, env) or self._fork(seconds)
                stack.enter_context(contextlib.closing(fork))
                async with self._serving_network(fork, host.network) as has_way:
                    channel = self._begin_call(fork.link, token, method, params, frames=fork.frames)
                    outcome = await attempt(channel, seconds=seconds)
            finally:
                is_answered = outcome is not None and outcome.kind in ("ok", "error")
                await self._finish(fork, is_answered=is_answered)
            if method == EXECUTE and not self._spec.is_single:
                # Not before the answer is on its way.
                asyncio.get_running_loop().call_soon(self._refill, seconds, env)
            kind, error = self._judged(outcome, fork.output, fork.ending)
            return CellResult(
                value=outcome.value,
                error=error,
                kind=kind,
                stdout_tail=fork.output.tail(TAIL_BYTES).decode("utf-8", "replace"),
                frames=await self._frames(outcome.frames, self._process),
                unreached=outcome.unreached,
                has_way=has_way,
                seconds=time.monotonic() - began,
            )

    @contextlib.asynccontextmanager
    async def _serving_network(
        self, fork: Fork, network: EgressProxy | None
    ) -> AsyncIterator[bool]:
        """Serve the call's way out while the block lasts; whether it has one."""
        if network is None or not fork.credentials:
            yield False
            return
        with anyio.move_on_after(READY_SECONDS):
            await fork.ending.has_way.wait()
        if fork.ending.way is None:
            # The process has ended, or will be taken for one that does not answer.
            yield False
            return
        async with network.serving(fork.ending.way, credentials=fork.credentials):
            yield True

    def _refill(self, seconds: float, env: Mapping[str, str]) -> None:
        if self.is_alive and not self._is_closed:
            self._ready_calls.refill(seconds, env)

    def _control_socket(self) -> socket.socket:
        if self._control is None:
            raise RuntimeError("expected a cell that was started")
        return self._control

    def _say(self, order: Mapping[str, Any]) -> None:
        # A cell that is gone is noticed where its listener reads.
        with contextlib.suppress(OSError):
            self._control_socket().send(json.dumps(order).encode())

    def _fork(self, seconds: float, memory_bytes: int = 0) -> Fork:
        """Return a new process for one call, which waits for its request.

        Args:
            memory_bytes: 0 for what a call may have.
        """
        number = next(self._numbers)
        with contextlib.ExitStack() as stack, contextlib.ExitStack() as theirs:
            link, end = socket.socketpair()
            theirs.enter_context(end)
            stack.enter_context(link)
            link.setblocking(False)  # noqa: FBT003 - the parameter has no name.
            reading, writing = os.pipe()
            theirs.callback(os.close, writing)

            def close_link() -> None:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

            output = stack.enter_context(contextlib.closing(CellOutput(reading, close_link)))
            limits = [
                (resource.RLIMIT_DATA, memory_bytes or self._environment.call_bytes),
                (resource.RLIMIT_NOFILE, OPEN_FILES),
                (resource.RLIMIT_CPU, int(seconds) + CPU_SLACK_SECONDS),
            ]
            given: dict[str, Any] = {"call": number, "limits": limits}
            way = f"call:{secrets.token_urlsafe(16)}" if self._spec.hosts else ""
            if way:
                given["proxy"] = way_variables(way)
            order = json.dumps(given).encode()
            # A cell that is gone is noticed where the answer is awaited.
            with contextlib.suppress(OSError):
                socket.send_fds(self._control_socket(), [order], [end.fileno(), writing])
            ending = self._endings[number] = Ending()
            stack.pop_all()
        return Fork(
            number=number, ending=ending, link=link, output=output, seconds=seconds, credentials=way
        )

    async def _finish(self, fork: Fork | None, *, is_answered: bool) -> None:
        if fork is not None:
            self._say({"kill": fork.number})
        end = asyncio.get_running_loop().create_task(self._ended(fork))
        self._finishing.add(end)
        end.add_done_callback(self._finishing.discard)
        if not is_answered:
            with anyio.CancelScope(shield=True):
                await asyncio.wait({end}, timeout=GRACE_SECONDS)

    async def _ended(self, fork: Fork | None) -> None:
        """Return when the call's processes are gone; after a while, kill the whole cell."""
        try:
            if fork is not None:
                await self._killed(fork)
        finally:
            self._process.end_call()
            self.turns.release()

    async def _killed(self, fork: Fork) -> None:
        try:
            with anyio.move_on_after(END_SECONDS):
                await fork.ending.done.wait()
            if not fork.ending.done.is_set():
                await self._process.end()
        finally:
            ending = self._endings.pop(fork.number)
            if ending.way is not None:
                # It may have come after all else of the call was closed.
                ending.way.close()

    def start_ready(self, seconds: float) -> Fork:
        return self._fork(seconds)

    def discard_ready(self, process: Fork) -> None:
        self._say({"kill": process.number})
        process.close()
        end = asyncio.get_running_loop().create_task(self._killed(process))
        self._finishing.add(end)
        end.add_done_callback(self._finishing.discard)

    def watch_ready(self, process: Fork, *, closely: bool) -> None:
        if closely:
            self._process.begin_call()
        else:
            self._process.end_call()

    def stop_ready(self, process: Fork) -> None:
        self._say({"stop": process.number})

    def resume_ready(self, process: Fork) -> None:
        self._say({"go": process.number})

    def start_learner(self) -> Fork | None:
        known = self._learned.known(self._spec)
        return self._fork(LOAD_SECONDS, self._ready_bytes) if known is None else None

    def take_report(self, report: Mapping[str, Any]) -> None:
        """Have what the skill's code imports of the standard library imported ahead."""
        if new := self._learned.learn(self._spec, report):
            self._say({"import": new})

    def max_ready(self) -> int:
        if not self.has_packages:
            return 0
        return self._learned.fitting(self._spec, self._ready_bytes)

    @property
    def _ready_bytes(self) -> int:
        """Memory of all processes without a call: with a call's, all that the cell has."""
        return self._process.memory_bytes - self._environment.call_bytes

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
        self._is_closed = True
        self._ready_calls.close()
        await self._process.end()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})
        if self._finishing:
            await asyncio.wait(set(self._finishing))
        if self._control is not None:
            self._control.close()
