"""The judge that stays: answers hooks over a Unix socket, until none has come for a while."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from skillhouse.floor.paths import unix_address
from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks.judge import HookAnswer, HookJudge, HookRequest
from skillhouse.frontends.hooks.judge_client import EVENT_MAX, SOCKET
from skillhouse.frontends.hooks.run_server import RunServer
from skillhouse.frontends.hooks.tickets import Tickets, ancestors

IDLE_SECONDS = 15 * 60
"""How long it stays without an event."""
LOOK_SECONDS = 5.0
RECEIVE_SECONDS = 10.0
"""How long one event may take to arrive."""
HEAD_MAX = 64 * 1024
PARTS = 5
"""Of the head of a request: client, mode, moment, directory, project."""


def request_of(data: bytes) -> HookRequest | None:
    """Return the request that a hook's client sent; None for anything else."""
    parts = data.split(b"\0", PARTS)
    if len(parts) != PARTS + 1 or sum(map(len, parts[:PARTS])) > HEAD_MAX:
        return None
    client, mode, moment, directory, project = map(os.fsdecode, parts[:PARTS])
    return HookRequest(
        client=client,
        mode=mode,
        moment=moment,
        directory=directory,
        project=project,
        event=parts[PARTS],
    )


class JudgeServer:
    """Serves one directory."""

    def __init__(
        self,
        directory: Path,
        judge: HookJudge,
        *,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._judge = judge
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._heard = clock()
        self._busy = 0
        self._judge.sandboxed.tickets = tickets = Tickets()
        self._runs = RunServer(directory, tickets)

    async def serve(self) -> None:
        """Serve until nothing came for long; the caller holds the lock of the directory."""
        path = self._directory / os.fsdecode(SOCKET)
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with unix_address(path) as address:
                listener.bind(address)
            path.chmod(0o600)
            server = await asyncio.start_unix_server(self._connected, sock=listener, limit=1 << 20)
            self._judge.sweep()
            mine = path.stat().st_ino
            running = asyncio.create_task(self._runs.serve())
            async with server:
                while (
                    self._busy
                    or self._runs.is_busy
                    or self._clock() - self._heard < self._idle_seconds
                ):
                    await asyncio.sleep(min(LOOK_SECONDS, self._idle_seconds))
                    if not _is_there(path, mine):
                        # No hook finds it any more.
                        break
            running.cancel()
            if _is_there(path, mine):
                path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        self._heard = self._clock()
        try:
            with suppress(OSError, TimeoutError):
                if _is_own_user(writer.get_extra_info("socket")):
                    async with asyncio.timeout(RECEIVE_SECONDS):
                        data = await _all(reader)
                    request = request_of(data)
                    answer = HookAnswer(code=2, error="skillhouse: no request of a hook\n")
                    if request is not None:
                        if request.mode != "watch":
                            pid, *_ = _peer_of(writer.get_extra_info("socket"))
                            request = replace(request, above=ancestors(pid))
                        answer = await self._judge.answer(request)
                    writer.write(answer.data())
                    await writer.drain()
        finally:
            self._busy -= 1
            self._heard = self._clock()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _all(reader: asyncio.StreamReader) -> bytes:
    parts, size = [], 0
    while part := await reader.read(1 << 16):
        size += len(part)
        if size > EVENT_MAX + HEAD_MAX:
            raise TimeoutError
        parts.append(part)
    return b"".join(parts)


def _is_own_user(peer: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        # The directory is closed to others; there is no more that this system says.
        return True
    return _peer_of(peer)[1] == os.geteuid()


def _peer_of(peer: socket.socket) -> tuple[int, int, int]:
    """Return process, user and group of who connected."""
    pid, user, group = struct.unpack(
        "3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    return pid, user, group


def _is_there(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False
