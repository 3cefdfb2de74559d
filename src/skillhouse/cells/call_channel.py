"""One call's conversation with the code that runs it, over a socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from skillhouse.cells.cell import Capabilities, HostCalls, Kind, timeout_text
from skillhouse.cells.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RESOURCE_LIMIT,
    Frames,
    RpcError,
    RpcRequest,
    RpcResponse,
    error_value,
    framed,
    message,
    parse,
    request_value,
    result_value,
)
from skillhouse.floor import SkillhouseError
from skillhouse.sandbox.profile import OUTPUT_BYTES

CHUNK = 65_536
MESSAGES = 10_000
"""Most messages of one call: each costs the core some 50 µs."""
BURST = 256
"""Messages and pieces of them that are taken as fast as they come; more wait for other work."""
TURN = 16
"""Messages and pieces that are taken in one go, in about a millisecond."""
PAUSE_SECONDS = 0.004
"""Pause after each TURN beyond the BURST: a call that floods gets a quarter of the core's time."""
ASKED_AT_ONCE = 16
"""Most requests of one call that the core works on at one time."""


class GoneError(SkillhouseError):
    """The other end is closed before it answered."""


class CallChannel:
    """A request to the cell, its answer, and what the skill asks meanwhile."""

    def __init__(
        self, link: socket.socket, *, capabilities: Capabilities, token: str, number: str
    ) -> None:
        """Hold the conversation over `link`, which does not block and which the caller closes.

        Args:
            number: The id of our request, which no other call has.
        """
        self._link = link
        self._capabilities = capabilities
        self._token = token
        self._number = number
        self._frames = Frames()
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._messages = 0
        self._steps = 0
        self._rest = b""

    def begin(self, method: str, params: Mapping[str, Any]) -> None:
        """Send what the socket takes at once of our request, so that it is there from the start.

        Raises:
            RpcError: INTERNAL_ERROR, the parameters are no JSON or too long.
        """
        data = framed(request_value(method, params, id=self._number))
        sent = 0
        with contextlib.suppress(OSError):
            sent = self._link.send(data)
        self._rest = data[sent:]

    async def answer(self) -> RpcResponse:
        """Return the answer to our request.

        Raises:
            GoneError: there will be none.
            RpcError: what came is no JSON-RPC, or more than a call may send.
        """
        try:
            if self._rest:
                self._do(self._send(self._rest))
            return await self._attend()
        finally:
            # What it still asks for is asked by a call that has ended.
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait(tasks)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self) -> RpcResponse:
        while True:
            await self._give_way()
            frame = self._frames.next()
            if frame is None:
                self._frames.feed(await self._chunk())
                continue
            self._messages += 1
            if self._messages > MESSAGES:
                raise RpcError(RESOURCE_LIMIT, f"expected at most {MESSAGES} messages of one call")
            got = message(parse(frame))
            if isinstance(got, RpcResponse):
                return self._checked(got)
            self._take(got)

    async def _give_way(self) -> None:
        """Let others come to a turn: what is there already is read without waiting."""
        self._steps += 1
        if self._steps % TURN == 0:
            await asyncio.sleep(PAUSE_SECONDS if self._steps > BURST else 0)

    async def _chunk(self) -> bytes:
        try:
            data = await self._loop.sock_recv(self._link, CHUNK)
        except OSError as error:
            raise GoneError("the cell closed the connection") from error
        if not data:
            raise GoneError("the cell closed the connection")
        return data

    def _checked(self, answer: RpcResponse) -> RpcResponse:
        if answer.id != self._number:
            raise RpcError(INVALID_REQUEST, "an answer to a request that was not made")
        with contextlib.suppress(BlockingIOError, OSError):
            self._frames.feed(self._link.recv(CHUNK))
        if not self._frames.is_empty:
            raise RpcError(INVALID_REQUEST, "something came after the answer")
        return answer

    def _take(self, asked: RpcRequest) -> None:
        if asked.is_notification:
            # Nobody hears of errors in notifications (JSON-RPC 2.0, 4.1).
            with contextlib.suppress(RpcError):
                tell(self._host(asked), asked)
        elif len(self._tasks) >= ASKED_AT_ONCE:
            # Not one more task: it does not read our answers, or asks faster than it may.
            raise RpcError(RESOURCE_LIMIT, f"expected at most {ASKED_AT_ONCE} requests at once")
        else:
            self._do(self._answer(asked))

    def _host(self, asked: RpcRequest) -> HostCalls:
        if not isinstance(asked.params, dict):
            raise RpcError(INVALID_PARAMS, "expected an object as params")
        return self._capabilities.host(asked.params.get("capability"), expected=self._token)

    async def _answer(self, asked: RpcRequest) -> None:
        try:
            data = framed(result_value(asked.id, await answered(self._host(asked), asked)))
        except RpcError as error:
            data = framed(error_value(asked.id, error))
        except Exception:  # noqa: BLE001 - a process edge; the text could tell about the host.
            failure = RpcError(INTERNAL_ERROR, "the core could not do it")
            data = framed(error_value(asked.id, failure))
        await self._send(data)

    async def _send(self, data: bytes) -> None:
        """Send; that the other end is gone is met where its answer is awaited."""
        async with self._lock:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._link, data)


async def answered(host: HostCalls, asked: RpcRequest) -> Any:
    """Return what the core answers to a request of a skill.

    Raises:
        RpcError: there is no such method, or its parameters are none.
    """
    params = {name: value for name, value in asked.params.items() if name != "capability"}
    if asked.method == "core.fetch":
        return dict(await host.fetch(_fetch_params(params)))
    if asked.method == "core.sign":
        # As the seed sends it, {type, data}; or the whole request in one.
        request = params.get("request", params)
        if not isinstance(request, dict):
            raise RpcError(INVALID_PARAMS, "expected an object as request")
        return dict(await host.sign(request))
    if asked.method == "core.readFile":
        path = params.get("path")
        if not isinstance(path, str) or len(params) != 1:
            raise RpcError(INVALID_PARAMS, "expected {path}, a text")
        return {"content": await host.read_file(path)}
    raise RpcError(METHOD_NOT_FOUND, f"unknown method `{asked.method[:40]}`")


def _fetch_params(params: Mapping[str, Any]) -> Mapping[str, Any]:
    headers = params.get("headers", {})
    texts = [params.get(name, "") for name in ("url", "method", "body")]
    is_right = (
        not params.keys() - {"url", "method", "headers", "body"}
        and "url" in params
        and isinstance(headers, dict)
        and all(isinstance(text, str) for text in (*texts, *headers.values()))
    )
    if not is_right:
        raise RpcError(INVALID_PARAMS, "expected {url, method?, headers?, body?}, all texts")
    return params


def tell(host: HostCalls, asked: RpcRequest) -> None:
    """Pass on a notification of a skill; one that is none of ours is passed over."""
    text, fraction = asked.params.get("text", ""), asked.params.get("fraction")
    if not isinstance(text, str):
        return
    if asked.method == "core.log":
        host.log(text)
    elif (
        asked.method == "core.progress"
        and isinstance(fraction, int | float)
        and math.isfinite(fraction)
    ):
        host.progress(min(1.0, max(0.0, float(fraction))), text)


class CellOutput:
    """The end of what a call prints, read from a pipe; too much of it ends the conversation."""

    def __init__(
        self, descriptor: int, link: socket.socket, *, max_bytes: int = OUTPUT_BYTES
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._link = link
        self._left = max_bytes
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    @property
    def is_over(self) -> bool:
        """Tell whether there was too much."""
        return self._left <= 0

    def _read(self) -> None:
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._descriptor, CHUNK)
            if not chunk:
                self._loop.remove_reader(self._descriptor)
        self._left -= len(chunk)
        self._kept += chunk
        if self.is_over:
            self._loop.remove_reader(self._descriptor)
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)

    def tail(self, max_bytes: int) -> str:
        """Return the end of it, with what can be read at once."""
        self._read()
        return bytes(self._kept[-max_bytes:]).decode("utf-8", "replace")

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """What the conversation alone tells."""

    kind: Kind
    value: Any = None
    error: str = ""


async def attempt(dialogue: CallChannel, *, seconds: float) -> CallOutcome:
    """Wait for the answer, and return what came of it; it raises nothing."""
    with anyio.move_on_after(seconds):
        return await _answered(dialogue)
    return CallOutcome(kind="timeout", error=timeout_text(seconds))


async def _answered(dialogue: CallChannel) -> CallOutcome:
    try:
        answer = await dialogue.answer()
    except GoneError:
        return CallOutcome(kind="crashed")
    except RpcError as error:
        kind: Kind = "resource-limit" if error.code == RESOURCE_LIMIT else "protocol"
        return CallOutcome(kind=kind, error=f"the skill broke the protocol: {error}")
    if answer.error is None:
        return CallOutcome(kind="ok", value=answer.result)
    kind = "resource-limit" if answer.error.code == RESOURCE_LIMIT else "error"
    return CallOutcome(kind=kind, error=str(answer.error))
