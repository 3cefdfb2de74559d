"""The executor that is elsewhere, as in a container: what the core asks of it, and it of the core.

Permissions, questions, secrets and the network stay here. What goes there is the call, the digest
of the code that was judged, the variables that the operator hands to this skill, and a capability
that ends with the call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from skillhouse import sandbox
from skillhouse.floor import ConfigError
from skillhouse.runtime.extension_settings import SkillCodeSettings
from skillhouse.sandbox import (
    TOOL_SECONDS,
    Capabilities,
    CellResult,
    CellSpec,
    HostCalls,
    RpcError,
    SandboxError,
)
from skillhouse.sandbox.rpc import UNAVAILABLE

TOKEN_BYTES = 4_096
LOAD_SECONDS = 60.0
"""Time for the executor to load one skill's code, or to read all manifests."""
RETRY_PORT = 0


class ContainerExecutor:
    """Offers what `sandbox.Executor` offers, and runs nothing here."""

    def __init__(self, settings: SkillCodeSettings, environment: Mapping[str, str]) -> None:
        """Take where the executor is, and where it may ask back.

        Raises:
            ConfigError: the token cannot be had, or an address is none.
        """
        token = token_of(settings, environment)
        self._capabilities = Capabilities()
        self._address = settings.executor
        self._host, self._port = callback_of(settings.callback)
        try:
            self._client = sandbox.RpcClient(settings.executor, token)
            self._server = sandbox.RpcServer(sandbox.core_methods(self._capabilities), token=token)
        except ValueError as error:
            raise ConfigError(str(error), key="skill_code.executor") from error
        self._remote = sandbox.RemoteExecutor(self._client, self._capabilities)
        self._serving: asyncio.Task[None] | None = None
        self._listening: asyncio.Future[int] | None = None

    async def execute(
        self,
        spec: CellSpec,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout: float = TOOL_SECONDS,  # noqa: ASYNC109 - a result tells of it.
        host: HostCalls,
    ) -> CellResult:
        """Run a tool once; see `Executor.execute`.

        When the executor is gone in the middle, the call may have had its effect and is not
        repeated.

        Raises:
            RpcError: nothing was run.
        """
        told = {**_told(spec), "port": await self._asked_back()}
        began = time.monotonic()
        try:
            found = await self._remote.execute(
                f"{spec.skill}:{tool}", arguments, meta=meta, timeout=timeout, host=host, **told
            )
        except sandbox.NoAnswerError as error:
            if not error.is_sent:
                raise RpcError(error.code, f"nothing was run: {error}") from error
            said = f"{error}; the call may have had its effect, and is not repeated"
            return CellResult(kind="crashed", error=said, seconds=time.monotonic() - began)
        return _result(found, time.monotonic() - began)

    async def tool_names(self, spec: CellSpec) -> tuple[str, ...]:
        """Return what the skill's code exports; see `Executor.tool_names`.

        Raises:
            SandboxError: the code does not load.
            RpcError: the executor is not there.
        """
        params = {"skill": spec.skill, "context": _told(spec)}
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
        """Have all skills read anew there; calls under way end with the old code.

        Raises:
            RpcError: the executor is not there.
        """
        await self._asked("skill.reload", {})

    async def _asked(self, method: str, params: Mapping[str, Any]) -> Any:
        with anyio.move_on_after(LOAD_SECONDS):
            return await self._client.ask(method, params)
        raise RpcError(UNAVAILABLE, f"the executor at {self._address} takes too long")

    async def close(self) -> None:
        """Listen no more; what calls under way still ask is refused."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
            self._serving = self._listening = None

    async def _asked_back(self) -> int:
        """Return the port at which the executor may ask, listening from the first call on.

        Raises:
            RpcError: the address cannot be had.
        """
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
            # Another program of this house may have the port: each tells the executor its own.
            try:
                async with self._server.listening(self._host, port) as number:
                    found.set_result(number)
                    await anyio.sleep_forever()
            except OSError as error:
                if port == RETRY_PORT:
                    found.set_exception(error)
                    return


def token_of(settings: SkillCodeSettings, environment: Mapping[str, str]) -> str:
    """Return the token by which core and executor know each other.

    Raises:
        ConfigError: it is not where `executor_token` says; what is there is never shown.
    """
    kind, _, name = settings.executor_token.partition(":")
    key = "skill_code.executor_token"
    try:
        token = environment.get(name, "") if kind == "env" else _file_text(Path(name))
        sandbox.check_token(token.strip())
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read the token in `{name}`: {said}", key=key) from error
    except ValueError as error:
        raise ConfigError(f"{error} in `{name}`", key=key) from None
    return token.strip()


def _file_text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(TOKEN_BYTES).decode("ascii", "replace")


def callback_of(text: str) -> tuple[str, int]:
    """Return the address and the port of HOST:PORT.

    >>> callback_of("0.0.0.0:8701"), callback_of("[::1]:0")
    (('0.0.0.0', 8701), ('::1', 0))

    Raises:
        ValueError: it is none.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise ValueError(f"expected ADDRESS:PORT, got {text!r}")
    return host, int(port)


def _told(spec: CellSpec) -> dict[str, Any]:
    """Return what of a cell the executor is to know; it has its own copy of the skill."""
    packages = spec.dependencies
    return {
        "digest": spec.digest,
        "env": dict(spec.env),
        "permissions": spec.permissions,
        # PATH/KEY/packages (environment_store).
        "packages": "" if packages is None else packages.parent.name,
    }


def _result(found: Mapping[str, Any], seconds: float) -> CellResult:
    """Return a ToolResult as what came of a call, so that it reads the same as one from here."""
    error = found.get("error")
    if (
        found["success"] is False
        and isinstance(error, str)
        and found.keys() == {"success", "error"}
    ):
        is_late = error.startswith("Skill execution timeout (")
        return CellResult(kind="timeout" if is_late else "error", error=error, seconds=seconds)
    return CellResult(kind="ok", value=found, seconds=seconds)
