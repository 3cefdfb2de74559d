"""An MCP server that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from skillhouse.floor import digest
from skillhouse.remote import McpCache, McpHost, McpServer, Peer, connected
from skillhouse.skill import Skill

EXTENSION = "io.modelcontextprotocol/skills"
SKILL = "---\nname: {name}\ndescription: {description}\n---\nBody of {name}.\n"


def skill_file(name: str, description: str = "Does things.") -> bytes:
    """Return a SKILL.md."""
    return SKILL.format(name=name, description=description).encode()


def entry_of(
    base: str, files: Mapping[str, bytes], frontmatter: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the honest entry of a skill with these files below an address."""
    name = base.rpartition("/")[2]
    return {
        "uri": f"{base}/SKILL.md",
        "frontmatter": dict(frontmatter or {"name": name, "description": "Does things."}),
        "resources": [
            {"uri": f"{base}/{path}", "digest": digest(data), "size": len(data)}
            for path, data in files.items()
        ],
    }


class _GetParams(types.RequestParams):
    uri: str


class Liar:
    """A server in memory."""

    def __init__(self, name: str = "liar") -> None:
        self.entries: list[Any] = []
        """What `skills/list` says."""
        self.unlisted: dict[str, Any] = {}
        """What only `skills/get` knows."""
        self.contents: dict[str, bytes | types.ReadResourceResult] = {}
        """What `resources/read` gives."""
        self.pages: dict[str | None, tuple[list[Any], str | None]] = {}
        """Pages by cursor; they take the place of `entries`."""
        self.asked: list[tuple[str, str]] = []
        """Every request with its address."""
        self.sdk: Server[Any] = Server(
            name, on_list_resources=self._resources, on_read_resource=self._read
        )
        self.sdk.extensions[EXTENSION] = {}
        self.sdk.add_request_handler("skills/list", types.PaginatedRequestParams, self._list)
        self.sdk.add_request_handler("skills/get", _GetParams, self._get)

    def offer(self, base: str, files: Mapping[str, bytes], **more: Any) -> dict[str, Any]:
        """Serve a skill honestly, and return its entry for the test to lie in."""
        entry = entry_of(base, files, **more)
        self.entries.append(entry)
        self.contents.update({f"{base}/{path}": data for path, data in files.items()})
        return entry

    @property
    def reads(self) -> list[str]:
        """Addresses of the files that were asked for."""
        return [uri for method, uri in self.asked if method == "resources/read"]

    async def _resources(self, _: Any, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def _list(self, _: Any, params: types.PaginatedRequestParams) -> dict[str, Any]:
        self.asked.append(("skills/list", params.cursor or ""))
        entries, cursor = self.pages.get(params.cursor, (self.entries, None))
        more = {} if cursor is None else {"nextCursor": cursor}
        return {"resultType": "complete", "skills": entries, "ttlMs": 0, **more}

    async def _get(self, _: Any, params: _GetParams) -> dict[str, Any]:
        self.asked.append(("skills/get", params.uri))
        known = {entry["uri"]: entry for entry in self.entries if isinstance(entry, dict)}
        found = (self.unlisted | known).get(params.uri)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, "no such skill")
        return {"resultType": "complete", "skill": found, "ttlMs": 0}

    async def _read(
        self, _: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        self.asked.append(("resources/read", params.uri))
        found = self.contents.get(params.uri)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, "no such file")
        if isinstance(found, types.ReadResourceResult):
            return found
        content: types.TextResourceContents | types.BlobResourceContents
        try:
            content = types.TextResourceContents(uri=params.uri, text=found.decode())
        except UnicodeDecodeError:
            blob = base64.b64encode(found).decode()
            content = types.BlobResourceContents(uri=params.uri, blob=blob)
        return types.ReadResourceResult(contents=[content])


def host_of(base: Path, **servers: Liar) -> McpHost:
    """Return a host that knows these servers, with its cache below `base`."""

    @asynccontextmanager
    async def dial(server: McpServer) -> AsyncIterator[Peer]:
        async with connected(server, transport=lambda one: servers[one.label].sdk) as peer:
            yield peer

    named = [McpServer(label=label, url="http://127.0.0.1/mcp") for label in servers]
    return McpHost(named, McpCache(base / "cache"), dial=dial)


def listed(base: Path, files: Mapping[str, bytes], **more: Any) -> tuple[Liar, McpHost, Skill]:
    """Return a server with the one skill `skill://pdf`, a host that has asked it, and the skill."""
    liar = Liar()
    liar.offer("skill://pdf", files, **more)
    host = host_of(base, docs=liar)
    anyio.run(host.refresh, "docs")
    [skill] = host.skills()
    return liar, host, skill


def serving(liar: Liar) -> AbstractContextManager[McpServer]:
    """Serve over HTTP on this machine, under the label `docs`."""
    return serving_app(liar.sdk.streamable_http_app())


@contextmanager
def serving_app(app: Any, *, log_level: str = "error") -> Iterator[McpServer]:
    """Serve an ASGI application on this machine, in a thread, under the label `docs`."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level=log_level, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        yield McpServer(label="docs", url=url, allow_private=True)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
