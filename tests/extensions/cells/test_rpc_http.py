"""`POST /rpc` between a core and an executor, each a server of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute
from tests.extensions.cells.lab import Core, Lab, make, status_of

from skillhouse.extensions.cells import (
    Capabilities,
    Executor,
    Method,
    NoAnswerError,
    RemoteExecutor,
    RemoteHost,
    RpcClient,
    RpcError,
    RpcServer,
    ServedCall,
    ServedTool,
    core_methods,
    executor_methods,
)
from skillhouse.extensions.cells.service import OUTPUT_BYTES
from skillhouse.sandbox import SandboxLevel

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


Exchange = tuple[int, dict[str, str], bytes]


async def raw(port: int, data: bytes) -> Exchange:
    """Send bytes, and return status, headers and body of the answer."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        with contextlib.suppress(anyio.BrokenResourceError):
            await stream.send(data)
        found = b""
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                found += await stream.receive()
    head, _, body = found.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body


def request(
    body: bytes = b'{"jsonrpc": "2.0", "method": "health", "id": 1}',
    *,
    target: str = "POST /rpc",
    length: int | None = None,
    **headers: str,
) -> bytes:
    given = {
        "Host": "executor",
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body) if length is None else length),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{target} HTTP/1.1\r\n{lines}\r\n".encode() + body


def exchanged(*data: bytes, methods: Mapping[str, Method] | None = None) -> list[Exchange]:
    """Return the answers to requests, one after the other."""

    async def scene() -> list[Exchange]:
        server = RpcServer(methods or {"health": ping}, token=TOKEN)
        async with server.listening("127.0.0.1", 0) as port:
            return [await raw(port, one) for one in data]

    return anyio.run(scene)


@pytest.mark.req("S002-13", "S002-23")
def test_only_the_token_opens_the_door():
    given = ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \u00e9", TOKEN)
    right, *wrong = exchanged(request(), *(request(Authorization=text) for text in given))
    assert (right[0], right[2]) == (200, b'{"jsonrpc":"2.0","result":"pong","id":1}')
    assert [(status, body) for status, _, body in wrong] == [(401, b"")] * len(given)
    assert wrong[0][1]["www-authenticate"] == "bearer"


def test_a_browser_and_a_second_token_are_refused():
    twice = request().replace(b"Host: ", b"authorization: Bearer x\r\nHost: ")
    origin = request(Origin="http://evil.test")
    assert [status for status, _, _ in exchanged(twice, origin)] == [401, 401]


def test_what_is_no_request_is_answered_as_http_says():
    parsed = b'{"jsonrpc":"2.0","error":{"code":-32700,'
    found = exchanged(
        request(Content_Type="text/plain"),
        request(length=(8 << 20) + 1, body=b" " * ((8 << 20) + 1)),
        request(b'{"jsonrpc": "2.0", "method": "health"}'),
        request(b"{"),
        request(target="GET /rpc"),
        request(target="POST /other"),
        b"nonsense\r\n\r\n",
        request(target="POST /rpc?" + "a" * 20_000),
        request(Content_Length="-1"),
    )
    assert [status for status, _, _ in found] == [415, 413, 204, 200, 405, 404, 400, 404, 400]
    assert found[3][2].startswith(parsed)


@pytest.mark.parametrize("token", ["short", "with a blank in it", "not-ascii-\u00e9-at-all", ""])
def test_a_token_that_is_none_is_refused(token: str):
    with pytest.raises(ValueError, match="at least 16"):
        RpcServer({}, token=token)


async def test_who_goes_away_takes_the_call_along():
    seen: list[str] = []
    begun, ended = anyio.Event(), anyio.Event()

    async def long(params: Any) -> Any:
        begun.set()
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            seen.append("cancelled")
            ended.set()
            raise

    server = RpcServer({"health": long}, token=TOKEN)
    async with server.listening("127.0.0.1", 0) as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(request())
            await begun.wait()
        with anyio.fail_after(5):
            await ended.wait()
    assert seen == ["cancelled"]


def test_a_request_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("skillhouse.extensions.cells.rpc_http.HEAD_SECONDS", 0.05)
    monkeypatch.setattr("skillhouse.extensions.cells.rpc_http.BODY_SECONDS", 0.05)
    monkeypatch.setattr("skillhouse.extensions.cells.rpc_http.REST_SECONDS", 0.05)
    found = exchanged(b"POST /rpc HTTP/1.1\r\nHost: a", request(length=100))
    assert [status for status, _, _ in found] == [408, 408]


async def test_a_gone_server_says_whether_something_may_have_begun():
    found: list[bool] = []

    async def broken(stream: Any) -> None:
        await stream.receive()
        await stream.aclose()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    client = RpcClient(f"http://127.0.0.1:{port}/rpc", TOKEN)

    async def asked() -> None:
        with pytest.raises(NoAnswerError) as caught:
            await client.ask("health", {})
        found.append(caught.value.is_sent)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, broken)
        await asked()
        tasks.cancel_scope.cancel()
    await asked()
    assert found == [True, False]


@asynccontextmanager
async def served(methods: Mapping[str, Method], token: str) -> AsyncIterator[str]:
    """Yield the address of a server on this machine."""
    async with RpcServer(methods, token=token).listening("127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}/rpc"


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
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)
    core, capabilities = Core(), Capabilities()
    shelf = Tools(make(tmp_path, SOURCE))
    found: dict[str, Any] = {}

    async def scene(executor: Executor) -> None:
        async with served(core_methods(capabilities), CORE_TOKEN) as core_url:
            back = RpcClient(core_url, CORE_TOKEN)
            methods = executor_methods(
                executor, shelf, lambda found: RemoteHost(back, found.capability)
            )
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
        with pytest.raises(NoAnswerError, match="no server answers"):
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


WRITES = """
    def price(params, context):
        (context.output / "a.txt").write_text("hello")
        (context.output / "large").write_bytes(bytes(params["size"]))
        (context.output / "z").write_text("last")
        if params.get("fails"):
            raise ValueError("no")
        return 1

    tools = {"price": price}
"""


def host_of(client: RpcClient, call: ServedCall) -> RemoteHost:
    return RemoteHost(client, call.capability)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_files_of_a_call_elsewhere_reach_the_core(tmp_path: Path, need: Any, fails: bool):
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)
    capabilities = Capabilities()
    shelf = Tools(make(tmp_path, WRITES))
    cores = {"all": Core(), "some": Core(), "old": Core()}

    async def scene(executor: Executor) -> None:
        async with (
            served(core_methods(capabilities), CORE_TOKEN) as core_url,
            served({"core.log": core_methods(capabilities)["core.log"]}, CORE_TOKEN) as old_url,
        ):
            back, old = RpcClient(core_url, CORE_TOKEN), RpcClient(old_url, CORE_TOKEN)
            for name, client, size in (
                ("all", back, 1 << 20),
                ("some", back, OUTPUT_BYTES),
                ("old", old, 1),
            ):
                host = partial(host_of, client)
                methods = executor_methods(executor, shelf, host)
                async with served(methods, TOKEN) as url:
                    remote = RemoteExecutor(RpcClient(url, TOKEN), capabilities)
                    given = {"size": size, "fails": fails}
                    found = await remote.execute(
                        "crypto:price", given, meta={}, timeout=20.0, host=cores[name]
                    )
                    assert found["success"] is not fails

    lab.run(scene)
    assert cores["all"].files() == {"a.txt": b"hello", "large": bytes(1 << 20), "z": b"last"}
    why = f"an executor elsewhere sends at most {OUTPUT_BYTES} bytes"
    assert cores["some"].files() == {"a.txt": b"hello", "large": why, "z": why}
    # A core of an earlier version does not know of files, and the call's log says so.
    assert cores["old"].files() == {}
    assert cores["old"].logged == [
        "files of the output folder were not sent: unknown method `core.output`"
    ]
