"""Runs the commands of runners that come with a ticket, each on the runner's own descriptors."""

from __future__ import annotations

import array
import asyncio
import os
import signal
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio

from skillhouse.floor.paths import unix_address
from skillhouse.floor.threads import finish_in_thread, in_thread
from skillhouse.frontends.hooks.run_client import FAILED, SIGNALS, SOCKET
from skillhouse.frontends.hooks.tickets import (
    RunEnd,
    Ticket,
    TicketError,
    Tickets,
    ancestors,
    place_of,
)
from skillhouse.sandbox import Streams

RECEIVE_SECONDS = 10.0
COMMAND_MAX = 256 * 1024
DESCRIPTORS = 4
"""Standard input, output and error, and the directory."""
RUNS_MAX = 100
DIRECTORY_MAX = 4096
"""PATH_MAX of Linux."""
_PEER = struct.Struct("3i")


class RunServer:
    """Serves the runners of one directory."""

    def __init__(self, directory: Path, tickets: Tickets) -> None:
        self._path = directory / os.fsdecode(SOCKET)
        self._tickets = tickets
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    async def serve(self) -> None:
        """Serve until cancelled; the caller holds the lock of the directory."""
        self._path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with unix_address(self._path) as address:
                listener.bind(address)
            self._path.chmod(0o600)
            listener.listen(RUNS_MAX)
            listener.settimeout(0)
            try:
                while True:
                    peer, _ = await asyncio.get_running_loop().sock_accept(listener)
                    if len(self._tasks) >= RUNS_MAX:
                        peer.close()
                        continue
                    task = asyncio.create_task(self._connected(peer))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            finally:
                self._path.unlink(missing_ok=True)

    async def _connected(self, peer: socket.socket) -> None:
        with ExitStack() as closing, suppress(OSError):
            closing.callback(peer.close)
            peer.settimeout(0)
            pid, user, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user != os.geteuid():
                return
            try:
                with anyio.fail_after(RECEIVE_SECONDS):
                    message, handles = await _received(peer, closing)
                end = await self._run(peer, pid, message, handles)
            except TicketError as error:
                end = RunEnd(code=FAILED, reason=f"nothing was run: {error}")
            except TimeoutError:
                end = RunEnd(code=FAILED, reason="nothing was run: the ticket came too late")
            said = [*([end.reason] if end.reason else ()), *end.notes]
            text = end.place or "".join(f"[skillhouse: {one}]\n" for one in said)
            answer = str(end.code).encode() + b"\0" + text.encode("utf-8", "surrogateescape")
            with anyio.move_on_after(RECEIVE_SECONDS):
                await asyncio.get_running_loop().sock_sendall(peer, answer)

    async def _run(
        self, peer: socket.socket, pid: int, message: bytes, handles: list[int]
    ) -> RunEnd:
        secret, mark, command = message.partition(b"\0")
        if not mark and not handles:
            place = self._tickets.take_end(os.fsdecode(secret))
            return RunEnd(code=0 if place else FAILED, place=place)
        if not mark or len(handles) != DESCRIPTORS:
            raise TicketError("expected a ticket, a command and four descriptors")
        # A directory among what a command inherits would lead out of its sandbox.
        if any(stat.S_ISDIR(os.fstat(one).st_mode) for one in handles[:3]):
            raise TicketError("expected no directory as input or output")
        ticket = self._tickets.take(
            os.fsdecode(secret),
            command=os.fsdecode(command),
            directory=place_of(handles[3]),
            above=ancestors(pid),
        )
        try:
            return await self._attended(peer, ticket, handles)
        finally:
            self._tickets.over(ticket)

    async def _attended(self, peer: socket.socket, ticket: Ticket, handles: list[int]) -> RunEnd:
        """Run it while the runner is there, and pass on the signals that this gets."""
        inside: list[int] = []
        end = RunEnd(code=FAILED, reason="the runner was ended, and the command with it")
        await in_thread(ticket.began)
        stdin, stdout, stderr = handles[:3]
        given, written = os.pipe() if ticket.place else (-1, -1)
        streams = Streams(
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            began=inside.append,
            directory=written if ticket.place else None,
        )

        async def watched(scope: anyio.CancelScope) -> None:
            while numbers := await _part(peer, 64):
                for number in numbers:
                    if number in SIGNALS:
                        signal_below(inside, number)
            scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watched, tasks.cancel_scope)
                end = await ticket.run(streams)
                tasks.cancel_scope.cancel()
            if ticket.place and (place := _said(given)):
                self._tickets.note_end(ticket.place, place)
        finally:
            if ticket.place:
                os.close(given)
                os.close(written)
            # INVARIANT: recorded before the client hears of the end, and also when this is ended.
            await finish_in_thread(lambda: ticket.ended(end))
        return end


async def _received(peer: socket.socket, closing: ExitStack) -> tuple[bytes, list[int]]:
    """Return what a runner says, and its descriptors, which `closing` closes.

    Raises:
        TicketError: it is too long, or ends too early.
    """
    await anyio.wait_readable(peer)
    space = socket.CMSG_SPACE(DESCRIPTORS * 4)
    data, rights, flags, _ = peer.recvmsg(4, space, socket.MSG_CMSG_CLOEXEC)
    handles = list(_handles(rights))
    for one in handles:
        closing.callback(os.close, one)
    if flags & socket.MSG_CTRUNC:
        raise TicketError("expected four descriptors")
    while len(data) < 4:
        part = await _part(peer, 4 - len(data))
        if not part:
            raise TicketError("expected a ticket")
        data += part
    left = int.from_bytes(data, "big")
    if left > COMMAND_MAX:
        raise TicketError("the command is too long")
    message = bytearray()
    while len(message) < left:
        part = await _part(peer, left - len(message))
        if not part:
            raise TicketError("expected a ticket and a command")
        message += part
    return bytes(message), handles


def _handles(rights: list[tuple[int, int, bytes]]) -> Iterator[int]:
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found = array.array("i")
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
            yield from found


def _said(given: int) -> str:
    """Return the directory that a shell said at its end, or nothing."""
    os.set_blocking(given, False)
    with suppress(BlockingIOError):
        place = os.fsdecode(os.read(given, DIRECTORY_MAX)).removesuffix("\n")
        if place.startswith("/") and "\0" not in place and os.path.isdir(place):
            return place
    return ""


async def _part(peer: socket.socket, most: int) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(peer, most)
    except OSError:
        return b""


def signal_below(inside: list[int], number: int) -> None:
    """Send a signal to each process of a sandbox, whose first process this is, but that one."""
    for init in inside:
        with suppress(OSError):
            namespace = os.readlink(f"/proc/{init}/ns/pid_for_children")
            for pid in _below(init):
                with suppress(OSError):
                    handle = os.pidfd_open(pid)
                    try:
                        # The number may be another process's by now, unless the namespace is right.
                        if os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                            signal.pidfd_send_signal(handle, number)
                    finally:
                        os.close(handle)


def _below(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        for file in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(OSError):
                children = [int(one) for one in file.read_text().split()]
                yield from children
                waiting += children
