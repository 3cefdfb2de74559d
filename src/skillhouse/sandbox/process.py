"""One bubblewrap process, from its start until all processes inside are gone.

INVARIANT: it is spawned in the coroutine itself, so on the event loop's thread: what
`--die-with-parent` follows is the thread that spawned it. No `preexec_fn`, which may deadlock in
a process with threads: bubblewrap waits for its options, and gets them when its limits hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from skillhouse.floor.crash_cleanup import SANDBOX_NAME, owner_name
from skillhouse.sandbox.crash_watch import watch_for_crashes
from skillhouse.sandbox.guard import ProcessGuard
from skillhouse.sandbox.pipes import CHUNK, Pipes
from skillhouse.sandbox.profile import (
    Completed,
    Limits,
    OutputListener,
    SandboxError,
    Streams,
    left_out_text,
)

GRACE_SECONDS = 0.5
"""Longest wait for the end of the output of killed processes."""
GONE_SECONDS = 10.0
"""Longest wait for the end of a killed process tree."""
SIGNAL_BASE = 128
"""bubblewrap exits with this plus the number of the signal that ended the program."""
SIGNAL_MAX = 31
"""The last ordinary signal; greater exit codes are the program's own."""

STREAMS = ("stdout", "stderr")


class _KeptStream:
    """The beginning of a stream and its end."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.left_out = 0


class KeptOutput:
    r"""At most so many bytes of both streams: of what is more, each stream loses its middle.

    >>> kept = KeptOutput(8)
    >>> kept.add("stdout", b"0123456789")
    >>> kept.bytes_of("stdout").decode(), kept.left_out
    ('01\n… 2 bytes left out …\n456789', 2)
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._streams = {name: _KeptStream() for name in STREAMS}

    @property
    def left_out(self) -> int:
        return sum(stream.left_out for stream in self._streams.values())

    def add(self, name: str, chunk: bytes) -> None:
        stream = self._streams[name]
        # A quarter for each beginning, so that the ends of both have half of it at least.
        begun = chunk[: max(self._max_bytes // 4 - len(stream.head), 0)]
        stream.head += begun
        stream.tail += chunk[len(begun) :]
        while (beyond := self._size() - self._max_bytes) > 0:
            # The longer one, so that no stream drives out what is little of the other.
            longer = max(self._streams.values(), key=lambda each: len(each.tail))
            lost = min(beyond, len(longer.tail))
            del longer.tail[:lost]
            longer.left_out += lost

    def _size(self) -> int:
        return sum(len(each.head) + len(each.tail) for each in self._streams.values())

    def bytes_of(self, name: str) -> bytes:
        stream = self._streams[name]
        if not stream.left_out:
            return bytes(stream.head + stream.tail)
        head, tail = bytes(stream.head), bytes(stream.tail)
        head = head[: len(head) - _begun(head)]
        # At most three bytes of a character follow its first one (RFC 3629).
        tail = tail[next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0) :]
        lost = stream.left_out + len(stream.head) + len(stream.tail) - len(head) - len(tail)
        before = b"" if head.endswith(b"\n") or not head else b"\n"
        return head + before + f"{left_out_text(lost)}\n".encode() + tail


def _begun(data: bytes) -> int:
    """Return how many bytes at the end are of a character that goes on behind it (RFC 3629)."""
    for back, byte in enumerate(reversed(data[-3:]), 1):
        if byte & 0xC0 != 0x80:
            size = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return back if size > back else 0
    return 0


class Command(Struct, frozen=True, kw_only=True):
    """What a run starts."""

    program: Path
    argv: Sequence[str]
    files: Mapping[str, bytes]
    """Contents that it reads from descriptors, by the name under which `options` gets each; the
    filter is "seccomp"."""
    options: Callable[[Mapping[str, int]], Iterable[str]]
    """Makes the options of what is inside from the descriptors of `files`."""
    inherited: tuple[int, ...] = ()
    """Descriptors that the program inherits; the caller closes its own copies."""
    script: tuple[str, ...] = ()
    """Words after the program, before its options: those of an interpreter."""

    @property
    def first_word(self) -> str:
        """The program, or for bubblewrap the name by which one that we left is found."""
        return str(self.program) if self.script else f"{SANDBOX_NAME}{owner_name()}"


class Run:
    """One run; `complete` is called once."""

    def __init__(
        self,
        command: Command,
        guard: ProcessGuard,
        limits: Limits,
        *,
        on_output: OutputListener | None = None,
        streams: Streams | None = None,
    ) -> None:
        """With `streams` the output goes there, and none of it is in the result."""
        self._command = command
        self._on_output = on_output
        self._streams = streams
        self._guard = guard
        self._limits = limits
        self._pipes = Pipes()
        self._options = b""
        self._output = KeptOutput(limits.output_bytes)
        self._status = bytearray()
        self._limit = ""
        self.began_at: float | None = None
        """When bubblewrap reported the first process inside, on the monotonic clock."""
        self._init: int | None = None
        """Descriptor of the first process inside. When it is gone, so is every other one there
        (pid_namespaces(7))."""

    async def complete(
        self,
        stdin: bytes,
        *,
        spawned: Callable[[], object] | None = None,
        prepare: Callable[[], Awaitable[object]] | None = None,
    ) -> Completed:
        """Start the command and return when all of its processes are gone.

        Args:
            spawned: Called after it has inherited its descriptors.
            prepare: Awaited before the options are made, while bubblewrap starts and waits.

        Raises:
            SandboxError: "sandbox-failed", bubblewrap did not start it.
        """
        try:
            process, descriptors = self._spawn(is_fed=bool(stdin))
            if spawned is not None:
                spawned()
            try:
                if prepare is not None:
                    await prepare()
                began = time.monotonic()
                options = (*_own_options(descriptors), *self._command.options(descriptors))
                self._options = os.fsencode("".join(f"{text}\0" for text in options))
                with anyio.move_on_after(self._limits.seconds) as timer:
                    await self._attend(process, stdin)
                if timer.cancelled_caught:
                    self._limit = "time"
            finally:
                try:
                    with anyio.CancelScope(shield=True):
                        await self._end(process)
                finally:
                    # No shield holds off asyncio's own cancellation, as at the end of its loop.
                    process.kill()
                    process.wait()
            self._status += self._pipes.rest("status")
        finally:
            self._pipes.close_all()
        return self._completed(time.monotonic() - began)

    def output_tail(self, max_bytes: int) -> bytes:
        for name in STREAMS:
            if self._pipes.is_open(name):
                with contextlib.suppress(BlockingIOError):
                    self._output.add(name, os.read(self._pipes.ours(name), CHUNK))
        return b"".join(map(self._output.bytes_of, STREAMS))[-max_bytes:]

    def _spawn(self, *, is_fed: bool) -> tuple[subprocess.Popen[bytes], Mapping[str, int]]:
        pipes, command = self._pipes, self._command
        passed = {name: pipes.filled(data) for name, data in command.files.items()}
        passed["status"] = pipes.from_child("status")
        if self._guard.inner_limits:
            passed["block"] = pipes.to_child("block")
        options = pipes.to_child("options")
        inherited = command.inherited
        if self._streams is not None:
            own = (self._streams.stdin, self._streams.stdout, self._streams.stderr)
            if self._streams.directory is not None:
                inherited = (*inherited, self._streams.directory)
        else:
            source = pipes.to_child("stdin") if is_fed else subprocess.DEVNULL
            own = (source, pipes.from_child("stdout"), pipes.from_child("stderr"))
        watch_for_crashes().start()
        process = self._guard.start(
            lambda: subprocess.Popen(
                (command.first_word, *command.script, "--args", str(options), "--", *command.argv),
                executable=command.program,
                stdin=own[0],
                stdout=own[1],
                stderr=own[2],
                pass_fds=(options, *passed.values(), *inherited),
                # INVARIANT: empty, as /proc/1/environ inside is what bubblewrap was started with.
                env={},
                cwd="/",
                start_new_session=True,
            )
        )
        try:
            pipes.close_theirs()
            pipes.adopt("process", os.pidfd_open(process.pid))
        except BaseException:
            # Without a descriptor left, say. It has no options yet, and so no process inside.
            process.kill()
            process.wait()
            raise
        return process, passed

    async def _attend(self, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        self._guard.add(process.pid)
        for kind, value in self._guard.resource_limits.items():
            resource.prlimit(process.pid, kind, (value, value))
        # Before all else, since bubblewrap works while we go on.
        outgoing = {"options": memoryview(self._options)}
        if stdin:
            outgoing["stdin"] = memoryview(stdin)
        for name, data in tuple(outgoing.items()):
            outgoing[name] = self._pipes.send(name, data)
        if not self._guard.is_watching:
            await self._serve(process, outgoing, begun=_heed_nothing)
            return
        async with anyio.create_task_group() as tasks:

            async def watched(init: int) -> None:
                if limit := await self._guard.watch(init):
                    self._stop(process, limit)

            await self._serve(process, outgoing, begun=lambda init: tasks.start_soon(watched, init))
            tasks.cancel_scope.cancel()

    async def _serve(
        self,
        process: subprocess.Popen[bytes],
        outgoing: dict[str, memoryview],
        *,
        begun: Callable[[int], object],
    ) -> None:
        """Give it what it reads and take what it writes, until it has ended.

        `begun` is called with the first process inside, once it has its limits.
        """
        pipes = self._pipes
        running = {"process"} if self._streams else {*STREAMS, "process"}
        pipes.watch(*running, "status")
        pipes.watch_writing(*(name for name, rest in outgoing.items() if rest))
        with anyio.CancelScope() as ending:
            while running:
                for name in await pipes.ready():
                    if name == "process":
                        # What is inside dies with bubblewrap, and that ends the output. A process
                        # that is not quite dead and still holds it does not hold up the answer.
                        ending.deadline = anyio.current_time() + GRACE_SECONDS
                    elif name in STREAMS:
                        if not self._is_at_end(name, process):
                            continue
                    elif name == "status":
                        if not self._has_begun(begun):
                            continue
                    else:
                        outgoing[name] = pipes.send(name, outgoing[name])
                        continue
                    pipes.unwatch(name)
                    running.discard(name)

    def _is_at_end(self, name: str, process: subprocess.Popen[bytes]) -> bool:
        """Take what there is of its output; say whether no more is taken."""
        chunk = self._pipes.chunk(name)
        if not chunk:
            return chunk is not None
        self._output.add(name, chunk)
        if self._on_output is not None:
            self._on_output(chunk)
        if self._limits.ends_at_output and self._output.left_out:
            self._stop(process, "output")
            return True
        return False

    def _has_begun(self, begun: Callable[[int], object]) -> bool:
        """Take what it reports of itself; say whether the first process inside was found, which
        then has its limits and is let go, or never will be."""
        chunk = self._pipes.chunk("status")
        if not chunk:
            return chunk is not None
        self._status += chunk
        init = self._find_init()
        if init is None:
            return False
        self.began_at = time.monotonic()
        # One that has died already needs no limits.
        with contextlib.suppress(ProcessLookupError):
            for kind, value in self._guard.inner_limits.items():
                resource.prlimit(init, kind, (value, value))
        if self._pipes.is_open("block"):
            self._pipes.send("block", memoryview(b"\0"))
        begun(init)
        if self._streams is not None:
            self._streams.began(init)
        return True

    def _stop(self, process: subprocess.Popen[bytes], limit: str) -> None:
        self._limit = self._limit or limit
        if not self._kill_init():
            process.kill()

    def _kill_init(self) -> bool:
        """Kill the first process inside, and so all; bubblewrap then reaps it and ends."""
        if self._init is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        return True

    def _find_init(self) -> int | None:
        """Return the first process inside, and open it, when bubblewrap has reported it."""
        for report in self._reports():
            pid, namespace = report.get("child-pid"), report.get("pid-namespace")
            if not isinstance(pid, int):
                continue
            with contextlib.suppress(OSError):
                handle = self._pipes.adopt("init", os.pidfd_open(pid))
                # The number may be another process's by now, unless the namespace is right.
                if os.stat(f"/proc/{pid}/ns/pid_for_children").st_ino == namespace:
                    self._init = handle
                    return pid
        return None

    def _reports(self) -> Iterator[dict[str, Any]]:
        for line in bytes(self._status).splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        until = self._pipes.until_readable
        if self._init is None and not self._pipes.is_open("options"):
            await self._await_init()
        if self._kill_init():
            await until("process", seconds=GRACE_SECONDS)
        else:
            # A first process inside that was not reported is in bubblewrap's group. The number is
            # no other group's: bubblewrap began it and has not been reaped.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
            self._guard.kill()
            await until("process")
        if self._init is not None:
            await until("init", seconds=GONE_SECONDS)
            # Its parent is gone, so it is ours to reap if we are what is first in a container.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._init, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222

    async def _await_init(self) -> None:
        """Wait for the report of the first process.

        It binds its life to bubblewrap's a moment after it was made; if bubblewrap were killed
        before, it would stay behind.
        """
        with anyio.move_on_after(GRACE_SECONDS):
            while True:
                await self._pipes.until_readable("status")
                chunk = self._pipes.chunk("status")
                if chunk is None:
                    continue
                self._status += chunk
                if not chunk or self._find_init() is not None:
                    return

    def _completed(self, duration_seconds: float) -> Completed:
        limit = self._limit
        codes = [report["exit-code"] for report in self._reports() if "exit-code" in report]
        code = codes[0] if codes else None
        if limit:
            code = None  # What bubblewrap says now is only that we killed it.
        elif code != 0:
            limit = self._guard.reached()
        if code is None and not limit:
            # INVARIANT: without the report the program was not run, whatever bubblewrap's exit
            # code says, so this is never taken for an answer of the program.
            message = self._output.bytes_of("stderr")[:200].decode(errors="replace").strip()
            message = " ".join(message.split()) or "no message"
            raise SandboxError("sandbox-failed", f"the sandbox did not start: {message}")
        is_signal = code is not None and SIGNAL_BASE < code <= SIGNAL_BASE + SIGNAL_MAX
        return Completed(
            exit_code=None if is_signal else code,
            signal=code - SIGNAL_BASE if code is not None and is_signal else None,
            stdout=self._output.bytes_of("stdout"),
            stderr=self._output.bytes_of("stderr"),
            left_out=self._output.left_out,
            timed_out=limit == "time",
            limit=limit,
            duration_seconds=duration_seconds,
        )


def _heed_nothing(_: int) -> None:
    """Do nothing: the kernel watches."""


def _own_options(descriptors: Mapping[str, int]) -> Iterator[str]:
    yield from ("--seccomp", str(descriptors["seccomp"]))
    yield from ("--json-status-fd", str(descriptors["status"]))
    if "block" in descriptors:
        yield from ("--block-fd", str(descriptors["block"]))
