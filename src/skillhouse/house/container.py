"""The executors that are elsewhere, as in containers: what the core asks of them, and they of it.

Permissions, questions, secrets and the network stay here. What goes there is the call, the digest
of the code that was judged, the variables that the operator hands to this skill, and a capability
that ends with the call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from skillhouse.extension import OwnPackage
from skillhouse.floor import ConfigError
from skillhouse.floor.structs import replace
from skillhouse.house.config import callback_of
from skillhouse.sandbox import SandboxError
from skillhouse.sandbox.code_call import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    RESOURCE_LIMIT,
    TOOL_FAILED,
    TOOL_SECONDS,
    UNAVAILABLE,
    CellResult,
    Kind,
    RpcError,
)

if TYPE_CHECKING:
    from skillhouse.house.config import SkillCodeSettings
    from skillhouse.sandbox.code_call import CellSpec, ExecutorState, HostCalls

cells = OwnPackage("cells")
logger = logging.getLogger(__name__)
TOKEN_BYTES = 4_096
LOAD_SECONDS = 60.0
"""Time for the executor to load one skill's code, or to read all manifests."""
RETRY_PORT = 0
LOOK_SECONDS = 2.0
"""How long what executors say of themselves is shown before they are asked again."""
FORMER_SECONDS = 600.0
"""How long after a change an executor may know the token before only."""


class ExecutorPlaces(Protocol):
    """Several executors as one, as the extension makes them of their addresses."""

    async def ask(self, method: str, params: Mapping[str, Any], parcel: Any) -> Any: ...

    async def ask_all(
        self, method: str, params: Mapping[str, Any]
    ) -> Sequence[tuple[str, Any | RpcError]]: ...

    async def states(self, runs: str) -> Sequence[ExecutorState]: ...


class ContainerExecutor:
    """Offers what `cells.Executor` offers, and runs nothing here."""

    def __init__(self, settings: SkillCodeSettings, environment: Mapping[str, str]) -> None:
        """Take the addresses and ours; ConfigError if one, the token or a file is unusable."""
        self._token = CoreToken(settings.executor_token, environment)
        self._capabilities = cells.Capabilities()
        self._host, self._port = callback_of(settings.callback)
        self._url = settings.callback_url
        key = "skill_code.executor_certificate"
        try:
            tls = _client_tls(settings)
            own_tls = None
            if self._url.startswith("https:"):
                own_tls = cells.TlsFiles(
                    _tls_paths(settings), is_server=True, report=logger.warning
                )
            key = "skill_code.callback_url"
            if self._url:
                cells.RpcClient(self._url, "")
            key = "skill_code.executor"
            self._pools: Mapping[str, ExecutorPlaces] = {
                name: cells.ExecutorPool(
                    [
                        cells.RpcClient(url, self._token, tls=tls, former=self._token.former)
                        for url in urls
                    ]
                )
                for name, urls in _addresses(settings).items()
            }
        except ValueError as error:
            raise ConfigError(str(error), key=key) from error
        methods = cells.core_methods(self._capabilities)
        self._server = cells.RpcServer(methods, token=self._token, tls=own_tls)
        self._remote = cells.RemoteExecutor(self._pools.get("", None), self._capabilities)
        self._looked: tuple[float, Sequence[ExecutorState]] = (-LOOK_SECONDS, ())
        # Used on the loop of the portal alone.
        self._looking = anyio.Lock()
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
        repeated: its result is of the kind "unknown".
        """
        client = self._pool(spec)
        payload = {**_executor_payload(spec), **await self._callback()}
        began = time.monotonic()
        try:
            found = await self._remote.execute(
                f"{spec.skill}:{tool}",
                arguments,
                meta=meta,
                timeout=timeout,
                host=host,
                client=client,
                **payload,
            )
        except cells.NoAnswerError as error:
            if not error.is_sent:
                raise RpcError(error.code, f"nothing was run: {error}") from error
            return _unknown(error, time.monotonic() - began)
        except RpcError as error:
            if error.code == INTERNAL_ERROR:
                return _unknown(error, time.monotonic() - began)
            if error.code in _FAILURES:
                seconds = time.monotonic() - began
                return CellResult(kind=_FAILURES[error.code], error=str(error), seconds=seconds)
            raise
        return _result(found, time.monotonic() - began)

    def _pool(self, spec: CellSpec) -> _SpecPool:
        """Return the executors of a skill: by what its manifest asks for, its language, or all."""
        for name in (spec.executor,) if spec.executor else (spec.language, ""):
            if name in self._pools:
                return _SpecPool(self._pools[name], spec)
        named = f"`{spec.executor}`" if spec.executor else spec.language
        message = f"nothing was run: no executor for {named} is configured"
        raise RpcError(UNAVAILABLE, message, reason="no-executor")

    async def check(self, spec: CellSpec, tool: str) -> None:
        """Raise RpcError where the executor could not run this tool of this code."""
        params = {"tool": f"{spec.skill}:{tool}", "context": {"digest": spec.digest}}
        try:
            await self._asked(self._pool(spec), "tool.check", params)
        except RpcError as error:
            # An executor that others wrote need not have it: the design does not name it.
            if error.code != METHOD_NOT_FOUND:
                said = str(error)
                prefix = "" if said.startswith("nothing was run") else "nothing was run: "
                raise RpcError(error.code, f"{prefix}{said}") from error

    async def tool_names(self, spec: CellSpec) -> tuple[str, ...]:
        """Return what the skill's code exports; see `Executor.tool_names`.

        Raises:
            SandboxError: the code does not load.
            RpcError: the executor is not there.
        """
        params = {"skill": spec.skill, "context": _executor_payload(spec)}
        try:
            found = await self._asked(self._pool(spec), "skill.load", params)
        except RpcError as error:
            if error.reason:
                raise SandboxError(error.reason, str(error)) from error
            raise
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise SandboxError("skill-failed", f"`{spec.skill}`: expected a list of names")
        return tuple(sorted(set(found)))

    async def reload(self, skill: str | None) -> None:
        """Reload all skills in every executor; running calls finish with the old code.

        Raises:
            RpcError: one did not; the message names each, and the others have.
        """
        failed: list[str] = []
        for pool in self._pools.values():
            with anyio.move_on_after(LOAD_SECONDS) as waiting:
                for place, said in await pool.ask_all("skill.reload", {}):
                    # One that ends takes no call any more: it has nothing to reload.
                    if isinstance(said, RpcError) and said.reason != "ending":
                        failed.append(str(said) if len(self._pools) == 1 else f"{place}: {said}")
            if waiting.cancelled_caught:
                failed.append("an executor takes too long")
        if failed:
            raise RpcError(UNAVAILABLE, "; ".join(failed))

    async def health(self) -> Mapping[str, Any]:
        """Return what each executor says of itself, by its address; its error where it fails."""
        found: dict[str, Any] = {}
        for pool in self._pools.values():
            with anyio.move_on_after(LOAD_SECONDS):
                found |= dict(await pool.ask_all("health", {}))
        return found

    async def states(self) -> Sequence[ExecutorState]:
        """Return how each executor is, by its address; asked again only after a moment. Who comes
        while they are asked gets what that look finds."""
        async with self._looking:
            at, states = self._looked
            if time.monotonic() < at + LOOK_SECONDS:
                return states
            looks: dict[str, Sequence[ExecutorState]] = {}

            async def look(name: str, pool: Any) -> None:
                looks[name] = await pool.states(name)

            async with anyio.create_task_group() as tasks:
                for name, pool in self._pools.items():
                    tasks.start_soon(look, name, pool)
            found: dict[str, ExecutorState] = {}
            for name in self._pools:
                for one in looks[name]:
                    before = found.get(one.id)
                    runs = (*before.runs, name) if before else (name,)
                    best = one if before is None or one.isolation == "shown" else before
                    found[one.id] = replace(best, runs=runs)
            self._looked = (time.monotonic(), tuple(found.values()))
            return self._looked[1]

    async def _asked(self, pool: _SpecPool, method: str, params: Mapping[str, Any]) -> Any:
        with anyio.move_on_after(LOAD_SECONDS):
            return await pool.ask(method, params)
        raise RpcError(UNAVAILABLE, "the executor takes too long")

    async def close(self) -> None:
        """Stop listening; further host calls of running calls are refused."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
            self._serving = self._listening = None

    async def _callback(self) -> Mapping[str, Any]:
        port = await self._asked_back()
        if not self._url:
            return {"port": port}
        # The address may be one of a network that translates ports, if ours is as configured.
        return {"core": self._url if port == self._port else cells.at_port(self._url, port)}

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


class _SpecPool:
    """Executors, and the code of one call that they may have to be sent."""

    def __init__(self, pool: ExecutorPlaces, spec: CellSpec) -> None:
        self._pool = pool
        self._parcel = cells.Parcel(
            digest=spec.digest, directory=spec.directory, packages=spec.dependencies
        )

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        try:
            return await self._pool.ask(method, params, self._parcel)
        except SandboxError as error:
            raise RpcError(UNAVAILABLE, str(error), reason=error.code) from error


class CoreToken:
    """The token of this core, read again when its file changes: each request shows the new one.

    Calls that are under way ask with the one that they began with, so the one before is taken, too.
    """

    def __init__(self, place: str, environment: Mapping[str, str]) -> None:
        self._place = place
        self._environment = environment
        self._stamp = self._look()
        self._changed_at = 0.0
        self._now = self._before = token_at(place, environment, key="skill_code.executor_token")

    def __call__(self) -> str:
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                found = token_at(self._place, self._environment, key="skill_code.executor_token")
            except ConfigError as error:
                logger.warning("the new token of the executors is not used: %s", error)
            else:
                if found != self._now:
                    self._before, self._now = self._now, found
                    self._changed_at = time.monotonic()
        return self._now

    def former(self) -> str:
        """Return the token before, for an executor that has not read the new one yet."""
        is_new = self._changed_at and time.monotonic() - self._changed_at < FORMER_SECONDS
        return self._before if is_new else ""

    def caller(self, token: str) -> Any:
        return cells.FixedTokens(self(), self._before).caller(token)

    def _look(self) -> object:
        kind, _, name = self._place.partition(":")
        if kind != "file":
            return None
        try:
            info = os.stat(name)
        except OSError as error:
            return error.errno
        return (info.st_ino, info.st_mtime_ns, info.st_size)


def _addresses(settings: SkillCodeSettings) -> Mapping[str, Sequence[str]]:
    """Return the addresses by what is run there; "" is for all else."""
    found: dict[str, Sequence[str]] = {"": (settings.executor,)} if settings.executor else {}
    for name, urls in settings.executors.items():
        found[name] = (urls,) if isinstance(urls, str) else urls
        if not found[name]:
            raise ValueError(f"expected an address in `executors.{name}`")
    return found


def _tls_paths(settings: SkillCodeSettings) -> Any:
    def path(text: str) -> Path | None:
        return Path(text) if text else None

    return cells.TlsPaths(
        certificate=path(settings.executor_certificate),
        key=path(settings.executor_key),
        ca=path(settings.executor_ca),
    )


def _client_tls(settings: SkillCodeSettings) -> Any:
    if not (settings.executor_ca or settings.executor_certificate):
        return None
    return cells.TlsFiles(_tls_paths(settings), is_server=False, report=logger.warning)


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


_FAILURES: Mapping[int, Kind] = {TOOL_FAILED: "error", RESOURCE_LIMIT: "resource-limit"}
"""Errors of executors that others wrote, as the design has them; ours answers with a ToolResult."""


def _unknown(error: RpcError, seconds: float) -> CellResult:
    said = f"{error}; the call may have had its effect, and is not repeated"
    return CellResult(kind="unknown", error=said, seconds=seconds)


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
