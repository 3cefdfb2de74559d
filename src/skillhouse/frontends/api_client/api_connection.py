"""Requests over HTTP/1.1 with h11: each has a connection of its own, and is bounded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import h11
from anyio.abc import ByteStream
from msgspec import Struct

from skillhouse.floor import SkillhouseError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 120.0
"""A call may wait for a person; `ApiConnection` takes another bound."""
ANSWER_MAX = 64 * 1024 * 1024
"""Bytes of an answer."""
EVENT_MAX = 1_048_576
CHUNK = 65_536


class ApiClientError(SkillhouseError):
    """The service refused, or did not answer; `code` is that of the problem."""

    def __init__(self, status: int, code: str, message: str, problem: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        """0 where there was no answer."""
        self.code = code
        self.problem = problem


class HttpAnswer(Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class ApiEvent(Struct, frozen=True, kw_only=True):
    id: str
    """For `last_id`, to go on where a connection ended."""
    kind: str
    data: Any


class ApiConnection:
    """Where a service is, and the key for it."""

    def __init__(self, base_url: str, token: str, *, seconds: float = ANSWER_SECONDS) -> None:
        """Take an address such as http://127.0.0.1:8600, and a token.

        Raises:
            ValueError: the address is no http or https address of a service.
        """
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            # It may hold a token, so it is not shown.
            raise ValueError("expected an address such as http://127.0.0.1:8600")
        self.base_url = f"{parts.scheme}://{parts.netloc}"
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._is_secure else 80)
        self._host_header = parts.netloc
        self._token = token
        self._seconds = seconds

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Return an answer; ApiClientError for a problem, or where none comes."""
        try:
            with anyio.fail_after(self._seconds):
                async with self._exchange(method, path, query, body, headers) as (head, rest):
                    data = bytearray()
                    async for part in rest:
                        data += part
                        if len(data) > ANSWER_MAX:
                            raise OSError(f"the answer has more than {ANSWER_MAX} bytes")
        except (OSError, TimeoutError, h11.ProtocolError, *_BROKEN) as error:
            place = f"{self._host}:{self._port}"
            message = f"no answer from {place}: {type(error).__name__}"
            raise ApiClientError(0, "no-answer", message, {}) from error
        answer = HttpAnswer(status=head.status_code, headers=_headers(head), body=bytes(data))
        if answer.status >= 400:
            raise _problem(answer)
        return answer

    async def events(self, path: str, last_id: str = "") -> AsyncIterator[ApiEvent]:
        """Yield events until the service ends the stream; the caller goes on with the last id."""
        headers = {"last-event-id": last_id} if last_id else {}
        try:
            async with self._exchange("GET", path, None, None, headers) as (head, rest):
                if head.status_code != 200:
                    body = b"".join([part async for part in rest])
                    raise _problem(
                        HttpAnswer(status=head.status_code, headers=_headers(head), body=body)
                    )
                async for event in _parsed(rest):
                    yield event
        except (OSError, h11.ProtocolError, *_BROKEN) as error:
            raise ApiClientError(0, "no-answer", "the stream has ended", {}) from error

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> AsyncIterator[tuple[h11.Response, AsyncIterator[bytes]]]:
        target = f"{path}?{urlencode(query)}" if query else path
        link = h11.Connection(h11.CLIENT)
        content = b"" if body is None else json.dumps(body).encode()
        with anyio.fail_after(CONNECT_SECONDS):
            stream: ByteStream
            if self._is_secure:
                stream = await anyio.connect_tcp(self._host, self._port, tls=True)
            else:
                stream = await anyio.connect_tcp(self._host, self._port)
        async with stream:
            given = [
                ("Host", self._host_header),
                ("Authorization", f"Bearer {self._token}"),
                ("Connection", "close"),
                *(headers or {}).items(),
            ]
            if body is not None:
                given += [
                    ("Content-Type", "application/json"),
                    ("Content-Length", str(len(content))),
                ]
            parts = (
                h11.Request(method=method, target=target, headers=given),
                h11.Data(data=content),
                h11.EndOfMessage(),
            )
            await stream.send(b"".join(link.send(part) or b"" for part in parts))
            head = await _event(link, stream)
            if not isinstance(head, h11.Response):
                raise h11.RemoteProtocolError("expected an answer")
            yield head, _body(link, stream)


_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


async def _event(link: h11.Connection, stream: ByteStream) -> h11.Event:
    while True:
        event = link.next_event()
        if isinstance(event, h11.Event):
            return event
        try:
            link.receive_data(await stream.receive(CHUNK))
        except anyio.EndOfStream:
            link.receive_data(b"")


async def _body(link: h11.Connection, stream: ByteStream) -> AsyncIterator[bytes]:
    while isinstance(event := await _event(link, stream), h11.Data):
        yield bytes(event.data)


async def _parsed(parts: AsyncIterator[bytes]) -> AsyncIterator[ApiEvent]:
    """Yield the events of a stream (HTML Living Standard, 9.2.6), as far as ours use it."""
    waiting = b""
    async for part in parts:
        waiting += part
        while b"\n\n" in waiting:
            block, _, waiting = waiting.partition(b"\n\n")
            fields = dict(
                line.split(": ", 1) for line in block.decode().split("\n") if ": " in line
            )
            if "event" in fields:
                data = json.loads(fields.get("data", "null"))
                yield ApiEvent(id=fields.get("id", ""), kind=fields["event"], data=data)
        if len(waiting) > EVENT_MAX:
            raise OSError("an event is too long")


def _headers(head: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}


def _problem(answer: HttpAnswer) -> ApiClientError:
    try:
        value = answer.json()
    except ValueError:
        value = None
    problem = value if isinstance(value, dict) else {}
    detail = problem.get("detail") or f"status {answer.status}"
    hint = problem.get("hint") or problem.get("mend")
    message = f"{detail}; {hint}" if hint else str(detail)
    return ApiClientError(answer.status, str(problem.get("code", "")), message, problem)
