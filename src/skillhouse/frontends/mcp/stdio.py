"""Serves one client on stdio, with the SDK, until either side ends it."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial

import anyio
import mcp_types as types
from anyio import from_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream, TaskStatus
from anyio.lowlevel import EventLoopToken, current_token
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from skillhouse.frontends.mcp.handshake import MESSAGE_MAX, FastHandshake, MessageReader, write_all
from skillhouse.frontends.mcp.server import SkillhouseServer

FLUSH_SECONDS = 0.3
"""How long answers may take to reach a client after the end was requested."""

GONE = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.RunFinishedError,
    CancelledError,
)
"""What a thread gets when serving has ended."""


async def serve_wire(
    server: SkillhouseServer, reader: MessageReader, fast_handshake: FastHandshake, sink: int
) -> None:
    """Serve until the client closes a pipe, or SIGINT or SIGTERM.

    Either way running calls are cancelled, and the gate records their outcome. The reader's fast
    handshake has ended; `sink` is the descriptor for the answers.
    """
    incoming, requests = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    answers, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    errors = answers.clone()
    serving = anyio.CancelScope()
    token = current_token()
    writer = Writer(sink, outgoing, serving, token)
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signals, serving, outgoing)
        for line in fast_handshake.handshake:
            incoming.send_nowait(message_of(line))
        reader.hand_over(partial(deliver, incoming, errors, token))
        writer.start(fast_handshake.request_id)
        with serving:
            await server.sdk.run(requests, answers, server.options())
        errors.close()
        with anyio.move_on_after(FLUSH_SECONDS):
            await writer.flushed.wait()
        tasks.cancel_scope.cancel()


async def _end_on_signals(
    serving: anyio.CancelScope,
    outgoing: ObjectReceiveStream[SessionMessage],
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
            serving.cancel()
            # A client that does not read cannot hold up the end.
            await anyio.sleep(FLUSH_SECONDS)
            await outgoing.aclose()


def deliver(
    incoming: ObjectSendStream[SessionMessage | Exception],
    errors: ObjectSendStream[SessionMessage],
    token: EventLoopToken,
    line: bytes | None,
) -> None:
    """Pass a line to the event loop, or answer it if it is not a message; b"" is the end.

    Runs in the reader's thread.
    """
    with suppress(*GONE):
        if line == b"":
            from_thread.run(incoming.aclose, token=token)
            return
        message = parsed(line)
        if isinstance(message, SessionMessage):
            from_thread.run(incoming.send, message, token=token)
        else:
            error = types.JSONRPCError(jsonrpc="2.0", id=None, error=message)
            from_thread.run(errors.send, SessionMessage(error), token=token)


class Writer:
    """Writes answers, one per line, in a thread of its own that is never joined."""

    def __init__(
        self,
        sink: int,
        outgoing: ObjectReceiveStream[SessionMessage],
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
                    message = from_thread.run(self._outgoing.receive, token=self._token).message
                    if answered is not None and _answers(message, answered):
                        answered = None
                        continue
                    text = message.model_dump_json(by_alias=True, exclude_unset=True)
                    write_all(self._sink, f"{text}\n".encode())
            except anyio.EndOfStream:
                from_thread.run_sync(self.flushed.set, token=self._token)
            except OSError:
                # The client closed its end, so nothing waits for the running calls.
                from_thread.run_sync(self._serving.cancel, token=self._token)
                from_thread.run(self._outgoing.aclose, token=self._token)


def _answers(message: types.JSONRPCMessage, request_id: int | str) -> bool:
    return (
        isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id == request_id
    )


def message_of(line: bytes) -> SessionMessage:
    """Return a line as a message; raises ValidationError."""
    return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))


def parsed(line: bytes | None) -> SessionMessage | types.ErrorData:
    """Return a line as a message, or else the error to answer with."""
    if line is None:
        return types.ErrorData(
            code=types.INVALID_REQUEST, message=f"a message of more than {MESSAGE_MAX} bytes"
        )
    try:
        return message_of(line)
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":
            return types.ErrorData(code=types.PARSE_ERROR, message="a line that is not JSON")
        return types.ErrorData(
            code=types.INVALID_REQUEST, message="a line that is no JSON-RPC message"
        )
