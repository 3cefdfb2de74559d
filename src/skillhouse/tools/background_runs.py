"""Commands that go on in the background, until they end or are ended.

They run on the thread of a `Skillhouse`, so that they outlive the call and the event loop that
started them, and end with it: a sandboxed process ends with the thread that started it. Other
processes of the same state ask about them over a Unix socket in a directory of the user's alone.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct, field

from skillhouse.floor import make_private
from skillhouse.floor.lock import try_lock
from skillhouse.floor.paths import unix_address
from skillhouse.floor.threads import finish_in_thread, in_thread
from skillhouse.sandbox import Completed, OutputListener, SandboxError, SandboxUnavailableError
from skillhouse.tools.call import RefusedError
from skillhouse.tools.tier_gate import Portal, Running
from skillhouse.tools.tool import Session

SUFFIX = ".socket"
MESSAGE_MAX = 1 << 20
"""Bytes of a question or an answer."""
PEER_REPLY_SECONDS = 100.0
"""Longest wait for an answer, which may itself wait for output."""

_GONE = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.DelimiterNotFound,
)


Answer = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Answers a question; None where it is about a command of another process."""
BACKGROUND_SECONDS = 28_800
"""Time of a command in the background: 8 hours."""
BACKGROUND_MAX = 4
"""Commands in the background at one time, of all processes that share a state."""
ENDED_KEPT = 4
"""Ended commands whose output can still be read."""
LOOK_SECONDS = 2.0
"""Time between two looks at what a command in the background must not see or make."""
PAUSE_SECONDS = 0.05
ANSWER_SECONDS = 2.0
"""How long a `Skillhouse` that is closed waits for answers to other processes."""

logger = logging.getLogger(__name__)

Work = Callable[[OutputListener], Awaitable[Completed]]
"""Runs the command to its end."""
Owner = tuple[str, str, str]
"""Agent, user and channel of the call that started a command; no other may read or end it."""


async def serve(directory: Path, answer: Answer, pending: set[SocketStream]) -> None:
    """Answer the other processes until cancelled; `pending` holds those that wait for it."""
    path = directory / f"{os.getpid()}{SUFFIX}"
    path.unlink(missing_ok=True)

    async def take(stream: SocketStream) -> None:
        pending.add(stream)
        try:
            async with stream:
                received = BufferedByteReceiveStream(stream)
                question = json.loads(await received.receive_until(b"\n", MESSAGE_MAX))
                said = await answer(question)
                await stream.send(json.dumps(said).encode() + b"\n")
        except _GONE:
            # Whoever asked needs no answer any more.
            return
        except Exception:
            # The edge of the process; raised, it would end the listener.
            logger.exception("answering about commands in the background")
        finally:
            pending.discard(stream)

    try:
        with unix_address(path) as address:
            listener = await anyio.create_unix_listener(address, mode=0o600)
        async with listener:
            await listener.serve(take)
    finally:
        path.unlink(missing_ok=True)


async def ask_all(directory: Path, question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the answers of the other processes that have one."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        if name.endswith(SUFFIX) and name != f"{os.getpid()}{SUFFIX}":
            said = await _asked(directory / name, question)
            if said is not None:
                found.append(said)
    return found


async def _asked(path: Path, question: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        with unix_address(path) as address:
            stream = await anyio.connect_unix(address)
    except ConnectionRefusedError:
        # Its process was killed.
        path.unlink(missing_ok=True)  # noqa: ASYNC240
        return None
    except OSError:
        return None
    async with stream:
        with contextlib.suppress(TimeoutError, ValueError, *_GONE):
            with anyio.fail_after(PEER_REPLY_SECONDS):
                await stream.send(json.dumps(question).encode() + b"\n")
                received = BufferedByteReceiveStream(stream)
                line = await received.receive_until(b"\n", MESSAGE_MAX)
                said: Mapping[str, Any] | None = json.loads(line)
                return said
    return None


class BackgroundOutput:
    r"""The end of what a program writes, by the place of each byte in the whole; thread-safe.

    >>> output = BackgroundOutput(4)
    >>> output.add(b"012345")
    >>> output.part(0, 2, is_whole=True), output.part(-1, 9, is_whole=True)
    ((2, '23', 4), (5, '5', 6))
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self._begin = 0
        self._lock = threading.Lock()

    def add(self, chunk: bytes) -> None:
        with self._lock:
            self._kept += chunk
            if (beyond := len(self._kept) - self._max_bytes) > 0:
                del self._kept[:beyond]
                self._begin += beyond

    @property
    def end(self) -> int:
        with self._lock:
            return self._begin + len(self._kept)

    def part(self, offset: int, most: int, *, is_whole: bool) -> tuple[int, str, int]:
        """Return a part's place, its text, and the place behind it; without half a character at
        the end unless the output `is_whole`. A negative offset counts from the end."""
        with self._lock:
            end = self._begin + len(self._kept)
            start = min(max(offset if offset >= 0 else end + offset, self._begin), end)
            data = bytes(self._kept[start - self._begin : start - self._begin + most])
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        is_last = is_whole and start + len(data) == end
        text = decoder.decode(data, final=is_last)
        return start, text, start + len(data) - len(decoder.getstate()[0])

    def bytes_of(self, start: int, end: int) -> bytes:
        with self._lock:
            return bytes(self._kept[max(start - self._begin, 0) : max(end - self._begin, 0)])


class BackgroundRun(Struct, kw_only=True):
    """One command in the background."""

    id: str
    owner: Owner
    title: str
    output: BackgroundOutput
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    """How long it ran; 0 before it is over."""
    done: Completed | None = None
    ended_by: str = ""
    """Why it was ended: a call, a stop, the end of skillhouse, or what it must not see or make."""
    failure: str = ""
    """Why it could not run."""
    is_over: bool = False
    """Whether no process of it is left."""
    is_ended: bool = False
    """Whether that is recorded, too."""
    _scope: anyio.CancelScope | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def end(self, reason: str) -> None:
        """End it soon; from any thread."""
        self.ended_by = self.ended_by or reason
        if self._loop is not None and self._scope is not None and not self.is_ended:
            # A loop that is closed runs nothing.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._scope.cancel)

    async def wait(self, seconds: float, *, until_output: int | None = None) -> bool:
        """Wait until it has ended, or has output beyond a place; whether it has ended."""
        with anyio.move_on_after(seconds):
            # It runs on another event loop.
            while not self.is_ended:
                if until_output is not None and self.output.end > until_output:
                    break
                await anyio.sleep(PAUSE_SECONDS)
        return self.is_ended

    @property
    def state(self) -> str:
        """What became of it, in words."""
        if not self.is_over:
            return f"running for {time.monotonic() - self.began:.0f} s"
        done = self.done
        if self.failure:
            return f"failed: {self.failure}"
        if self.ended_by or done is None:
            return f"ended after {self.seconds:.0f} s: {self.ended_by or 'it was cancelled'}"
        if done.limit:
            return f"ended after {self.seconds:.0f} s: the limit on {done.limit} was reached"
        if done.signal is not None:
            return f"ended by signal {done.signal}"
        return f"ended with exit code {done.exit_code}"

    async def run(
        self,
        work: Work,
        running: Callable[[], Running],
        look: Callable[[], str],
        record: Callable[[BackgroundRun], None],
    ) -> None:
        """Run it to its end on this event loop, and record that."""
        self._scope, self._loop = anyio.CancelScope(), asyncio.get_running_loop()
        if self.ended_by:
            self._scope.cancel()
        try:
            with running() as under_stop, self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch, look)
                    self.done = await work(self.output.add)
                    tasks.cancel_scope.cancel()
            if under_stop.reason:
                self.ended_by = f"everything was stopped: {under_stop.reason}"
        except* (SandboxError, SandboxUnavailableError, OSError) as group:
            self.failure = "; ".join(dict.fromkeys(map(str, _leaves(group))))
        except* Exception:
            # The edge of a task of its own.
            logger.exception("a command in the background")
            self.failure = "it failed inside skillhouse"
        finally:
            self.seconds, self.is_over = time.monotonic() - self.began, True
            await finish_in_thread(lambda: record(self))
            self.is_ended = True

    async def _watch(self, look: Callable[[], str]) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            if reason := await in_thread(look):
                self.end(reason)
                return


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


class BackgroundRuns:
    """The commands in the background of one `Skillhouse`."""

    def __init__(
        self,
        directory: Path,
        *,
        portal: Callable[[], Portal],
        running: Callable[[], Running],
        record: Callable[[BackgroundRun], None],
    ) -> None:
        """Make it; nothing is opened before the first command.

        Args:
            directory: Holds a locked file for each command, shared by all processes of the state.
            portal: Gives the thread that runs them.
            running: Gives what a stop ends, as for a call.
            record: Takes each command that has ended, for the log.
        """
        self._directory = directory
        self._portal = portal
        self._running = running
        self._record = record
        self._runs: dict[str, BackgroundRun] = {}
        self._lock = threading.Lock()
        self._answer: Answer | None = None
        self._service: anyio.CancelScope | None = None
        self._pending: set[SocketStream] = set()

    def answer_by(self, answer: Answer) -> None:
        """Let other processes ask about the commands of this one, from the first one on."""
        self._answer = answer

    async def ask_others(self, question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return what the other processes of the state answer."""
        return await ask_all(self._directory, question)

    async def start(
        self,
        session: Session,
        title: str,
        work: Work,
        *,
        max_bytes: int,
        writable: tuple[Path, ...] = (),
        look: Callable[[], str] = lambda: "",
    ) -> BackgroundRun:
        """Start a command; RefusedError where there are `BACKGROUND_MAX` already.

        Args:
            session: Whose it is.
            title: What it is, in one line.
            work: Runs it.
            max_bytes: Most bytes of its output that are kept.
            writable: Directories that it may write, for `written`.
            look: Returns why it has to end now, or "".
        """
        slot = await in_thread(lambda: self._slot(writable))
        run = BackgroundRun(
            id=secrets.token_hex(6),
            owner=owner_of(session),
            title=title,
            output=BackgroundOutput(max_bytes),
        )

        async def complete() -> None:
            try:
                await run.run(work, self._running, look, self._record)
            finally:
                os.close(slot)

        try:
            with self._lock:
                self._runs[run.id] = run
                self._forget()
            if self._service is None:
                self._service = anyio.CancelScope()
                self._portal().start(self._serve)
            self._portal().start(complete)
        except BaseException:
            self._runs.pop(run.id, None)
            os.close(slot)
            raise
        return run

    def of(self, owner: Owner) -> tuple[BackgroundRun, ...]:
        """Return those that a caller started, the oldest first."""
        with self._lock:
            return tuple(run for run in self._runs.values() if run.owner == owner)

    def get(self, run_id: str, owner: Owner) -> BackgroundRun | None:
        """Return one of this process that the caller started."""
        return next((run for run in self.of(owner) if run.id == run_id), None)

    @property
    def is_busy(self) -> bool:
        with self._lock:
            return any(not run.is_ended for run in self._runs.values())

    @property
    def has_unread(self) -> bool:
        """Whether one ended by itself, so that its output may still be wanted."""
        with self._lock:
            return any(run.is_ended and not run.ended_by for run in self._runs.values())

    async def wait(self, seconds: float) -> None:
        """Wait until all have ended."""
        for run in tuple(self._runs.values()):
            await run.wait(seconds)

    async def _serve(self) -> None:
        service, answer = self._service, self._answer
        if service is not None and answer is not None:
            with service:
                try:
                    await serve(self._directory, answer, self._pending)
                except OSError:
                    logger.exception("other processes cannot ask about commands of this one")

    def written(self) -> tuple[str, ...]:
        """Return the directories that commands in the background may write, of all processes."""
        found: dict[str, None] = {}
        for number in range(BACKGROUND_MAX):
            with contextlib.suppress(OSError, ValueError):
                handle = os.open(self._place(number), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    if not try_lock(handle):
                        found |= dict.fromkeys(json.loads(os.read(handle, 65_536))["writable"])
                finally:
                    os.close(handle)
        return tuple(found)

    async def close(self) -> None:
        """End all, and wait for it; on the thread that runs them."""
        with self._lock:
            runs = tuple(self._runs.values())
        for run in runs:
            run.end("skillhouse was closed")
        for run in runs:
            await run.wait(BACKGROUND_SECONDS)
        if self._service is not None:
            with anyio.move_on_after(ANSWER_SECONDS):
                # Another process that ended one hears of it.
                while self._pending:  # noqa: ASYNC110
                    await anyio.sleep(PAUSE_SECONDS)
            self._service.cancel()

    def _forget(self) -> None:
        ended = [run.id for run in self._runs.values() if run.is_ended]
        for run_id in ended[: max(len(ended) - ENDED_KEPT, 0)]:
            del self._runs[run_id]

    def _place(self, number: int) -> str:
        return f"{self._directory}/{number}"

    def _slot(self, writable: tuple[Path, ...]) -> int:
        """Return the locked file of a free place; the kernel unlocks it when the process dies."""
        make_private(self._directory)
        for number in range(BACKGROUND_MAX):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(self._place(number), flags, 0o600)
            if try_lock(handle):
                os.truncate(handle, 0)
                os.write(handle, json.dumps({"writable": [str(one) for one in writable]}).encode())
                return handle
            os.close(handle)
        raise RefusedError(
            f"nothing was started: {BACKGROUND_MAX} commands are in the background already: "
            "end one with `exec_stop`"
        )


def owner_of(session: Session) -> Owner:
    return session.agent, session.user, session.channel


def end_of(run: BackgroundRun) -> Mapping[str, str | int]:
    """Return what the log gets of one that has ended."""
    done = run.done
    code = -1 if done is None or done.exit_code is None else done.exit_code
    limit = done.limit if done is not None else ""
    return {"background": run.id, "exit_code": code, "limit": limit, "ended_by": run.ended_by}


def value_of(run: BackgroundRun) -> Mapping[str, object]:
    """Return what programs get of one."""
    end = end_of(run)
    return {
        "id": run.id,
        "running": not run.is_ended,
        "exit_code": end["exit_code"],
        "limit": end["limit"],
        "state": run.state,
    }
