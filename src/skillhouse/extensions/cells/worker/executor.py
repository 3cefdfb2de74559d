"""The skill executor as a program: it runs skills' code, and asks the core for everything else.

The same program runs in a container and beside the core. It holds no key and no variable of a
skill, and opens nothing but its one port.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
from msgspec import Struct

from skillhouse.extensions.cells import (
    DirectorySource,
    Executor,
    Method,
    RemoteHost,
    RpcClient,
    RpcError,
    RpcServer,
    ServedCall,
    executor_methods,
)
from skillhouse.floor import SkillhouseError
from skillhouse.sandbox import SandboxStatus
from skillhouse.sandbox.code_call import UNAVAILABLE

FINISH_SECONDS = 8.0
"""How long calls may go on once the end was asked for; docker kills after 10."""

Report = Callable[[Mapping[str, Any]], None]


class ExecutorSettings(Struct, frozen=True, kw_only=True):
    host: str
    port: int
    """0 takes a free one."""
    token: str
    """By which the core and the executor know each other, in both directions."""
    core: str
    """Where the core is asked: http://HOST:PORT/rpc."""
    skills: tuple[Path, ...]
    state: Path
    """Directory for private copies of skills."""
    packages: Path | None = None
    """The store of installed dependencies, which the core fills."""
    shared: Mapping[str, tuple[Path, ...]]
    """Directories of packages for all skills, nearest first, by language."""


async def run_executor(
    settings: ExecutorSettings, status: SandboxStatus, announce: Report, report: Report
) -> None:
    """Serve until SIGINT or SIGTERM; then take nothing new, and let calls end for a while.

    Code runs at the level of `status`. `announce` gets the first line as soon as the port is ours,
    `report` a line for each call and for what fails.

    Raises:
        OSError: the address cannot be had.
        ValueError: the token or the core's address is none.
    """
    shelf = DirectorySource(settings.skills, shared=settings.shared)
    clients: dict[int, RpcClient] = {}

    def host(context: ServedCall) -> RemoteHost:
        if context.port not in clients:
            clients[context.port] = RpcClient(at_port(settings.core, context.port), settings.token)
        return RemoteHost(clients[context.port], context.capability)

    at_port(settings.core, 0)
    executor = Executor(status, state=settings.state)
    methods = executor_methods(executor, shelf, host, packages=settings.packages)
    running = _RunningExecutor()
    served = {name: _reported(name, method, report, running) for name, method in methods.items()}
    server = RpcServer(served, token=settings.token)
    try:
        loaded, failed = await shelf.reload()
        for name, error in failed:
            report({"event": "failed", "skill": name, "error": error})
        async with server.listening(settings.host, settings.port) as port:
            with _ending() as ended:
                announce(
                    {
                        "event": "listening",
                        "address": f"http://{settings.host}:{port}/rpc",
                        "level": str(status.level),
                        "skills": list(loaded),
                        "tools": len(shelf.tools()),
                    }
                )
                await ended.wait()
            report({"event": "ending", "calls": running.count})
            running.is_ending = True
            with anyio.move_on_after(FINISH_SECONDS):
                await running.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await executor.close()


def at_port(url: str, port: int) -> str:
    """Return the core's address with another port; 0 leaves it as it is.

    >>> at_port("http://core:8701/rpc", 9000)
    'http://core:9000/rpc'

    Raises:
        ValueError: it is no such address.
    """
    RpcClient(url, "")
    if not port:
        return url
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return urlunsplit(parts._replace(netloc=f"{host}:{port}"))


class _RunningExecutor:
    def __init__(self) -> None:
        self.count = 0
        self.is_ending = False
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self.count += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if not self.count:
            self._none.set()

    async def wait(self) -> None:
        await self._none.wait()


def _reported(name: str, method: Method, report: Report, running: _RunningExecutor) -> Method:
    """Return the method with a line of the log for each request, and none begun at the end."""

    async def run(params: Any) -> Any:
        if running.is_ending:
            raise RpcError(
                UNAVAILABLE, "the executor is ending; nothing was begun", reason="ending"
            )
        began = time.monotonic()
        line: dict[str, Any] = {"event": name}
        if isinstance(params, dict):
            tool = params.get("tool", params.get("skill"))
            line |= {"tool": str(tool)[:160]} if tool is not None else {}
        outcome = "cancelled"
        try:
            with running:
                result = await method(params)
            is_failure = isinstance(result, dict) and result.get("success") is False
            outcome = "failed" if is_failure else "ok"
        except SkillhouseError as error:
            outcome = "refused"
            line |= {"error": str(error)[:500]}
            raise
        except Exception as error:
            # What is answered says nothing of this machine; the operator's log does.
            outcome = "broken"
            line |= {"error": f"{type(error).__name__}: {error}"[:500]}
            raise
        else:
            return result
        finally:
            if name != "health" and (name, outcome) != ("tool.check", "ok"):
                report({**line, "outcome": outcome, "seconds": round(time.monotonic() - began, 3)})

    return run


@contextmanager
def _ending() -> Iterator[asyncio.Event]:
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, event.set)
    try:
        yield event
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def line_of(value: Mapping[str, Any]) -> str:
    """Return one line of the log: JSON in ASCII, so that nothing in it ends a line or hides.

    >>> line_of({"event": "failed", "error": "a\\nb"})
    '{"event": "failed", "error": "a\\\\nb"}'
    """
    return json.dumps(dict(value), ensure_ascii=True)
