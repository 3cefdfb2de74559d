"""The skill executor as a program: it runs skills' code, and asks the core for everything else.

The same program runs in a container and beside the core. It holds no key and no variable of a
skill, and opens nothing but its one port.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

import skillhouse
from skillhouse.extensions.cells import (
    DirectorySource,
    Executor,
    FixedTokens,
    Method,
    RemoteHost,
    RpcClient,
    RpcError,
    RpcServer,
    ServedCall,
    TlsFiles,
    TlsPaths,
    at_port,
    executor_methods,
)
from skillhouse.extensions.cells.code_store import CodeStore
from skillhouse.extensions.cells.rpc import INVALID_PARAMS, NotBegunError
from skillhouse.extensions.cells.rpc_http import CURRENT
from skillhouse.extensions.cells.rpc_tokens import TokenCheck
from skillhouse.extensions.cells.uploads import Uploads, code_digests
from skillhouse.floor import SkillhouseError
from skillhouse.sandbox import SandboxError, SandboxStatus, SandboxUnavailableError
from skillhouse.sandbox.code_call import UNAVAILABLE

CALLS = 256
"""Calls at one time: of one cell 8 run, and more wait for their turn."""
BOUNDED = frozenset({"tool.execute", "skill.load"})
"""Methods that start code."""
TEST_SECONDS = 300.0
"""Between two self-tests of an executor that is asked whether it is ready."""
FINISH_SECONDS = 8.0
"""How long calls may go on once the end was asked for; docker kills after 10."""

Report = Callable[[Mapping[str, Any]], None]
SelfTest = Callable[[], Awaitable[SandboxStatus]]


class ExecutorSettings(Struct, frozen=True, kw_only=True):
    host: str
    port: int
    """0 takes a free one."""
    tokens: TokenCheck
    """By which cores and the executor know each other: a core is asked with the token that it has
    shown itself."""
    cores: tuple[str, ...]
    """Where cores are asked: http[s]://HOST:PORT/rpc, the first where a call names none. A host may
    be `*.NAME` or `*`."""
    skills: tuple[Path, ...]
    """With none, the code comes from the cores, by its digest."""
    tls: TlsPaths | None = None
    """None serves without TLS."""
    calls: int = CALLS
    """Most calls at one time; more are refused with 503."""
    drain_seconds: float = FINISH_SECONDS
    """How long calls may go on once the end was asked for."""
    probe_port: int | None = None
    """Where `/healthz` and `/readyz` are answered without TLS as well; 0 takes a free one."""
    name: str = ""
    """What it is called in its own answers."""
    state: Path
    """Directory for private copies of skills."""
    packages: Path | None = None
    """The store of installed dependencies, which the core fills."""
    shared: Mapping[str, tuple[Path, ...]]
    """Directories of packages for all skills, nearest first, by language."""


async def run_executor(
    settings: ExecutorSettings,
    status: SandboxStatus,
    announce: Report,
    report: Report,
    *,
    test: SelfTest | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; then take nothing new, and let calls end for a while.

    Code runs at the level of `status`. `announce` gets the first line as soon as the port is ours,
    `report` a line for each call and for what fails. `test` is run again from time to time while
    someone asks whether this executor is ready.

    Raises:
        OSError: an address cannot be had.
        ValueError: a core's address or a file of TLS is none.
    """

    def warn(text: str) -> None:
        report({"event": "warning", "message": text})

    cores = CoreAddresses(settings.cores)
    paths = settings.tls
    server_tls = None if paths is None else TlsFiles(paths, is_server=True, report=warn)
    client_tls = None if paths is None else TlsFiles(paths, is_server=False, report=warn)

    def host(context: ServedCall) -> RemoteHost:
        if not context.capability:
            return RemoteHost(None, "")
        current = CURRENT.get()
        token = "" if current is None else current.caller.token
        url = cores.of(context.core, context.port)
        return RemoteHost(RpcClient(url, token, tls=client_tls), context.capability)

    source = DirectorySource(settings.skills, shared=settings.shared)
    store = None
    if not settings.skills:
        store = CodeStore(settings.state / "received", shared=settings.shared)
    executor = Executor(status, state=settings.state)
    methods = executor_methods(executor, source, host, packages=settings.packages, store=store)
    running = _RunningExecutor(settings, status, executor, test, warn)
    uploads = None if store is None else Uploads(store.sent)

    arrived = partial(_arrived, store, uploads)
    served = {
        name: _reported(name, method, report, running, arrived) for name, method in methods.items()
    }
    served["health"] = running.health
    server = RpcServer(
        served,
        token=settings.tokens,
        tls=server_tls,
        probe=running.probe,
        uploads=uploads,
    )
    probes = RpcServer({}, token=FixedTokens(), probe=running.probe)
    try:
        loaded, failed = await source.reload()
        for name, error in failed:
            report({"event": "failed", "skill": name, "error": error})
        async with contextlib.AsyncExitStack() as open_ports, running:
            port = await open_ports.enter_async_context(
                server.listening(settings.host, settings.port)
            )
            scheme = "http" if paths is None else "https"
            host_text = f"[{settings.host}]" if ":" in settings.host else settings.host
            line: dict[str, Any] = {
                "event": "listening",
                "address": f"{scheme}://{host_text}:{port}/rpc",
                "level": str(status.level),
                "skills": list(loaded),
                "tools": len(source.tools()),
            }
            if settings.probe_port is not None:
                line["probes"] = await open_ports.enter_async_context(
                    probes.listening(settings.host, settings.probe_port)
                )
            with _ending() as ended:
                announce(line)
                await ended.wait()
            report({"event": "ending", "calls": running.count})
            running.is_ending = True
            with anyio.move_on_after(settings.drain_seconds):
                await running.wait()
                # A call that has ended is not lost before its answer is read.
                await server.wait_answered()
    finally:
        with anyio.CancelScope(shield=True):
            await executor.close()


class CoreAddresses:
    """Where cores may be asked: an executor sends a token there, so a call cannot name just any."""

    def __init__(self, allowed: Sequence[str]) -> None:
        """Take addresses as `--core` has them; ValueError for one that is none."""
        self._allowed = tuple(allowed)
        for url in allowed:
            at_port(_without_star(url), 0)

    def of(self, wanted: str, port: int) -> str:
        """Return the address of the core that made a call.

        >>> CoreAddresses(["https://*.cores.test:8701/rpc"]).of("https://a.cores.test:9/rpc", 0)
        'https://a.cores.test:9/rpc'

        Raises:
            RpcError: INVALID_PARAMS, the call names one that is not allowed, or none.
        """
        if not wanted:
            if not self._allowed or "*" in self._allowed[0]:
                raise RpcError(INVALID_PARAMS, "expected the address of the core in `context`")
            return at_port(self._allowed[0], port)
        try:
            at_port(wanted, 0)
        except ValueError as error:
            raise RpcError(INVALID_PARAMS, f"{error} as `core`") from error
        asked = urlsplit(wanted)
        for url in self._allowed:
            one = urlsplit(_without_star(url))
            host, name = (one.hostname or ""), (asked.hostname or "")
            is_host = name == host
            if "://*." in url:
                is_host = name.endswith(host.removeprefix(STAR)) and name != host
            elif "://*" in url:
                is_host = True
            if is_host and (asked.scheme, asked.path) == (one.scheme, one.path):
                return wanted
        raise RpcError(INVALID_PARAMS, "`core` names an address that `--core` does not allow")


STAR = "any-host"


def _without_star(url: str) -> str:
    return url.replace("://*", f"://{STAR}", 1)


class _RunningExecutor:
    """The calls of an executor, and whether it takes more."""

    def __init__(
        self,
        settings: ExecutorSettings,
        status: SandboxStatus,
        executor: Executor,
        test: SelfTest | None,
        warn: Callable[[str], None],
    ) -> None:
        self.count = 0
        self.is_ending = False
        self._settings = settings
        self._level = status.level
        self._executor = executor
        self._test = test
        self._warn = warn
        self._failure = ""
        self._tested_at = time.monotonic()
        self._testing: asyncio.Task[None] | None = None
        self._none = asyncio.Event()
        self._none.set()

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None:
        if self._testing is not None:
            self._testing.cancel()
            await asyncio.wait({self._testing})

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Count a request while it runs; NotBegunError where none is taken."""
        if self.is_ending:
            message = "the executor is ending; nothing was begun"
            raise NotBegunError(UNAVAILABLE, message, reason="ending")
        if name in BOUNDED and self._failure:
            message = f"no code is run: {self._failure}"
            raise NotBegunError(UNAVAILABLE, message, reason="not-ready")
        if name in BOUNDED and self.count >= self._settings.calls:
            message = f"{self.count} calls are running; nothing was begun"
            raise NotBegunError(UNAVAILABLE, message, reason="busy")
        # What only asks must not take the place of a call.
        counted = int(name in BOUNDED)
        self.count += counted
        self._none.clear()
        try:
            yield
        finally:
            self.count -= counted
            if not self.count:
                self._none.set()

    async def wait(self) -> None:
        await self._none.wait()

    def probe(self, path: str) -> tuple[int, str]:
        if path == "/healthz":
            return 200, "ok"
        self._test_sometimes()
        if self.is_ending:
            return 503, "ending"
        if self._failure:
            return 503, "self-test failed"
        return 200, "full" if self.count >= self._settings.calls else "ready"

    async def health(self, params: Any) -> Mapping[str, Any]:
        """Return what the executor says of itself; it proves none of it."""
        self._test_sometimes()
        return {
            "status": "ok",
            "name": self._settings.name,
            "version": skillhouse.__version__,
            "level": str(self._level),
            "calls": self.count,
            "most": self._settings.calls,
            "is_ending": self.is_ending,
            "is_ready": not self._failure and not self.is_ending,
        }

    def _test_sometimes(self) -> None:
        is_due = time.monotonic() - self._tested_at >= TEST_SECONDS
        if self._test is None or not is_due or self._testing is not None or self.is_ending:
            return
        self._testing = asyncio.get_running_loop().create_task(self._run_test(self._test))

    async def _run_test(self, test: SelfTest) -> None:
        before = self._failure
        try:
            self._executor.admit(await test())
            self._failure = ""
        except (SandboxError, SandboxUnavailableError, OSError) as error:
            self._failure = str(error)
        if self._failure != before:
            self._warn(f"self-test: {self._failure or 'passed'}")
        self._tested_at = time.monotonic()
        self._testing = None


async def _arrived(store: CodeStore | None, uploads: Uploads | None, params: Any) -> None:
    """Wait while the code that a call needs is being sent with another call of its core."""
    current, digests = CURRENT.get(), code_digests(params)
    if uploads is None or store is None or current is None or current.archives is not None:
        return
    if digests and not store.has(digests):
        await uploads.wait_for(current.caller.name, *digests)


def _reported(
    name: str,
    method: Method,
    report: Report,
    running: _RunningExecutor,
    arrived: Callable[[Any], Awaitable[None]],
) -> Method:
    """Return the method with a line of the log for each request, and none begun at the end."""

    async def run(params: Any) -> Any:
        began = time.monotonic()
        line: dict[str, Any] = {"event": name}
        if isinstance(params, dict):
            tool = params.get("tool", params.get("skill"))
            line |= {"tool": str(tool)[:160]} if tool is not None else {}
        outcome = "cancelled"
        try:
            # A call that waits for its code takes no place of one that runs.
            await arrived(params)
            with running.call(name):
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
