"""The executor that is elsewhere, as in a container: what the core asks of it, and it of the core.

Permissions, questions, secrets and the network stay here. What goes there is the call, the digest
of the code that was judged, the variables that the operator hands to this skill, and a capability
that ends with the call.
"""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.extension import OwnPackage
from skillhouse.floor import ConfigError
from skillhouse.house.config import callback_of
from skillhouse.sandbox import SandboxError
from skillhouse.sandbox.code_call import (
    METHOD_NOT_FOUND,
    TOOL_SECONDS,
    UNAVAILABLE,
    CellResult,
    RpcError,
)

if TYPE_CHECKING:
    from skillhouse.house.config import SkillCodeSettings
    from skillhouse.sandbox.code_call import CellSpec, HostCalls

cells = OwnPackage("cells")
TOKEN_BYTES = 4_096
LOAD_SECONDS = 60.0
"""Time for the executor to load one skill's code, or to read all manifests."""
RETRY_PORT = 0


class ContainerExecutor:
    """Offers what `cells.Executor` offers, and runs nothing here."""

    def __init__(self, settings: SkillCodeSettings, environment: Mapping[str, str]) -> None:
        """Take the executor's address and ours; ConfigError if one or the token is unusable."""
        token = token_at(settings.executor_token, environment, key="skill_code.executor_token")
        self._capabilities = cells.Capabilities()
        self._address = settings.executor
        self._host, self._port = callback_of(settings.callback)
        try:
            self._client = cells.RpcClient(settings.executor, token)
            self._server = cells.RpcServer(cells.core_methods(self._capabilities), token=token)
        except ValueError as error:
            raise ConfigError(str(error), key="skill_code.executor") from error
        self._remote = cells.RemoteExecutor(self._client, self._capabilities)
        self._serving: asyncio.Task[None] | None = None
        self._listening: asyncio.Future[int] | None = None

    async def execute(
        self,
        spec: CellSpec,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout: float = TOOL_SECONDS,  # noqa: ASYNC109 - reported in the result.
        host: HostCalls,
    ) -> CellResult:
        """Run a tool once, see `Executor.execute`; RpcError only if nothing was run.

        When the executor is gone in the middle, the call may have had its effect and is not
        repeated.
        """
        payload = {**_executor_payload(spec), "port": await self._asked_back()}
        began = time.monotonic()
        try:
            found = await self._remote.execute(
                f"{spec.skill}:{tool}", arguments, meta=meta, timeout=timeout, host=host, **payload
            )
        except cells.NoAnswerError as error:
            if not error.is_sent:
                raise RpcError(error.code, f"nothing was run: {error}") from error
            said = f"{error}; the call may have had its effect, and is not repeated"
            return CellResult(kind="crashed", error=said, seconds=time.monotonic() - began)
        return _result(found, time.monotonic() - began)

    async def check(self, spec: CellSpec, tool: str) -> None:
        """Raise RpcError where the executor could not run this tool of this code."""
        params = {"tool": f"{spec.skill}:{tool}", "context": {"digest": spec.digest}}
        try:
            await self._asked("tool.check", params)
        except RpcError as error:
            # An executor that others wrote need not have it: the design does not name it.
            if error.code != METHOD_NOT_FOUND:
                raise RpcError(error.code, f"nothing was run: {error}") from error

    async def tool_names(self, spec: CellSpec) -> tuple[str, ...]:
        """Return what the skill's code exports; see `Executor.tool_names`.

        Raises:
            SandboxError: the code does not load.
            RpcError: the executor is not there.
        """
        params = {"skill": spec.skill, "context": _executor_payload(spec)}
        try:
            found = await self._asked("skill.load", params)
        except RpcError as error:
            if error.reason:
                raise SandboxError(error.reason, str(error)) from error
            raise
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise SandboxError("skill-failed", f"`{spec.skill}`: expected a list of names")
        return tuple(sorted(set(found)))

    async def reload(self, skill: str | None) -> None:
        """Reload all skills there; running calls finish with the old code. RpcError: it is gone."""
        await self._asked("skill.reload", {})

    async def _asked(self, method: str, params: Mapping[str, Any]) -> Any:
        with anyio.move_on_after(LOAD_SECONDS):
            return await self._client.ask(method, params)
        raise RpcError(UNAVAILABLE, f"the executor at {self._address} takes too long")

    async def close(self) -> None:
        """Stop listening; further host calls of running calls are refused."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
            self._serving = self._listening = None

    async def _asked_back(self) -> int:
        """Return the port for host calls, open from the first call on; RpcError if it cannot be."""
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_future()
            self._serving = asyncio.get_running_loop().create_task(self._listen(self._listening))
        try:
            return await asyncio.shield(self._listening)
        except OSError as error:
            self._listening = None
            said = f"nothing was run: cannot listen on `{self._host}`, which `callback` names"
            raise RpcError(
                UNAVAILABLE, f"{said}: {(error.strerror or str(error)).lower()}"
            ) from error

    async def _listen(self, found: asyncio.Future[int]) -> None:
        for port in (self._port, RETRY_PORT):
            # Another process of this state may use the port; each sends the executor its own.
            try:
                async with self._server.listening(self._host, port) as number:
                    found.set_result(number)
                    await anyio.sleep_forever()
            except OSError as error:
                if port == RETRY_PORT:
                    found.set_exception(error)
                    return


def token_at(place: str, environment: Mapping[str, str], *, key: str = "") -> str:
    """Return the token by which core and executor know each other, without the end of its line.

    Args:
        place: `file:PATH` or `env:NAME`.
        environment: The variables.
        key: What of the configuration names the place.

    Raises:
        ConfigError: it is not there, or is none; what is there is never shown.
    """
    kind, _, name = place.partition(":")
    if kind == "env":
        if not environment.get(name):
            raise ConfigError(f"expected the token in the variable `{name}`", key=key)
        token = environment[name]
    else:
        token = _file_text(Path(name), key)
    try:
        cells.check_token(token.strip())
    except ValueError as error:
        raise ConfigError(f"{error} in `{name}`", key=key) from None
    return token.strip()


def _file_text(path: Path, key: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # A pipe would be waited for.
            raise ConfigError("expected a file with the token", path=path, key=key)
        with path.open("rb") as file:
            return file.read(TOKEN_BYTES).decode("ascii", "replace")
    except OSError as error:
        message = f"cannot read the token: {(error.strerror or str(error)).lower()}"
        raise ConfigError(message, path=path, key=key) from error


def _executor_payload(spec: CellSpec) -> dict[str, Any]:
    """Return the parts of a cell that the executor needs; it has its own copy of the skill."""
    packages = spec.dependencies
    return {
        "digest": spec.digest,
        "env": dict(spec.env),
        "permissions": spec.permissions,
        # PATH/KEY/packages (environment_store).
        "packages": "" if packages is None else packages.parent.name,
    }


def _result(found: Mapping[str, Any], seconds: float) -> CellResult:
    """Return the result in the form that local code gives."""
    error = found.get("error")
    if (
        found["success"] is False
        and isinstance(error, str)
        and found.keys() == {"success", "error"}
    ):
        is_late = error.startswith("Skill execution timeout (")
        return CellResult(kind="timeout" if is_late else "error", error=error, seconds=seconds)
    return CellResult(kind="ok", value=found, seconds=seconds)
