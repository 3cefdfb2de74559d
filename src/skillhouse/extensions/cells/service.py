"""The published methods of an executor in a container and of the core, and the served skills."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread

from skillhouse.extensions.cells.call_channel import answer_request, take_notification
from skillhouse.extensions.cells.cell import Capabilities, timeout_text
from skillhouse.extensions.cells.cell_context import output_params
from skillhouse.extensions.cells.code_store import CodeStore
from skillhouse.extensions.cells.executor import Executor
from skillhouse.extensions.cells.rpc import (
    INVALID_PARAMS,
    Method,
    NotBegunError,
    RpcRequest,
    full_name,
)
from skillhouse.extensions.cells.rpc_client import NoAnswerError, RpcClient
from skillhouse.extensions.cells.rpc_http import CURRENT
from skillhouse.extensions.cells.served_call import ServedCall, read_context, read_execution
from skillhouse.extensions.cells.served_tools import ServedTool, SkillSource
from skillhouse.floor.call_clock import CallClock, clock_stopped
from skillhouse.floor.structs import replace
from skillhouse.sandbox import SandboxError
from skillhouse.sandbox.code_call import (
    UNAVAILABLE,
    CellSpec,
    HostCalls,
    OutputPart,
    RpcError,
    wrap_failure,
    wrap_result,
)


class Host(HostCalls, Protocol):
    """`HostCalls` that have to be flushed at the end of the call."""

    async def ended(self) -> None: ...


def executor_methods(
    executor: Executor,
    source: SkillSource,
    host: Callable[[ServedCall], Host],
    *,
    packages: Path | None = None,
    store: CodeStore | None = None,
) -> Mapping[str, Method]:
    """Return the methods of the executor (S002-16 to 19); docs/reference/rpc.md lists them.

    Args:
        host: Makes the `Host` of a call.
        packages: The store of installed dependencies, which the core fills.
        store: Holds the code that cores send, by its digest; `source` is not asked then.
    """

    async def find(name: str, context: ServedCall, *, is_skill: bool = False) -> ServedTool:
        """Return a tool, or the first one of a skill; reload when it is unknown or has changed."""
        if store is not None:
            with _unavailable():
                return await _sent(store, name, context, is_skill=is_skill)
        for is_last in (False, True):
            wanted = name if is_skill else full_name(name, [one.name for one in source.tools()])
            for one in source.tools():
                is_named = (one.spec.skill if is_skill else one.name) == wanted
                if is_named and (is_last or context.digest in ("", one.spec.digest)):
                    return one
            if not is_last:
                await source.reload()
        raise RpcError(INVALID_PARAMS, f"unknown {'skill' if is_skill else 'tool'} `{name[:80]}`")

    async def execute(params: Any) -> Any:
        name, arguments, context = read_execution(params)
        found = await find(name, context)
        host_calls = host(context)
        with _unavailable():
            done = await executor.execute(
                cell_for(found, context, packages, store),
                found.tool,
                arguments,
                meta=context.meta,
                timeout=found.seconds,
                host=host_calls,
            )
        await host_calls.ended()
        return wrap_result(done.value) if done.kind == "ok" else wrap_failure(done)

    async def check(params: Any) -> Any:
        name, _, context = read_execution(params)
        found = await find(name, context)
        with _unavailable():
            if context.digest not in ("", found.spec.digest):
                message = f"the skill `{found.spec.skill}` is not as it is in the core"
                raise SandboxError("skill-changed", message)
            await executor.check(found.spec, found.tool)
        return {}

    async def listed(params: Any) -> Any:
        return [one.info() for one in source.tools()]

    async def reload(params: Any) -> Any:
        loaded, failed = await source.reload()
        await executor.reload(None)
        return {
            "loaded": list(loaded),
            "failed": [{"name": name, "error": error} for name, error in failed],
        }

    async def load(params: Any) -> Any:
        if not isinstance(params, dict) or not isinstance(params.get("skill"), str):
            raise RpcError(INVALID_PARAMS, "expected {skill, context}")
        context = read_context(params.get("context", {}))
        tool = await find(params["skill"], context, is_skill=True)
        with _unavailable():
            return list(await executor.tool_names(cell_for(tool, context, packages, store)))

    async def health(params: Any) -> Any:
        return {"status": executor.health()["status"]}

    return {
        "tool.execute": execute,
        "tool.check": check,
        "tool.list": listed,
        "skill.reload": reload,
        "skill.load": load,
        "health": health,
    }


CODE_MISSING = "code-missing"
"""The reason of an executor that takes code by its digest and does not have it; nothing was run."""


async def _sent(store: CodeStore, name: str, context: ServedCall, *, is_skill: bool) -> ServedTool:
    """Return a tool of the code with the digest of the call, which may have come with it."""
    if not context.digest:
        raise RpcError(INVALID_PARAMS, "expected the digest of the code")
    current = CURRENT.get()
    if current is not None and current.archives is not None:
        await anyio.to_thread.run_sync(store.take, current.archives, context)
        current.taken()
    found = await anyio.to_thread.run_sync(store.tools, context.digest)
    if not found:
        raise RpcError(UNAVAILABLE, "the code is not here", reason=CODE_MISSING)
    if context.packages and store.packages(context) is None:
        raise RpcError(UNAVAILABLE, "the packages are not here", reason=CODE_MISSING)
    for one in found:
        if name in (one.spec.skill if is_skill else one.name, one.tool):
            return one
    raise RpcError(INVALID_PARAMS, f"unknown tool `{name[:80]}` of this code")


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        # Before anything is begun: an executor that runs this language may take the call.
        kind = NotBegunError if error.code == "cell-untested" else RpcError
        raise kind(UNAVAILABLE, str(error), reason=error.code) from error


def cell_for(
    tool: ServedTool,
    context: ServedCall,
    packages: Path | None,
    store: CodeStore | None = None,
) -> CellSpec:
    """Return the cell for a call, if its variables are declared and its packages are here."""
    if undeclared := context.env.keys() - set(tool.env):
        name = min(undeclared)[:80]
        raise RpcError(INVALID_PARAMS, f"`{tool.spec.skill}` does not declare `{name}`")
    place = None
    if context.packages and store is not None:
        place = store.packages(context)
        if place is None:
            raise RpcError(UNAVAILABLE, "the packages are not here", reason=CODE_MISSING)
    elif context.packages:
        if packages is None:
            message = f"`{tool.spec.skill}` has dependencies, and this executor has no packages"
            raise RpcError(UNAVAILABLE, message)
        place = packages / context.packages / "packages"
        if not place.is_dir():
            raise RpcError(UNAVAILABLE, f"the packages of `{tool.spec.skill}` are not there")
    current = CURRENT.get()
    # INVARIANT: calls of two cores never share a cell, whatever they say of themselves.
    whose = f"{current.caller.name}\0" if current is not None and current.caller.name else ""
    return replace(
        tool.spec,
        digest=context.digest or tool.spec.digest,
        env=context.env,
        dependencies=place,
        permissions=f"{whose}{context.permissions} {' '.join(sorted(context.env))}",
        user=str(context.meta.get("userId", "")),
    )


def core_methods(capabilities: Capabilities) -> Mapping[str, Method]:
    """Return core.fetch, core.sign, core.readFile, core.log, core.progress and core.output.

    Each takes the `capability` of the call that asks, beside its published parameters; nothing
    else of the core can be reached (S002-20 to 23).
    """

    def method(name: str) -> Method:
        async def run(params: Any) -> Any:
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "expected an object as params")
            request = RpcRequest(method=name, params=params, id=None)
            with capabilities.asking(params.get("capability")) as host:
                if name in NOTIFICATIONS:
                    take_notification(host, request)
                    return {}
                return await answer_request(host, request)

        return run

    names = ("core.fetch", "core.sign", "core.readFile", *NOTIFICATIONS)
    return {name: method(name) for name in names}


NOTIFICATIONS = ("core.log", "core.progress", "core.output")
"""What has no answer."""
SLACK_SECONDS = 35.0
"""Beyond the call's own time: transport, a cell's start and the wait for one."""
LOG_LINES = 100
"""Lines of a call's own log that are sent on."""
LINE_MAX = 1_000
PROGRESS_SECONDS = 0.2
"""Between two reports of progress: each is a request of its own, and a person reads no faster."""
PARTS_MAX = 1_000
OUTPUT_BYTES = 16 << 20
"""Of a call's output folder that are sent on: they are in this process until it has ended."""


class RemoteHost:
    """Sends the requests of a call in a container to the core, with its capability."""

    network = None

    def __init__(self, client: RpcClient | None, capability: str) -> None:
        """Ask by `client`; None, with an empty capability, asks nothing."""
        self._client = client
        self._capability = capability
        self._lines: list[str] = []
        self._parts: list[OutputPart] = []
        self._room = OUTPUT_BYTES
        self._newest: dict[str, Any] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._turn = anyio.Lock()

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._mapping("core.fetch", request)

    async def sign(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        # A signature waits for a person, whom only the core knows; its clock bounds all the rest.
        with clock_stopped():
            return await self._mapping("core.sign", request)

    async def read_file(self, path: str) -> str:
        content = (await self._mapping("core.readFile", {"path": path})).get("content")
        if not isinstance(content, str):
            raise RpcError(UNAVAILABLE, "the core answered something else")
        return content

    def log(self, text: str) -> None:
        if len(self._lines) < LOG_LINES:
            self._lines.append(text[:LINE_MAX])

    def output(self, part: OutputPart) -> None:
        """Hold it until the call has ended."""
        self._room -= len(part.data)
        if self._room < 0:
            why = f"an executor elsewhere sends at most {OUTPUT_BYTES} bytes"
            part = OutputPart(name=part.name, left_out=why)
            if self._parts and self._parts[-1] == part:
                return
        if len(self._parts) < PARTS_MAX:
            self._parts.append(part)

    def progress(self, fraction: float, text: str) -> None:
        """Send it at once, or as the newest one after a pause."""
        if self._client is not None:
            self._newest = {"fraction": fraction, "text": text[:LINE_MAX]}
            if self._telling is None:
                self._telling = asyncio.get_running_loop().create_task(self._tell(self._client))

    async def _tell(self, client: RpcClient) -> None:
        """Send the newest report until there is none, one at a time; it ends soon after a call."""
        while self._newest is not None:
            await self._tell_newest(client)
            await asyncio.sleep(PROGRESS_SECONDS)
        self._telling = None

    async def _tell_newest(self, client: RpcClient) -> None:
        async with self._turn:
            if self._newest is not None:
                report, self._newest = self._newest, None
                # The call does not fail if its reports are lost.
                with contextlib.suppress(RpcError):
                    params = {**report, "capability": self._capability}
                    await client.tell("core.progress", [params])

    async def ended(self) -> None:
        if self._client is None:
            return
        await self._tell_newest(self._client)
        try:
            for part in self._parts:
                params = output_params(part.name, part.data, part.left_out)
                params = {**params, "capability": self._capability}
                await self._client.ask("core.output", params)
        except RpcError as error:
            self.log(f"files of the output folder were not sent: {error}")
        # Nor if its log is.
        lines = [{"text": line, "capability": self._capability} for line in self._lines]
        with contextlib.suppress(RpcError):
            await self._client.tell("core.log", lines)

    async def _mapping(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._client is None:
            raise RpcError(UNAVAILABLE, "the core gave this call nothing to ask with")
        reply = await self._client.ask(method, {**params, "capability": self._capability})
        if not isinstance(reply, dict):
            raise RpcError(UNAVAILABLE, "the core answered something else")
        return reply


class ExecutorClient(Protocol):
    async def ask(self, method: str, params: Mapping[str, Any]) -> Any: ...


class RemoteExecutor:
    """Runs tools in a container, whose executor sends requests back (S002-8 to 12)."""

    def __init__(self, client: ExecutorClient, capabilities: Capabilities) -> None:
        """Use the executors of `client`; `core_methods` serve the same `capabilities`."""
        self._client = client
        self._capabilities = capabilities

    async def execute(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout: float,  # noqa: ASYNC109 - the result reports it.
        host: HostCalls,
        client: ExecutorClient | None = None,
        **fields: Any,
    ) -> Mapping[str, Any]:
        """Return the ToolResult of one call; see `Executor.execute`.

        Args:
            tool: Its name on the wire, `skill:tool`.
            client: What is asked in place of the executors of all calls.
            fields: More of `ServedCall`.

        Raises:
            NoAnswerError: the container is not running, or ended before it answered.
            RpcError: the container refused.
        """
        with CallClock(timeout + SLACK_SECONDS), self._capabilities.of(host) as token:
            context = {**fields, "meta": dict(meta), "capability": token}
            params = {"tool": tool, "args": dict(arguments), "context": context}
            found = await (client or self._client).ask("tool.execute", params)
            if not isinstance(found, dict) or "success" not in found:
                raise NoAnswerError("the executor answered something else", is_sent=True)
            return found
        return {"success": False, "error": timeout_text(timeout)}
