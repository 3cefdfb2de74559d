"""Asks a JSON-RPC server over HTTP: an executor in a container, or from there the core."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio
import h11

from skillhouse.sandbox.cell import Capabilities, HostCalls, timeout_text
from skillhouse.sandbox.rpc import (
    FRAME_BYTES,
    UNAVAILABLE,
    Response,
    RpcError,
    message,
    packed,
    parse,
    request_value,
)

CONNECT_SECONDS = 5.0
HEAD_BYTES = 16_384
CHUNK = 65_536
SLACK_SECONDS = 5.0
"""Beyond the call's own time, for the way there and back and a cell's start."""


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
            raise ValueError(f"expected an address as http://HOST:PORT/rpc: {url}")
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
        body = packed(request_value(method, dict(params), id=number))
        try:
            status, data = await self._post(body)
        except (OSError, h11.ProtocolError, TimeoutError, anyio.EndOfStream) as error:
            said = f"the server at {self._host} did not answer: {type(error).__name__}"
            raise RpcError(UNAVAILABLE, said) from error
        if status != 200:
            raise RpcError(UNAVAILABLE, f"the server at {self._host} answered with status {status}")
        answer = message(parse(data))
        if not isinstance(answer, Response) or answer.id != number:
            raise RpcError(UNAVAILABLE, f"the server at {self._host} answered something else")
        if answer.error is not None:
            raise answer.error
        return answer.result

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        link = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        headers = [
            ("Host", f"{self._host}:{self._port}"),
            ("Authorization", f"Bearer {self._token}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        with anyio.fail_after(CONNECT_SECONDS):
            stream = await anyio.connect_tcp(self._host, self._port)
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
        """Stays in the container: nobody waits for it."""

    def progress(self, fraction: float, text: str) -> None:
        """Likewise."""

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
    ) -> Mapping[str, Any]:
        """Return the ToolResult of one call; see `Executor.execute`.

        Args:
            tool: Its name on the wire, `skill:tool`.

        Raises:
            RpcError: the container refused or is not there; the call may have had its effect.
        """
        with self._capabilities.of(host) as token:
            context = {"meta": dict(meta), "capability": token}
            params = {"tool": tool, "args": dict(arguments), "context": context}
            with anyio.move_on_after(timeout + SLACK_SECONDS):
                found = await self._client.ask("tool.execute", params)
                if not isinstance(found, dict) or not isinstance(found.get("success"), bool):
                    raise RpcError(UNAVAILABLE, "the executor answered something else")
                return found
        return {"success": False, "error": timeout_text(timeout)}
