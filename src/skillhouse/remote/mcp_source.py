"""Asks one MCP server for its skills; this file and `mcp_http` alone import the SDK."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import anyio

from skillhouse.floor import needs_extra
from skillhouse.remote.mcp_entry import McpServer
from skillhouse.remote.source import RemoteError

if TYPE_CHECKING:
    from skillhouse.net import NetPolicy, Route

EXTENSION = "io.modelcontextprotocol/skills"
PAGES_MAX = 200
SKILLS_MAX = 1_000
ANSWER_SECONDS = 30
"""How long one answer may take (DESIGN, bounds: fetch 30 s)."""


class Peer(Protocol):
    """A connection to one server: every read goes to it and to no other."""

    async def list_skills(self) -> list[Any]:
        """Return the entries of `skills/list`, all pages, as they came."""
        ...

    async def get_skill(self, uri: str) -> Any: ...

    async def read(self, uri: str) -> bytes:
        """Return the bytes at an address, whatever they are."""
        ...


Dial = Callable[[McpServer], AbstractAsyncContextManager[Peer]]
"""Connects to a server. What addresses may be reached is for the caller to say by its own."""
OpenTransport = Callable[[McpServer], Any]
"""Gives the SDK's client what it connects to: a transport, an address or a server in memory."""


@asynccontextmanager
async def connected(
    server: McpServer,
    *,
    transport: OpenTransport | None = None,
    policy: NetPolicy | None = None,
    route: Route | None = None,
) -> AsyncIterator[Peer]:
    """Connect to a server that offers skills.

    Args:
        transport: Another way there than by HTTP under the policy or by a subprocess.
        policy: What may be reached besides the server's own address, if that is public.

    Raises:
        MissingExtraError: the packages of the extra `mcp` are not installed.
        RemoteError: it cannot be reached, or does not declare the extension.
    """
    with needs_extra("mcp"):
        from mcp.client import Client, advertise  # noqa: PLC0415 - an extra.
    with _nowhere() as nowhere:
        target = (
            transport(server) if transport is not None else _target(server, nowhere, policy, route)
        )
        client = Client(
            target,
            extensions=[advertise(EXTENSION)],
            read_timeout_seconds=ANSWER_SECONDS,
            # Entries are verified against bytes, so neither may come from an older answer.
            cache=None,
        )
        failed: list[RemoteError] = []
        try:
            async with client:
                try:
                    yield _SdkPeer(server, client)
                except RemoteError as error:
                    # Task groups of the SDK would wrap it.
                    failed.append(error)
        except RemoteError:
            raise
        except Exception as error:
            if not failed:
                raise RemoteError(f"cannot reach `{server.label}`: {_said(error)}") from error
        if failed:
            raise failed[0]


def _target(
    server: McpServer, errors: TextIO, policy: NetPolicy | None, route: Route | None
) -> Any:
    if server.url:
        from skillhouse.remote.mcp_http import bounded_http  # noqa: PLC0415 - an extra.

        return bounded_http(server, policy, route)
    # A program that a person has named runs as that person: what it says needs no bound.
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - an extra.

    program, *arguments = server.command
    parameters = StdioServerParameters(
        command=program,
        args=arguments,
        env=dict(server.environment),
        cwd=server.directory,
    )
    return stdio_client(parameters, errlog=errors)


class _SdkPeer:
    def __init__(self, server: McpServer, client: Any) -> None:
        self._label = server.label
        self._client = client
        declared = client.server_capabilities.extensions or {}
        if not isinstance(declared.get(EXTENSION), dict):
            # SEP-2640: requests only after the server has declared that it has them.
            raise RemoteError(f"`{self._label}` does not offer skills")

    async def list_skills(self) -> list[Any]:
        entries: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            params = {} if cursor is None else {"cursor": cursor}
            answer = await self._ask("skills/list", params)
            page, cursor = answer.get("skills"), answer.get("nextCursor")
            if not isinstance(page, list):
                raise RemoteError(f"`{self._label}` answered skills/list without a list")
            if len(entries) + len(page) > SKILLS_MAX:
                break
            entries += page
            if cursor is None:
                return entries
            if not isinstance(cursor, str) or cursor in seen:
                break
            seen.add(cursor)
        raise RemoteError(
            f"the list of `{self._label}` does not end: more than {SKILLS_MAX} skills, or the "
            "same page again"
        )

    async def get_skill(self, uri: str) -> Any:
        return (await self._ask("skills/get", {"uri": uri})).get("skill")

    async def read(self, uri: str) -> bytes:
        answer = await self._ask("resources/read", {"uri": uri})
        contents = answer.get("contents")
        if not isinstance(contents, list) or len(contents) != 1:
            raise RemoteError(f"`{self._label}` gave no single content for `{uri}`")
        [content] = contents
        if not isinstance(content, dict) or content.get("uri") != uri:
            raise RemoteError(f"`{self._label}` answered for another address than `{uri}`")
        text, blob = content.get("text"), content.get("blob")
        try:
            if isinstance(text, str) and blob is None:
                return text.encode()
            if isinstance(blob, str) and text is None:
                return base64.b64decode(blob, validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise RemoteError(f"`{self._label}` gave no bytes for `{uri}`") from error
        raise RemoteError(f"`{self._label}` gave neither text nor bytes for `{uri}`")

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra.
        from mcp_types import Request  # noqa: PLC0415 - an extra.
        from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - the SDK's.

        request = Request[dict[str, Any], str](method=method, params=dict(params))
        try:
            answer = await self._client.session.send_request(request, TypeAdapter(dict[str, Any]))
        except (MCPError, ValidationError, anyio.ClosedResourceError) as error:
            raise RemoteError(f"`{self._label}` did not answer {method}: {_said(error)}") from error
        result: Mapping[str, Any] = answer
        return result


@contextmanager
def _nowhere() -> Iterator[TextIO]:
    with open(os.devnull, "w", encoding="utf-8") as file:
        yield file


def _said(error: BaseException) -> str:
    """Return the innermost reason in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())[:200] or type(error).__name__
