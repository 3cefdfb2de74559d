"""The published methods: what an executor in a container offers, and what the core offers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from skillhouse.sandbox.cell import (
    TOOL_SECONDS,
    Capabilities,
    CellSpec,
    HostCalls,
    wrap_failure,
    wrap_result,
)
from skillhouse.sandbox.dialogue import answered, tell
from skillhouse.sandbox.executor import Executor
from skillhouse.sandbox.rpc import INVALID_PARAMS, Request, RpcError
from skillhouse.sandbox.serving import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTool:
    """One tool of a skill, as `tool.list` shows it, and how it is run."""

    name: str
    """Its name on the wire, `skill:tool`."""
    tool: str
    """Its name in the skill's code."""
    spec: CellSpec
    description: str
    parameters: Mapping[str, Any]
    level: str
    """"read", "write" or "sign"."""
    seconds: float = TOOL_SECONDS

    def info(self) -> dict[str, Any]:
        """Return its ToolInfo (S002-17)."""
        return {
            "name": self.name,
            "skill": self.spec.skill,
            "description": self.description,
            "parameters": dict(self.parameters),
            "security": {"level": self.level},
        }


class Shelf(Protocol):
    """The tools that are served."""

    def tools(self) -> Sequence[ServedTool]: ...

    async def reload(self) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """Read the skills anew; return the names of those there, and (name, error) of the rest."""
        ...


def executor_methods(
    executor: Executor, shelf: Shelf, host: Callable[[str], HostCalls]
) -> Mapping[str, Method]:
    """Return tool.execute, tool.list, skill.reload and health (S002-16 to 19).

    Args:
        host: Makes what a call asks of the core, from the capability that the core gave it.
    """

    async def execute(params: Any) -> Any:
        name, arguments, context = _execution(params)
        found = next((one for one in shelf.tools() if one.name == name), None)
        if found is None:
            raise RpcError(INVALID_PARAMS, f"unknown tool `{name[:80]}`")
        done = await executor.execute(
            found.spec,
            found.tool,
            arguments,
            meta=context.get("meta", {}),
            timeout=found.seconds,
            host=host(context.get("capability", "")),
        )
        return wrap_result(done.value) if done.kind == "ok" else wrap_failure(done)

    async def listed(params: Any) -> Any:
        return [one.info() for one in shelf.tools()]

    async def reload(params: Any) -> Any:
        loaded, failed = await shelf.reload()
        await executor.reload(None)
        return {
            "loaded": list(loaded),
            "failed": [{"name": name, "error": error} for name, error in failed],
        }

    async def health(params: Any) -> Any:
        return {"status": executor.health()["status"]}

    return {
        "tool.execute": execute,
        "tool.list": listed,
        "skill.reload": reload,
        "health": health,
    }


def _execution(params: Any) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    if not isinstance(params, dict) or params.keys() - {"tool", "args", "context"}:
        raise RpcError(INVALID_PARAMS, "expected {tool, args, context}")
    tool, arguments = params.get("tool"), params.get("args", {})
    context = params.get("context", {})
    is_right = (
        isinstance(tool, str)
        and isinstance(arguments, dict)
        and isinstance(context, dict)
        and isinstance(context.get("meta", {}), dict)
        and isinstance(context.get("capability", ""), str)
    )
    if not is_right:
        raise RpcError(INVALID_PARAMS, "expected {tool: text, args: object, context: object}")
    return str(tool), arguments, context


def core_methods(capabilities: Capabilities) -> Mapping[str, Method]:
    """Return core.fetch, core.sign, core.readFile, core.log and core.progress.

    Each takes the `capability` of the call that asks, beside its published parameters; nothing
    else of the core can be reached (S002-20 to 23).
    """

    def method(name: str) -> Method:
        async def run(params: Any) -> Any:
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "expected an object as params")
            host = capabilities.host(params.get("capability"))
            asked = Request(method=name, params=params, id=None)
            if name in ("core.log", "core.progress"):
                tell(host, asked)
                return {}
            return await answered(host, asked)

        return run

    names = ("core.fetch", "core.sign", "core.readFile", "core.log", "core.progress")
    return {name: method(name) for name in names}
