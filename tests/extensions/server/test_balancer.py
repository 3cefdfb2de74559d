"""The HAProxy of docs/guides/from-one-machine-to-many.md, as it is written there."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.balanced import PROGRAM, free_port, haproxy, is_answering
from tests.extensions.server.test_replicas import CALL
from tests.frontends.mcp_peer import LEGACY, MODERN, http_client
from tests.harness import Need, until
from tests.replicas import http, replicas

pytestmark = pytest.mark.slow


def test_the_balancer_of_the_guide_serves_both_kinds_of_clients(tmp_path: Path, need: Need) -> None:
    need(Path(PROGRAM).exists(), "HAProxy is not installed")
    front = free_port()
    address = f"http://127.0.0.1:{front}"
    with replicas(tmp_path, 2, "--allow-host", f"127.0.0.1:{front}") as (first, second):
        ports = {"8600": front, "8601": first.port, "8602": second.port}
        body = {"name": "caller", "scopes": ["call"]}
        caller = http(first.address, "/api/v1/tokens", first.token, body).value["token"]

        async def tools(mode: str) -> int:
            async with http_client(address, caller, mode) as client:
                await client.list_tools()
                return len((await client.list_tools()).tools)

        with haproxy(tmp_path, ports):
            assert until(lambda: is_answering(address))
            for _ in range(4):
                assert anyio.run(tools, MODERN) > 0
                assert anyio.run(tools, LEGACY) > 0
            asked = {
                http(address, "/api/v1/calls", caller, CALL).value["approval_id"] for _ in range(4)
            }
            assert len(asked) == 1
            # One goes in order, and what comes meanwhile is answered.
            first.process.terminate()
            while first.process.poll() is None:
                assert http(address, "/api/v1/calls", caller, CALL).value["status"] == "pending"
            assert first.process.communicate()[1] == ""
            assert http(address, "/api/v1/calls", caller, CALL).value["status"] == "pending"
