"""Serves one client on stdio, with the SDK, until either side ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio import from_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream, TaskStatus
from anyio.lowlevel import EventLoopToken, current_token
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from skillhouse.frontends.mcp.approval_bridge import printable
from skillhouse.frontends.mcp.closed_pipe import ClosedPipeWatch
from skillhouse.frontends.mcp.handshake import (
    META,
    FastHandshake,
    Incoming,
    MessageReader,
    is_plain_ping,
    write_all,
)
from skillhouse.frontends.mcp.messages import RefusedMessage, refused
from skillhouse.frontends.mcp.server import SkillhouseServer

FLUSH_SECONDS = 0.2
"""How long answers may take to reach a client after the end was requested."""

GONE = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.RunFinishedError,
    CancelledError,
)
"""What a thread gets when serving has ended."""


Outgoing = SessionMessage | RefusedMessage


async def serve_wire(
    server: SkillhouseServer,
    reader: MessageReader,
    fast_handshake: FastHandshake,
    watch: ClosedPipeWatch,
    sink: int,
) -> None:
    """Serve until the client closes a pipe, or SIGINT or SIGTERM.

    Either way running calls are cancelled, and the gate records their outcome. The reader's fast
    handshake has ended; `sink` is the descriptor for the answers.
    """
    incoming, requests = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    answers, outgoing = anyio.create_memory_object_stream[Outgoing](0)
    errors = answers.clone()
    serving = anyio.CancelScope()
    token = current_token()
    writer = Writer(sink, outgoing, serving, token)
    opening = OpeningGate(lambda method: server.sdk.get_request_handler(method) is not None)
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signals, serving, outgoing)

        def end() -> None:
            with suppress(*GONE):
                from_thread.run_sync(tasks.start_soon, _end, serving, outgoing, token=token)

        watch.serving(end, server.is_idle)
        for message in fast_handshake.handshake:
            opening.answer(message)
            incoming.send_nowait(message_of(message))
        reader.hand_over(partial(deliver, incoming, errors, opening, token))
        writer.start(fast_handshake.request_id)
        with serving:
            await server.sdk.run(requests, answers, server.options())
        errors.close()
        with anyio.move_on_after(FLUSH_SECONDS):
            await writer.flushed.wait()
        tasks.cancel_scope.cancel()
    watch.over()


async def _end_on_signals(
    serving: anyio.CancelScope,
    outgoing: ObjectReceiveStream[Outgoing],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    if os.name != "posix":
        # Ctrl-C raises KeyboardInterrupt there, which ends everything as well.
        task_status.started()
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            await _end(serving, outgoing)


async def _end(serving: anyio.CancelScope, outgoing: ObjectReceiveStream[Outgoing]) -> None:
    serving.cancel()
    # A client that does not read cannot hold up the end.
    await anyio.sleep(FLUSH_SECONDS)
    await outgoing.aclose()


class OpeningGate:
    """Answers what comes before the handshake, which must not decide the revision for the SDK."""

    def __init__(self, is_served: Callable[[str], bool]) -> None:
        """Store how to find out whether a method has a handler."""
        self._is_served = is_served
        self._is_open = False

    def answer(self, message: Mapping[str, Any]) -> SessionMessage | RefusedMessage | None:
        """Return the answer to a request that comes too early; None for any other message."""
        method = message.get("method")
        if self._is_open or method is None or "id" not in message:
            return None
        if method == "initialize" or _has_envelope(message):
            self._is_open = True
            return None
        if is_plain_ping(message):
            pong = types.JSONRPCResponse(jsonrpc="2.0", id=message["id"], result={})
            return SessionMessage(pong)
        if method != "server/discover" and self._is_served(method):
            return refused(message, f"`{method}` before `initialize`: send that first")
        reason = f"no method `{printable(method)}` before `initialize`"
        return refused(message, reason, code=types.METHOD_NOT_FOUND)


def _has_envelope(message: Mapping[str, Any]) -> bool:
    match message:
        case {"params": {"_meta": {**meta}}}:
            return f"{META}protocolVersion" in meta
    return False


def deliver(
    incoming: ObjectSendStream[SessionMessage | Exception],
    errors: ObjectSendStream[Outgoing],
    opening: OpeningGate,
    token: EventLoopToken,
    message: Incoming,
) -> None:
    """Pass a message to the event loop, or answer it if none is expected; None is the end.

    Runs in the reader's thread.
    """
    with suppress(*GONE):
        if message is None:
            from_thread.run(incoming.aclose, token=token)
            return
        answer = message if isinstance(message, RefusedMessage) else opening.answer(message)
        if answer is None and not isinstance(message, RefusedMessage):
            try:
                passed = message_of(message)
            except ValidationError:
                answer = refused(message, "expected a request, a notification or a response")
            else:
                from_thread.run(incoming.send, passed, token=token)
        if answer is not None:
            from_thread.run(errors.send, answer, token=token)


class Writer:
    """Writes answers, one per line, in a thread of its own that is never joined."""

    def __init__(
        self,
        sink: int,
        outgoing: ObjectReceiveStream[Outgoing],
        serving: anyio.CancelScope,
        token: EventLoopToken,
    ) -> None:
        self._sink = sink
        self._outgoing = outgoing
        self._serving = serving
        self._token = token
        self.flushed = anyio.Event()
        """Set when all answers are written."""

    def start(self, answered: int | str | None) -> None:
        """Start; the first answer to `answered` is dropped: the fast handshake sent it."""
        threading.Thread(target=self._run, args=(answered,), name="mcp-writer", daemon=True).start()

    def _run(self, answered: int | str | None) -> None:
        with suppress(*GONE):
            try:
                while True:
                    answer = from_thread.run(self._outgoing.receive, token=self._token)
                    if isinstance(answer, RefusedMessage):
                        lines = answer.answers()
                    elif answered is not None and _answers(answer.message, answered):
                        answered = None
                        continue
                    else:
                        text = answer.message.model_dump_json(by_alias=True, exclude_unset=True)
                        lines = [text.encode()]
                    write_all(self._sink, b"".join(line + b"\n" for line in lines))
            except anyio.EndOfStream:
                from_thread.run_sync(self.flushed.set, token=self._token)
            except OSError:
                # The client closed its end, so nothing waits for the running calls.
                from_thread.run_sync(self._serving.cancel, token=self._token)
                from_thread.run(self._outgoing.aclose, token=self._token)
                from_thread.run_sync(self.flushed.set, token=self._token)


def _answers(message: types.JSONRPCMessage, request_id: int | str) -> bool:
    return (
        isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id == request_id
    )


def message_of(message: Mapping[str, Any]) -> SessionMessage:
    """Return a message that was read, for the SDK; raises ValidationError."""
    return SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False))
