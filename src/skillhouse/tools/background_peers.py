"""Asks the other processes of a state about their commands in the background.

Each process that has some listens on a Unix socket in one directory that is its user's alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from skillhouse.floor.paths import unix_address

SUFFIX = ".socket"
MESSAGE_MAX = 1 << 20
"""Bytes of a question or an answer."""
ANSWER_SECONDS = 100.0
"""Longest wait for an answer, which may itself wait for output."""

_GONE = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.DelimiterNotFound,
)

logger = logging.getLogger(__name__)

Answer = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Answers a question; None where it is about a command of another process."""


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
            with anyio.fail_after(ANSWER_SECONDS):
                await stream.send(json.dumps(question).encode() + b"\n")
                received = BufferedByteReceiveStream(stream)
                line = await received.receive_until(b"\n", MESSAGE_MAX)
                said: Mapping[str, Any] | None = json.loads(line)
                return said
    return None
