"""The HAProxy of docs/guides/from-one-machine-to-many.md, as it is written there."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.extensions.server.test_replicas import CALL
from tests.frontends.mcp_peer import LEGACY, MODERN, http_client
from tests.guides.pages import ROOT
from tests.harness import Need, until
from tests.replicas import http, replicas

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs/guides/from-one-machine-to-many.md"
BLOCK = re.compile(
    r"`haproxy\.cfg`:\n\n<!-- run by: [^\n]* -->\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def haproxy(base: Path, ports: dict[str, int]) -> Iterator[None]:
    found = BLOCK.search(GUIDE.read_text())
    assert found is not None
    text = found[1]
    for shown, real in ports.items():
        assert f":{shown}" in text
        text = text.replace(f":{shown}", f":{real}")
    file = base / "haproxy.cfg"
    file.write_text(text)
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    with subprocess.Popen([program, "-f", file, "-db"], stderr=subprocess.DEVNULL) as running:
        try:
            yield
        finally:
            running.kill()


def test_the_balancer_of_the_guide_serves_both_kinds_of_clients(tmp_path: Path, need: Need) -> None:
    need(shutil.which("haproxy") or Path("/usr/sbin/haproxy").exists(), "HAProxy is not installed")
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

        def is_up() -> bool:
            try:
                return http(address, "/readyz").status == 200
            except OSError:
                return False

        with haproxy(tmp_path, ports):
            assert until(is_up)
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
