"""Tests of the tasks extension (SEP-2663): what a client polls for, answers and cancels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCRequest,
)

from skillhouse.approval import Answer, ApprovalState
from skillhouse.audit import read_records
from skillhouse.frontends.mcp.elicitation import ALLOW, DECISION, DENY
from skillhouse.frontends.mcp.server import SkillhouseServer
from tests.frontends.mcp_inside import Inside, sdk_answers
from tests.frontends.mcp_peer import MODERN, PATIENCE_SECONDS, handshake

pytestmark = pytest.mark.slow

TASKS = "io.modelcontextprotocol/tasks"
WRITE: dict[str, Any] = {"path": "a.txt", "content": "once\n"}
DECLARED: dict[str, Any] = {"extensions": {TASKS: {}}}
ASKS: dict[str, Any] = {**DECLARED, "elicitation": {"form": {}}}
FINAL = ("completed", "failed", "cancelled")


class Talk:
    """A client that writes its requests by itself."""

    def __init__(self, read: Any, write: Any, capabilities: Mapping[str, Any], name: str) -> None:
        self._read, self._write = read, write
        self._capabilities = capabilities
        self._name = name
        self._id = 0

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a request, and return the answer as JSON."""
        self._id += 1
        params["_meta"] = {
            PROTOCOL_VERSION_META_KEY: MODERN,
            CLIENT_INFO_META_KEY: {"name": self._name, "version": "1"},
            CLIENT_CAPABILITIES_META_KEY: dict(self._capabilities),
        }
        request = JSONRPCRequest(jsonrpc="2.0", id=self._id, method=method, params=params)
        await self._write.send(SessionMessage(request))
        while True:
            got = (await self._read.receive()).message
            answer: dict[str, Any] = got.model_dump(mode="json", by_alias=True, exclude_unset=True)
            if answer.get("id") == self._id:
                return answer

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

    async def ended(self, task_id: str) -> dict[str, Any]:
        """Poll until the task has ended."""
        while (found := await self.get(task_id))["status"] not in FINAL:
            await anyio.sleep(0.02)
        return found


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


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path)


def test_a_call_that_waits_for_approval_is_a_task_and_runs_once_after_it(inside: Inside) -> None:
    async def work() -> None:
        async with talking(inside.server()) as client:
            made = await client.call("write", **WRITE)
            assert made["resultType"] == "task"
            assert made["status"] == "working"
            assert made["ttlMs"] == 86_400_000
            assert made["pollIntervalMs"] == 1_000
            assert made["createdAt"].endswith("Z")
            assert not {"inputRequests", "result", "content"} & made.keys()
            task_id = made["taskId"]
            assert len(task_id) >= 43
            waiting = await client.get(task_id)
            assert (waiting["resultType"], waiting["status"]) == ("complete", "working")
            [approval] = inside.house.approvals.pending()
            assert approval.id in waiting["statusMessage"]
            assert not (inside.project / "a.txt").exists()
            inside.answer()
            ended = await client.ended(task_id)
            assert ended["status"] == "completed"
            assert not ended["result"]["isError"]
            assert (inside.project / "a.txt").read_text() == "once\n"
            (inside.project / "a.txt").unlink()
            assert await client.get(task_id) == ended
            assert not (inside.project / "a.txt").exists()

    anyio.run(work)
    [entry] = [
        one for one in read_records(inside.house.audit_log.path) if one.record.kind == "intent"
    ]
    assert entry.status == "ok"
