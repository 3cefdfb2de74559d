"""Exchanges the messages of one call with the code that runs it, over its own socket."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import socket
from binascii import a2b_base64
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
from msgspec import Struct

from skillhouse.extensions.cells.cell import CELL_OUTPUT_BYTES, Capabilities, timeout_text
from skillhouse.extensions.cells.rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    Frames,
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
from skillhouse.floor.call_clock import CallClock
from skillhouse.floor.regex import regex
from skillhouse.sandbox.code_call import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    RESOURCE_LIMIT,
    HostCalls,
    Kind,
    OutputPart,
    RpcError,
)

CHUNK = 65_536
MESSAGES = 10_000
"""Most messages of one call; the core spends about 50 µs on each."""
BURST = 256
"""Reads of one call that are done without a pause; later ones yield to other work."""
TURN = 16
"""Reads between two pauses, about a millisecond."""
PAUSE_SECONDS = 0.004
"""Pause after each TURN beyond the BURST, so that a flood takes a quarter of the core's time."""
ASKED_AT_ONCE = 16
"""Requests of one call that are answered at once; its cell sends no more, so others wait there."""
ASKED_MAX = 64
"""Most open requests of one call: cancelled ones may take a moment to end. No cell of ours sends
more than this."""
CANCEL = "core.cancel"
"""The notification that ends an open request, by its `id`; there is no answer then."""
CANCELS_MAX = 100
"""Cancellations of one call that are obeyed: each may withdraw a question that a person reads, and
a skill could put another in its place. Requests that are cancelled later end by themselves."""


_UNREACHED = regex(r"python|node [0-9]{1,3}\.[0-9]{1,4}\.[0-9]{1,4}", re.ASCII)


class GoneError(SkillhouseError):
    pass


class CallChannel:
    """One request to a cell, its answer, and the skill's own requests in between."""

    def __init__(
        self,
        link: socket.socket,
        *,
        capabilities: Capabilities,
        token: str,
        number: str,
        frames: Frames | None = None,
    ) -> None:
        """Use `link`, a non-blocking socket that the caller closes, for the request `number`.

        Args:
            frames: What has been read of it already.
        """
        self._link = link
        self._capabilities = capabilities
        self._token = token
        self._number = number
        self._frames = Frames() if frames is None else frames
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[Any, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)
        self._cancels_left = CANCELS_MAX
        self._messages = 0
        self._steps = 0
        self._rest = b""

    def begin(self, method: str, params: Mapping[str, Any]) -> None:
        """Send as much of our request as the socket takes without waiting."""
        data = framed(request_value(method, params, id=self._number))
        sent = 0
        with contextlib.suppress(OSError):
            sent = self._link.send(data)
        self._rest = data[sent:]

    async def answer(self) -> RpcResponse:
        """Return the answer to our request.

        Raises:
            GoneError: the cell closed the connection.
            RpcError: the cell sent something else than JSON-RPC, or more than a call may send.
        """
        try:
            if self._rest:
                self._start_task(self._send(self._rest))
            return await self._read_to_answer()
        finally:
            # The call has ended, so its open requests have too.
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait(tasks)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read_to_answer(self) -> RpcResponse:
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
                return self._check_answer(got)
            self._take_request(got)

    async def _give_way(self) -> None:
        # Reading what has already arrived never waits, so other tasks would starve.
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

    def _check_answer(self, answer: RpcResponse) -> RpcResponse:
        if answer.id != self._number:
            raise RpcError(INVALID_REQUEST, "an answer to a request that was not made")
        with contextlib.suppress(BlockingIOError, OSError):
            self._frames.feed(self._link.recv(CHUNK))
        if not self._frames.is_empty:
            raise RpcError(INVALID_REQUEST, "something came after the answer")
        return answer

    def _take_request(self, request: RpcRequest) -> None:
        if request.is_notification:
            # A notification has no reply, so its errors are dropped (JSON-RPC 2.0, 4.1).
            with contextlib.suppress(RpcError):
                host = self._host(request)
                if request.method == CANCEL:
                    self._cancel(request.params.get("id"))
                else:
                    take_notification(host, request)
        elif len(self._tasks) >= ASKED_MAX:
            # No further task: the cell does not read our answers, or sends requests too fast.
            raise RpcError(RESOURCE_LIMIT, f"expected at most {ASKED_MAX} requests at once")
        else:
            task = self._start_task(self._answer(request))
            self._asked.setdefault(request.id, task)

    def _cancel(self, number: object) -> None:
        # Only requests of this call are here, so an invented id ends nothing of another's.
        task = self._asked.pop(number, None) if isinstance(number, str | int) else None
        if task is not None and self._cancels_left:
            self._cancels_left -= 1
            task.cancel()

    def _host(self, request: RpcRequest) -> HostCalls:
        if not isinstance(request.params, dict):
            raise RpcError(INVALID_PARAMS, "expected an object as params")
        return self._capabilities.host(request.params.get("capability"), expected=self._token)

    async def _answer(self, request: RpcRequest) -> None:
        try:
            async with self._turns:
                result = await answer_request(self._host(request), request)
            data = framed(result_value(request.id, result))
        except RpcError as error:
            data = framed(error_value(request.id, error))
        except Exception:  # noqa: BLE001 - a process edge; the text could describe the host.
            failure = RpcError(INTERNAL_ERROR, "the core could not do it")
            data = framed(error_value(request.id, failure))
        # INVARIANT: from here on it cannot be cancelled, as half a message would end the call.
        self._asked.pop(request.id, None)
        await self._send(data)

    async def _send(self, data: bytes) -> None:
        # A closed connection is noticed where the answer is awaited.
        async with self._lock:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._link, data)


async def answer_request(host: HostCalls, asked: RpcRequest) -> Any:
    """Return the core's answer to a request of a skill; a bad one is an `RpcError`."""
    params = {name: value for name, value in asked.params.items() if name != "capability"}
    if asked.method == "core.fetch":
        return dict(await host.fetch(_fetch_params(params)))
    if asked.method == "core.sign":
        # {type, data} as in the published design, or the whole request in one.
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


def take_notification(host: HostCalls, notification: RpcRequest) -> None:
    """Pass on a notification of a skill; an unknown one is ignored."""
    if notification.method == "core.output":
        if (part := output_part(notification.params)) is not None:
            host.output(part)
        return
    text, fraction = notification.params.get("text", ""), notification.params.get("fraction")
    if not isinstance(text, str):
        return
    if notification.method == "core.log":
        host.log(text)
    elif (
        notification.method == "core.progress"
        and isinstance(fraction, int | float)
        and math.isfinite(fraction)
    ):
        host.progress(min(1.0, max(0.0, float(fraction))), text)


def output_part(params: Mapping[str, Any]) -> OutputPart | None:
    """Return a piece of a file from the params of `core.output`; None for what is none.

    >>> output_part({"name": "a.txt", "data": "aGk="})
    OutputPart(name='a.txt', data=b'hi', left_out='')
    """
    name, data, left_out = (params.get(key, "") for key in ("name", "data", "left_out"))
    if not (isinstance(name, str) and isinstance(data, str) and isinstance(left_out, str)):
        return None
    try:
        return OutputPart(name=name, data=a2b_base64(data, strict_mode=True), left_out=left_out)
    except ValueError:
        return OutputPart(name=name, left_out="its bytes are not base64")


class CellOutput:
    """The end of an output, read from a pipe; `exceeded` is called when there is too much of it."""

    def __init__(
        self, descriptor: int, exceeded: Callable[[], None], *, max_bytes: int = CELL_OUTPUT_BYTES
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._exceeded = exceeded
        self._left = max_bytes
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    @property
    def is_over(self) -> bool:
        return self._left <= 0

    def _read(self) -> None:
        if self._descriptor < 0:
            return
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._descriptor, CHUNK)
            if not chunk:
                self._loop.remove_reader(self._descriptor)
        self._left -= len(chunk)
        self._kept += chunk
        if self.is_over:
            self._loop.remove_reader(self._descriptor)
            self._exceeded()

    def tail(self, max_bytes: int) -> bytes:
        self._read()
        return bytes(self._kept[-max_bytes:])

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


class CallOutcome(Struct, frozen=True, kw_only=True):
    """What a cell says of one call."""

    kind: Kind
    value: Any = None
    error: str = ""
    frames: object = None
    """What the cell says of the places in its code; unchecked."""
    unreached: str = ""
    """What it says of a host that was not reached, where that is of the right form."""


async def attempt(channel: CallChannel, *, seconds: float) -> CallOutcome:
    """Wait for the answer and return how the call ended; it raises nothing."""
    with CallClock(seconds):
        return await _answered(channel)
    return CallOutcome(kind="timeout", error=timeout_text(seconds))


async def _answered(channel: CallChannel) -> CallOutcome:
    try:
        answer = await channel.answer()
    except GoneError:
        return CallOutcome(kind="crashed")
    except RpcError as error:
        kind: Kind = "resource-limit" if error.code == RESOURCE_LIMIT else "protocol"
        return CallOutcome(kind=kind, error=f"the skill broke the protocol: {error}")
    if answer.error is None:
        return CallOutcome(kind="ok", value=answer.result)
    kind = "resource-limit" if answer.error.code == RESOURCE_LIMIT else "error"
    said = answer.error.unreached
    unreached = said if isinstance(said, str) and _UNREACHED.fullmatch(said) else ""
    return CallOutcome(
        kind=kind, error=str(answer.error), frames=answer.error.frames, unreached=unreached
    )
