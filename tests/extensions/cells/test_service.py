"""The published RPC tables, and the same tests of a skill in every form that runs one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.cells.lab import Core, Lab, make, status_of

from skillhouse.extensions.cells import (
    Capabilities,
    CellSpec,
    Executor,
    Method,
    ServedTool,
    core_methods,
    executor_methods,
    respond,
    wrap_failure,
    wrap_result,
)
from skillhouse.sandbox import SandboxLevel

SOURCE = """
    def echo(params, context):
        return params

    def raises(params, context):
        raise ValueError("no coin")

    def fetched(params, context):
        answer = context.fetch("https://a.test/x")
        return {"status": answer.status, "body": answer.body, "text": context.read_file("notes")}

    def outside(params, context):
        try:
            return context.read_file("../secret")
        except Exception as error:
            return str(error)

    def writes(params, context):
        try:
            open(__file__, "a")
        except OSError as error:
            return type(error).__name__

    def connects(params, context):
        import socket
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        except OSError:
            return "no network"

    tools = {f.__name__: f for f in (echo, raises, fetched, outside, writes, connects)}
"""
CASES = {
    "echo": {"success": True, "data": {"coin": "x"}},
    "raises": {"success": False, "error": "ValueError: no coin"},
    "fetched": {
        "success": True,
        "data": {"status": 200, "body": "[1, 2]", "text": "text of notes"},
    },
    "outside": {"success": True, "data": "outside the workspace"},
    "writes": {"success": True, "data": "OSError"},
    "connects": {"success": True, "data": "no network"},
}
"""Each tool's ToolResult, in whatever form the code runs."""
Call = Callable[[str], Awaitable[Mapping[str, Any]]]


class Asked(Core):
    """What a call over RPC asks, which has nothing kept back at its end."""

    async def ended(self) -> None:
        """Send nothing more."""


class Tools:
    """The tools of one skill."""

    def __init__(self, spec: CellSpec) -> None:
        self._spec = spec

    def tools(self) -> Sequence[ServedTool]:
        return [
            ServedTool(
                name=f"one:{name}", tool=name, spec=self._spec, description="A tool.",
                parameters={"type": "object"}, level="read",
            )
            for name in CASES
        ]  # fmt: skip

    async def reload(self) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        return ["one"], [("broken", "no manifest")]


async def answered(methods: Mapping[str, Method], name: str, /, **params: Any) -> Any:
    """Return the answer to one request, as it goes over the wire."""
    request = {"jsonrpc": "2.0", "method": name, "params": params, "id": 7}
    data = await respond(json.dumps(request).encode(), methods)
    answer = json.loads(data or b"")
    assert (answer.pop("jsonrpc"), answer.pop("id")) == ("2.0", 7)
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("form", ["cgroup", "rlimits", "rpc"])
@pytest.mark.req("S002-9", "S002-93")
def test_every_form_gives_the_same_results(form: str, tmp_path: Path, need: Any) -> None:
    # Without a container engine this is the container's program; see `tests/test_containers.py`.
    level = SandboxLevel.RLIMITS if form == "rlimits" else SandboxLevel.CGROUP
    lab = Lab(status_of(level, need), tmp_path)
    spec = make(tmp_path, SOURCE)

    async def here(executor: Executor, name: str) -> Mapping[str, Any]:
        done = await lab.ask(executor, spec, name, arguments={"coin": "x"})
        return wrap_result(done.value) if done.kind == "ok" else wrap_failure(done)

    async def over_rpc(executor: Executor, name: str) -> Mapping[str, Any]:
        methods = executor_methods(executor, Tools(spec), lambda _: Asked())
        answer = await answered(methods, "tool.execute", tool=f"one:{name}", args={"coin": "x"})
        found: Mapping[str, Any] = answer["result"]
        return found

    async def scene(executor: Executor) -> dict[str, Any]:
        call = over_rpc if form == "rpc" else here
        return {name: await call(executor, name) for name in CASES}

    assert lab.run(scene) == CASES


@pytest.mark.req("S002-120")
def test_the_tables_of_both_sides_are_complete(tmp_path: Path, need: Any) -> None:
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)
    core, capabilities = Core(), Capabilities()
    shelf = Tools(make(tmp_path, SOURCE))

    async def scene(executor: Executor) -> None:
        ours = executor_methods(executor, shelf, lambda _: Asked())
        assert ours.keys() >= {"tool.execute", "tool.list", "skill.reload", "health"}
        listed = (await answered(ours, "tool.list"))["result"]
        assert [one["name"] for one in listed] == [f"one:{name}" for name in CASES]
        assert listed[0].keys() == {"name", "skill", "description", "parameters", "security"}
        assert await answered(ours, "skill.reload") == {
            "result": {"loaded": ["one"], "failed": [{"name": "broken", "error": "no manifest"}]}
        }
        assert await answered(ours, "health") == {"result": {"status": "ok"}}
        theirs = core_methods(capabilities)
        assert theirs.keys() >= {"core.fetch", "core.sign", "core.readFile"}
        # Neither side does what is the other's.
        assert not theirs.keys() & ours.keys()
        with capabilities.of(core) as token:
            fetched = {
                "url": "https://a.test",
                "method": "POST",
                "headers": {"A": "b"},
                "body": "c",
            }
            for method, params, expected in (
                ("core.fetch", fetched, {"status": 200, "headers": {"Content-Type": "text/plain"},
                                         "body": "[1, 2]"}),
                ("core.sign", {"type": "message", "data": "x"}, {"signature": "0x01"}),
                ("core.readFile", {"path": "notes"}, {"content": "text of notes"}),
            ):  # fmt: skip
                answer = await answered(theirs, method, **params, capability=token)
                assert answer == {"result": expected}
        assert core.asked == [
            ("fetch", fetched),
            ("sign", {"type": "message", "data": "x"}),
            ("read_file", "notes"),
        ]
        stale = await answered(theirs, "core.readFile", path="notes", capability=token)
        assert stale["error"]["data"]["reason"] == "stale_capability"

    lab.run(scene)


def test_before_a_question_it_is_said_what_would_not_run(tmp_path: Path, need: Any) -> None:
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)
    ran = tmp_path / "ran"
    spec = make(tmp_path, f"open({str(ran)!r}, 'w')\n{SOURCE}")

    async def scene(executor: Executor) -> list[Any]:
        methods = executor_methods(executor, Tools(spec), lambda _: Asked())
        found = []
        for name, context in (
            ("echo", {"digest": spec.digest}),
            ("echo", {"digest": "skilltree1:other"}),
            ("none", {"digest": spec.digest}),
            ("echo", {"port": -1}),
        ):
            answer = await answered(methods, "tool.check", tool=f"one:{name}", context=context)
            found.append(answer.get("result", answer.get("error", {}).get("message", "")[:30]))
        assert not executor.is_busy
        return found

    assert lab.run(scene) == [
        {},
        f"the skill `{spec.skill}` is not as it"[:30],
        "unknown tool `one:none`",
        "expected as context {meta, cap",
    ]
    assert not ran.exists()


@pytest.mark.slow
@pytest.mark.req("S002-8")
def test_the_executor_has_nothing_of_the_core() -> None:
    """What runs skills' code loads no gateway, channel, signer, session or built-in tool."""
    code = (
        "import sys\n"
        "from skillhouse.extensions.cells.worker.executor import *\n"
        "from skillhouse.extensions.cells import Executor, executor_methods, RpcClient\n"
        "print(*sorted({name.split('.')[1] for name in sys.modules"
        " if name.startswith('skillhouse.')}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    core = {*"signer approval audit permission tiers tools house net store".split()}
    assert (loaded >= {"cells", "sandbox", "floor"}, loaded & core) == (True, set())


class Timed(asyncio.SelectorEventLoop):
    """A loop that remembers its timers."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[asyncio.TimerHandle] = []

    def call_at(  # type: ignore[override] # As it is, without naming each parameter.
        self, *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        timer: asyncio.TimerHandle = super().call_at(*args, **options)
        self.timers.append(timer)
        return timer


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["echo", "raises"])
@pytest.mark.req("S002-79")
def test_no_timer_is_left_after_a_call(tool: str, tmp_path: Path, need: Any) -> None:
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)
    spec = make(tmp_path, SOURCE)

    async def main() -> tuple[int, list[asyncio.TimerHandle]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Timed)
        async with lab.executor() as executor:
            for _ in range(3):
                await lab.ask(executor, spec, tool, timeout=30.0)
        late = [timer for timer in loop.timers if timer.when() > loop.time() + 1]
        return len(late), [timer for timer in late if not timer.cancelled()]

    made, left = anyio.run(main, backend_options={"loop_factory": Timed})
    # Each call had a timer, and each is cancelled.
    assert (made >= 3, left) == (True, [])
