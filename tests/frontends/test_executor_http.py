"""`POST /rpc` between a core and an executor, each a server of its own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from starlette.testclient import TestClient

from skillhouse.frontends.executor import rpc_app
from skillhouse.sandbox import (
    Capabilities,
    Executor,
    Level,
    Method,
    RemoteExecutor,
    RemoteHost,
    RpcClient,
    RpcError,
    ServedTool,
    core_methods,
    executor_methods,
)
from tests.sandbox.cells import Core, Lab, make, status_of, until

TOKEN = "token-of-the-executor"
CORE_TOKEN = "token-of-the-core-itself"
SOURCE = """
    async def price(params, context):
        answer = await context.fetch("https://a.test/" + params["coin"])
        text = await context.read_file("notes.txt")
        return {"body": answer.body, "text": text, "meta": context.meta}

    def raises(params, context):
        raise ValueError("no coin")

    async def late(params, context):
        return context._link.token

    tools = {"price": price, "raises": raises, "late": late}
"""


async def ping(params: Any) -> Any:
    return "pong"


@pytest.fixture
def client() -> TestClient:
    return TestClient(rpc_app({"health": ping}, token=TOKEN))


def post(client: TestClient, **options: Any) -> Any:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    given = {"content": b'{"jsonrpc": "2.0", "method": "health", "id": 1}', **options}
    return client.post("/rpc", headers=headers | given.pop("headers", {}), **given)


@pytest.mark.req("S002-13", "S002-23")
def test_only_the_token_opens_the_door(client: TestClient):
    assert post(client).json() == {"jsonrpc": "2.0", "result": "pong", "id": 1}
    for wrong in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \u00e9"):
        answer = post(client, headers={"Authorization": wrong.encode()})
        assert (answer.status_code, answer.content) == (401, b"")
    assert post(client, headers={"Origin": "http://evil.test"}).status_code == 401


def test_what_is_no_request_is_answered_as_http_says(client: TestClient):
    assert post(client, headers={"Content-Type": "text/plain"}).status_code == 415
    assert post(client, content=b" " * (8 << 20) + b"{}").status_code == 413
    assert post(client, content=b'{"jsonrpc": "2.0", "method": "health"}').status_code == 204
    assert post(client, content=b"{").json()["error"]["code"] == -32700
    assert client.get("/rpc").status_code == 405
    assert client.post("/other").status_code == 404


def test_a_short_token_is_refused():
    with pytest.raises(ValueError, match="at least 16"):
        rpc_app({}, token="short")


@asynccontextmanager
async def served(methods: Mapping[str, Method], token: str) -> AsyncIterator[str]:
    """Yield the address of a server on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            rpc_app(methods, token=token), lifespan="off", ws="none", log_config=None
        )
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            await until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/rpc"
            server.should_exit = True


class Tools:
    """The tools of one skill."""

    def __init__(self, spec: Any) -> None:
        self._found = [
            ServedTool(
                name=f"crypto:{name}",
                tool=name,
                spec=spec,
                description="A tool.",
                parameters={"type": "object"},
                level="read",
            )
            for name in ("price", "raises", "late")
        ]

    def tools(self) -> Sequence[ServedTool]:
        return self._found

    async def reload(self) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        return ["crypto"], [("broken", "no manifest")]


@pytest.mark.slow
@pytest.mark.req("S002-16", "S002-17", "S002-18", "S002-19", "S002-21", "S002-22")
def test_a_core_and_an_executor_in_two_places(tmp_path: Path, need: Any):
    lab = Lab(status_of(Level.CGROUP, need), tmp_path)
    core, capabilities = Core(), Capabilities()
    shelf = Tools(make(tmp_path, SOURCE))
    found: dict[str, Any] = {}

    async def scene(executor: Executor) -> None:
        async with served(core_methods(capabilities), CORE_TOKEN) as core_url:
            back = RpcClient(core_url, CORE_TOKEN)
            methods = executor_methods(executor, shelf, lambda token: RemoteHost(back, token))
            async with served(methods, TOKEN) as url:
                ahead = RpcClient(url, TOKEN)
                remote = RemoteExecutor(ahead, capabilities)

                async def call(name: str, **arguments: Any) -> Any:
                    meta = {"callId": "1"}
                    return await remote.execute(
                        f"crypto:{name}", arguments, meta=meta, timeout=10.0, host=core
                    )

                found["price"] = await call("price", coin="x")
                found["raises"] = await call("raises")
                found["list"] = (await ahead.ask("tool.list", {}))[0]
                found["reload"] = await ahead.ask("skill.reload", {})
                found["health"] = await ahead.ask("health", {})
                for key, work in (
                    ("unknown", call("other")),
                    ("stale", back.ask("core.readFile", {"path": "a", "capability": "x" * 32})),
                    ("method", back.ask("tool.execute", {})),
                    ("token", RpcClient(url, "another-token-of-16").ask("health", {})),
                ):
                    with pytest.raises(RpcError) as caught:
                        await work
                    found[key] = (caught.value.code, caught.value.reason)
        with pytest.raises(RpcError, match="did not answer"):
            await ahead.ask("health", {})

    lab.run(scene)
    assert found == {
        "price": {
            "success": True,
            "data": {"body": "[1, 2]", "text": "text of notes.txt", "meta": {"callId": "1"}},
        },
        "raises": {"success": False, "error": "ValueError: no coin"},
        "list": {
            "name": "crypto:price",
            "skill": "project:skill",
            "description": "A tool.",
            "parameters": {"type": "object"},
            "security": {"level": "read"},
        },
        "reload": {"loaded": ["crypto"], "failed": [{"name": "broken", "error": "no manifest"}]},
        "health": {"status": "ok"},
        "unknown": (-32602, ""),
        "stale": (-32001, "stale_capability"),
        "method": (-32601, ""),
        "token": (-32005, ""),
    }
    assert core.asked == [("fetch", {"url": "https://a.test/x"}), ("read_file", "notes.txt")]
