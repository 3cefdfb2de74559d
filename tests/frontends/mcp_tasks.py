"""A client of the tasks extension that writes its requests by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCNotification,
    JSONRPCRequest,
)

from skillhouse.frontends.mcp.server import SkillhouseServer
from tests.frontends.mcp_peer import MODERN, PATIENCE_SECONDS

TASKS = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {"extensions": {TASKS: {}}}
ASKS: dict[str, Any] = {**DECLARED, "elicitation": {"form": {}}}
WRITE: dict[str, Any] = {"path": "a.txt", "content": "once\n"}
FINAL = ("completed", "failed", "cancelled")


def envelope(capabilities: Mapping[str, Any], name: str = "test") -> dict[str, Any]:
    """Return the `_meta` of a request of 2026-07-28."""
    return {
        PROTOCOL_VERSION_META_KEY: MODERN,
        CLIENT_INFO_META_KEY: {"name": name, "version": "1"},
        CLIENT_CAPABILITIES_META_KEY: dict(capabilities),
    }


class Talk:
    """A client that writes its requests by itself."""

    def __init__(self, read: Any, write: Any, capabilities: Mapping[str, Any], name: str) -> None:
        self._read, self._write = read, write
        self.capabilities = capabilities
        self._name = name
        self._id = 0

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a request, and return the answer as JSON."""
        number = await self.begin(method, **params)
        while True:
            answer = await self.receive()
            if answer.get("id") == number:
                return answer

    async def receive(self) -> dict[str, Any]:
        """Return the next message of the server, as JSON."""
        got = (await self._read.receive()).message
        message: dict[str, Any] = got.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return message

    async def begin(self, method: str, **params: Any) -> int:
        """Make a request, wait for no answer, and return its id."""
        self._id += 1
        params["_meta"] = envelope(self.capabilities, self._name)
        request = JSONRPCRequest(jsonrpc="2.0", id=self._id, method=method, params=params)
        await self._write.send(SessionMessage(request))
        return self._id

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        notification = JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        await self._write.send(SessionMessage(notification))

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a request that succeeds, and return its result."""
        answer = await self.send(method, **params)
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        return await self.result("tools/call", name=tool, arguments=arguments)

    async def get(self, task_id: str) -> dict[str, Any]:
        """Poll once."""
        return await self.result("tasks/get", taskId=task_id)

    async def polled(self, task_id: str, *states: str) -> dict[str, Any]:
        """Poll until the task has one of these states, by default an end."""
        while True:
            found = await self.get(task_id)
            if found["status"] in (states or FINAL):
                return found
            await anyio.sleep(0.02)

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a request that fails, and return the error."""
        answer = await self.send(method, **params)
        assert "error" in answer, answer
        found: dict[str, Any] = answer["error"]
        return found

    async def answer(self, task_id: str, **content: Any) -> str:
        """Answer the open question of a task, and return its key."""
        asked = await self.polled(task_id, "input_required")
        [key] = asked["inputRequests"]
        given = {key: {"action": "accept", "content": content}}
        await self.result("tasks/update", taskId=task_id, inputResponses=given)
        return str(key)


@asynccontextmanager
async def talking(
    server: SkillhouseServer, capabilities: Mapping[str, Any] = DECLARED, name: str = "test"
) -> AsyncIterator[Talk]:
    """Serve one client that declares `capabilities` in each request."""
    with anyio.fail_after(PATIENCE_SECONDS):
        async with (
            create_client_server_memory_streams() as ((read, write), served),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(server.sdk.run, *served, server.options())
            yield Talk(read, write, capabilities, name)
            tasks.cancel_scope.cancel()


def posted(
    http: httpx2.Client, address: str, key: str, method: str, mcp_name: str, /, **params: Any
) -> dict[str, Any]:
    """Make a request over HTTP as a client that declares tasks, and return the answer.

    `key` is its token, `mcp_name` the header by which a balancer finds the server of a task.
    """
    headers = {
        "authorization": f"Bearer {key}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
        **({"mcp-name": mcp_name} if mcp_name else {}),
    }
    params["_meta"] = envelope(DECLARED)
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    text = http.post(f"{address}/mcp", json=body, headers=headers).text
    # The answer alone, or the last of a stream of events.
    events = [line for line in text.splitlines() if line.startswith("data: {")]
    found: dict[str, Any] = json.loads((events or [text])[-1].removeprefix("data: "))
    return found
