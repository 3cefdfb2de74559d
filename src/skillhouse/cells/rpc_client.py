"""Asks a JSON-RPC server over HTTP: an executor in a container, or from there the core."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import SocketStream

from skillhouse.cells.cell import Capabilities, HostCalls, timeout_text
from skillhouse.cells.rpc import (
    FRAME_BYTES,
    UNAVAILABLE,
    RpcError,
    RpcResponse,
    message,
    packed,
    parse,
    request_value,
)
from skillhouse.cells.serving import BATCH

CONNECT_SECONDS = 5.0
HEAD_BYTES = 16_384
CHUNK = 65_536
_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
SLACK_SECONDS = 35.0
"""Beyond the call's own time, for the way there and back, a cell's start and a wait for one."""
LOG_LINES = 100
"""Lines of a call's own log that are sent on."""
LINE_MAX = 1_000


class NoAnswerError(RpcError):
    """The server cannot be asked; `is_sent` says whether it may have begun with what was asked."""

    def __init__(self, message: str, *, is_sent: bool) -> None:
        super().__init__(UNAVAILABLE, message)
        self.is_sent = is_sent


class RpcClient:
    """One server; each request is a connection of its own."""

    def __init__(self, url: str, token: str) -> None:
        """Ask the server at `url` (http://HOST[:PORT]/rpc), whose bearer token is `token`.

        The operator names both: this reaches where `net` would not, as a container's network.

        Raises:
            ValueError: the address is no such one.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.query or parts.username:
            # What was written may hold a password, so it is not repeated.
            raise ValueError("expected an address as http://HOST:PORT/rpc")
        self._host = parts.hostname
        self._port = parts.port or 80
        self._path = parts.path or "/rpc"
        self._token = token
        self._numbers = itertools.count(1)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the result of a request.

        Raises:
            RpcError: the server's own; UNAVAILABLE, it cannot be reached or answers otherwise.
        """
        number = next(self._numbers)
        data = await self._posted(packed(request_value(method, dict(params), id=number)))
        answer = message(parse(data))
        if not isinstance(answer, RpcResponse) or answer.id != number:
            raise RpcError(UNAVAILABLE, f"the server at {self._host} answered something else")
        if answer.error is not None:
            raise answer.error
        return answer.result

    async def tell(self, method: str, told: Sequence[Mapping[str, Any]]) -> None:
        """Send notifications, each with its params; nobody answers to them.

        Raises:
            RpcError: UNAVAILABLE, the server cannot be reached.
        """
        for start in range(0, len(told), BATCH):
            part = told[start : start + BATCH]
            await self._posted(packed([request_value(method, dict(params)) for params in part]))

    async def _posted(self, body: bytes) -> bytes:
        place = f"{self._host}:{self._port}"
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await anyio.connect_tcp(self._host, self._port)
        except (OSError, TimeoutError) as error:
            said = f"nobody answers at {place}: {type(error.__cause__ or error).__name__}"
            raise NoAnswerError(said, is_sent=False) from error
        try:
            status, data = await self._post(stream, body)
        except (OSError, h11.ProtocolError, TimeoutError, *_BROKEN) as error:
            said = f"the server at {place} did not answer: {type(error).__name__}"
            raise NoAnswerError(said, is_sent=True) from error
        if status == 401:
            raise NoAnswerError(f"the server at {place} does not take our token", is_sent=False)
        if status not in (200, 204):
            said = f"the server at {place} answered with status {status}"
            raise NoAnswerError(said, is_sent=status == 0)
        return data

    async def _post(self, stream: SocketStream, body: bytes) -> tuple[int, bytes]:
        link = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        headers = [
            ("Host", f"{self._host}:{self._port}"),
            ("Authorization", f"Bearer {self._token}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        async with stream:
            request = h11.Request(method="POST", target=self._path, headers=headers)
            data = (link.send(request) or b"") + (link.send(h11.Data(data=body)) or b"")
            # A server that refuses early answers before it has read all.
            with contextlib.suppress(anyio.BrokenResourceError):
                await stream.send(data + (link.send(h11.EndOfMessage()) or b""))
            return await self._answer(link, stream)

    async def _answer(self, link: h11.Connection, stream: Any) -> tuple[int, bytes]:
        status, found = 0, bytearray()
        while True:
            event = link.next_event()
            if event is h11.NEED_DATA:
                try:
                    link.receive_data(await stream.receive(CHUNK))
                except anyio.EndOfStream:
                    link.receive_data(b"")
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                found += event.data
                if len(found) > FRAME_BYTES:
                    raise OSError("the answer is too long")
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return status, bytes(found)


class RemoteHost:
    """What a call in a container asks of the core, by the capability that it was given."""

    def __init__(self, client: RpcClient, capability: str) -> None:
        self._client = client
        self._capability = capability
        self._lines: list[str] = []

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._mapping("core.fetch", request)

    async def sign(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._mapping("core.sign", request)

    async def read_file(self, path: str) -> str:
        content = (await self._mapping("core.readFile", {"path": path})).get("content")
        if not isinstance(content, str):
            raise RpcError(UNAVAILABLE, "the core answered something else")
        return content

    def log(self, text: str) -> None:
        """Keep a line until the call ends: nobody waits for it."""
        if len(self._lines) < LOG_LINES:
            self._lines.append(text[:LINE_MAX])

    def progress(self, fraction: float, text: str) -> None:
        """Stays in the container: the core tells nobody of it yet."""

    async def ended(self) -> None:
        """Send the lines of the call's log to the core, which keeps them; losing them is no fault
        of the call."""
        told = [{"text": line, "capability": self._capability} for line in self._lines]
        with contextlib.suppress(RpcError):
            await self._client.tell("core.log", told)

    async def _mapping(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        found = await self._client.ask(method, {**params, "capability": self._capability})
        if not isinstance(found, dict):
            raise RpcError(UNAVAILABLE, "the core answered something else")
        return found


class RemoteExecutor:
    """Runs tools in a container, whose executor asks the core back (S002-8 to 12)."""

    def __init__(self, client: RpcClient, capabilities: Capabilities) -> None:
        """Use the executor behind `client`.

        Args:
            capabilities: Those that the core's own `core_methods` serves.
        """
        self._client = client
        self._capabilities = capabilities

    async def execute(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout: float,  # noqa: ASYNC109 - a result tells of it.
        host: HostCalls,
        **told: Any,
    ) -> Mapping[str, Any]:
        """Return the ToolResult of one call; see `Executor.execute`.

        Args:
            tool: Its name on the wire, `skill:tool`.
            told: More of `CallContext`.

        Raises:
            NoAnswerError: the container is not there, or ended before it answered.
            RpcError: the container refused.
        """
        with self._capabilities.of(host) as token:
            context = {**told, "meta": dict(meta), "capability": token}
            params = {"tool": tool, "args": dict(arguments), "context": context}
            with anyio.move_on_after(timeout + SLACK_SECONDS):
                found = await self._client.ask("tool.execute", params)
                if not isinstance(found, dict) or "success" not in found:
                    raise RpcError(UNAVAILABLE, "the executor answered something else")
                return found
        return {"success": False, "error": timeout_text(timeout)}
