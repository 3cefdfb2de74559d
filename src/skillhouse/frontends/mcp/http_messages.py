"""Checks the messages of streamable HTTP before the SDK, and answers refused ones under their id.

The SDK answers what it refuses before parsing with the id `null`. The answer to a POST that holds
one request gets that request's id here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.handshake import is_plain_ping
from skillhouse.frontends.mcp.messages import (
    INVALID_REQUEST,
    MESSAGE_MAX,
    EnvelopeScan,
    RefusedMessage,
    read_message,
    refused,
    request_id,
    too_long,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SCANNED_MAX = 4 * MESSAGE_MAX
"""Bytes of a body that are read for its id; with more the connection ends without it."""
SMALL = 65_536
"""Bytes of a message that is read at once; a larger one in a thread, since it takes a while."""
REASON_MAX = 200
"""Characters of the SDK's reason."""
SESSION, VERSION = b"mcp-session-id", b"mcp-protocol-version"


class ClientLeftError(Exception):
    """The client left before its message was complete."""


class MessageFilter:
    """An ASGI application around the SDK's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._in_flight: set[tuple[bytes, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            message, body = await _read(receive)
        except ClientLeftError:
            return
        if isinstance(message, RefusedMessage):
            await _refuse(message, send, is_long=len(body) > MESSAGE_MAX)
            return
        headers = dict(scope["headers"])
        session = headers.get(SESSION, b"")
        if not session and VERSION not in headers and is_plain_ping(message):
            # Before `initialize` there is no session.
            pong = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
            await _send(json.dumps(pong).encode(), 200, send)
            return
        ids = request_id(message) if "method" in message else ()
        # The SDK keeps one stream for each id as text: with a second, the first would never end.
        keys = {(session, str(message["id"]))} if session and ids else set()
        if keys & self._in_flight:
            await _refuse(refused(message, "a request with this id is still running"), send)
            return
        self._in_flight |= keys
        try:
            await self._app(scope, _replayed(body, receive), _with_id(ids, send))
        finally:
            self._in_flight -= keys


async def _read(receive: Receive) -> tuple[Mapping[str, Any] | RefusedMessage, bytes]:
    """Return the message of a request, and its body, which is cut once it is too long."""
    body, size, scan = bytearray(), 0, None
    while True:
        part = await receive()
        if part["type"] != "http.request":
            raise ClientLeftError
        chunk: bytes = part.get("body", b"")
        size += len(chunk)
        if scan is not None:
            scan.feed(chunk)
        else:
            body += chunk
            if size > MESSAGE_MAX:
                scan = EnvelopeScan()
                scan.feed(bytes(body))
        if not part.get("more_body", False) or size > SCANNED_MAX:
            break
    data = bytes(body)
    if scan is not None:
        return too_long(scan), data
    if len(data) <= SMALL:
        return read_message(data), data
    return await in_thread(lambda: read_message(data)), data


def _replayed(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed


def _with_id(ids: tuple[str, ...], send: Send) -> Send:
    """Return a `send` that puts the request's id in an error of the SDK that has none."""
    held: list[Message] = []

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and ids and message["status"] >= 400:
            held.append(message)
            return
        if held and message["type"] == "http.response.body":
            start = held.pop()
            if message.get("more_body", False):
                await send(start)
            else:
                body = _identified(message.get("body", b""), start["status"], ids[0])
                headers = [pair for pair in start["headers"] if pair[0].lower() not in _OF_BODY]
                await send({**start, "headers": [*headers, *_headers(body)]})
                message = {**message, "body": body}
        await send(message)

    return sent


_OF_BODY = (b"content-type", b"content-length")


def _headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]


def _identified(body: bytes, status: int, given: str) -> bytes:
    """Return an error with the id of its request; a text or nothing becomes its message."""
    try:
        answer = json.loads(body)
    except ValueError:
        reason = body.decode(errors="replace")[:REASON_MAX] or HTTPStatus(status).phrase
        [answered] = RefusedMessage(code=INVALID_REQUEST, reason=reason, ids=(given,)).answers()
        return answered
    if not isinstance(answer, dict) or "error" not in answer or answer.get("id") is not None:
        return body
    return json.dumps({**answer, "id": json.loads(given)}).encode()


async def _refuse(message: RefusedMessage, send: Send, *, is_long: bool = False) -> None:
    answers = message.answers()
    if len(answers) > 1:
        # One body is one answer, and none of several ids is that of the whole.
        answers = RefusedMessage(code=message.code, reason=message.reason).answers()
    await _send(answers[0], 413 if is_long else 400, send)


async def _send(body: bytes, status: int, send: Send) -> None:
    await send({"type": "http.response.start", "status": status, "headers": _headers(body)})
    await send({"type": "http.response.body", "body": body})
