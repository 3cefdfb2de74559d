"""Executors in processes of their own beside one in this process, in one run.

`./x bench executors [--rounds N] [--calls N]` starts two executors that get their code by its
digest, and calls one skill in turn: here, at one executor, at two of a list, and at two behind
HAProxy (least connections) where it is installed. First the time of one call, warm; then calls that
wait half a second, many at once: a cell runs eight at a time, so an executor is full with eight.
Last, how many calls a second there are that do nothing: the processors are the bound of it, and all
is on one machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from _measure import ROOT, markdown_table
from cells import Nothing
from skillhouse.extensions.cells import CellSpec, Executor
from skillhouse.floor import tree_digest
from skillhouse.house import SkillCodeSettings
from skillhouse.house.container import ContainerExecutor
from skillhouse.sandbox import detect

TARGET = 1.7
"""Throughput of two executors over one, of calls that wait."""
WAIT_SECONDS = 0.5
REPEATS = 3
"""Of the measures of many calls at once, in turn; their median counts."""
MANIFEST = """[project]
name = "bench"
version = "1"
description = "Waits."

[[tool.skillhouse.tools]]
name = "waits"
description = "Waits."
security = { level = "read" }
parameters = { type = "object" }
"""
SOURCE = """
import time

def waits(params, context):
    time.sleep(params["seconds"])
    return params

tools = {"waits": waits}
"""
HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 90s
  timeout server 90s
"""
LISTEN = """
listen executors
  bind 127.0.0.1:{port}
  balance leastconn
  option redispatch
  option httpchk GET /readyz
{servers}
"""
Call = Callable[[float], Coroutine[Any, Any, None]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure executors.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        (place / "token").write_text(secrets.token_hex(32))
        with contextlib.ExitStack() as kept:
            ports = [kept.enter_context(worker(place, name)) for name in ("one", "two")]
            proxy = kept.enter_context(balanced(place, ports))
            print(anyio.run(compare, place, ports, proxy, options.rounds, options.calls))


@contextmanager
def worker(place: Path, name: str) -> Iterator[int]:
    command = (
        *(sys.executable, "-m", "skillhouse", "worker", "--port", "0", "--json", "--name", name),
        *("--core", "http://127.0.0.1:9/rpc", "--token-file", str(place / "token")),
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    log = (place / f"{name}.log").open("wb")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        yield int(first["address"].rsplit(":", 1)[1].split("/")[0])
    finally:
        process.terminate()
        process.wait(30)
        log.close()


@contextmanager
def balanced(place: Path, ports: Sequence[int]) -> Iterator[int | None]:
    """Yield the port of HAProxy before the executors; None without it."""
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        yield None
        return
    port = free_port()
    servers = "\n".join(f"  server e{n} 127.0.0.1:{one} check" for n, one in enumerate(ports))
    (place / "haproxy.cfg").write_text(HAPROXY + LISTEN.format(port=port, servers=servers))
    process = subprocess.Popen(
        (program, "-db", "-f", str(place / "haproxy.cfg")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def wait_for(port: int) -> None:
    """Wait until something listens there, ten seconds at most."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.05)


async def compare(
    place: Path, ports: Sequence[int], proxy: int | None, rounds: int, calls: int
) -> str:
    directory = place / "skill"
    directory.mkdir()
    (directory / "pyproject.toml").write_text(MANIFEST)
    (directory / "main.py").write_text(SOURCE)
    spec = CellSpec(
        skill="bench",
        digest=tree_digest(directory),
        directory=directory,
        language="python",
        entry="main.py",
    )
    urls = [f"http://127.0.0.1:{port}/rpc" for port in ports]
    forms: dict[str, Any] = {
        "in this process": here(place),
        "one executor": there(place, urls[:1]),
        "two executors of a list": there(place, urls),
    }
    if proxy is not None:
        forms["two behind HAProxy"] = there(place, [f"http://127.0.0.1:{proxy}/rpc"])
    taken: dict[str, list[float]] = {name: [] for name in forms}
    waited: dict[str, list[float]] = {name: [] for name in forms}
    quick: dict[str, list[float]] = {name: [] for name in forms}
    async with contextlib.AsyncExitStack() as kept:
        made = {name: await kept.enter_async_context(form) for name, form in forms.items()}
        ways = {name: caller(executor, spec) for name, executor in made.items()}
        for call in ways.values():
            await at_once(call, 16, 0.1)
        for _ in range(rounds):
            for name, call in ways.items():
                taken[name].append(await timed(call, 0.0) * 1_000)
        for _ in range(REPEATS):
            for name, call in ways.items():
                waited[name].append(calls / await at_once(call, calls, WAIT_SECONDS))
                quick[name].append(calls * 4 / await at_once(call, calls * 4, 0.0))
    base = median(waited["one executor"])
    rows = [
        (
            name,
            f"{median(taken[name]):.1f}",
            f"{sorted(taken[name])[rounds * 9 // 10]:.1f}",
            f"{median(waited[name]):.1f}",
            f"{median(waited[name]) / base:.2f}",
            f"{median(quick[name]):.0f}",
        )
        for name in forms
    ]
    head = (
        *(f"{rounds} rounds, {calls} calls", "one call, median ms", "p90 ms"),
        *(f"calls/s that wait {WAIT_SECONDS} s", f"ratio (target {TARGET})", "calls/s of nothing"),
    )
    return markdown_table(head, rows)


def caller(executor: Any, spec: CellSpec) -> Call:
    """Return what makes one call that waits so many seconds."""

    async def call(seconds: float) -> None:
        done = await executor.execute(
            spec, "waits", {"seconds": seconds}, meta={}, timeout=60.0, host=Nothing()
        )
        assert done.kind == "ok", done

    return call


@asynccontextmanager
async def here(place: Path) -> AsyncIterator[Executor]:
    executor = Executor(await detect(), state=place / "state")
    try:
        yield executor
    finally:
        await executor.close()


@asynccontextmanager
async def there(place: Path, urls: Sequence[str]) -> AsyncIterator[ContainerExecutor]:
    settings = SkillCodeSettings(
        enabled=True,
        executors={"python": tuple(urls)},
        executor_token=f"file:{place}/token",
    )
    executor = ContainerExecutor(settings, {})
    try:
        yield executor
    finally:
        await executor.close()


async def timed(call: Call, seconds: float) -> float:
    began = time.perf_counter()
    await call(seconds)
    return time.perf_counter() - began


async def at_once(call: Call, count: int, seconds: float) -> float:
    """Return the time that so many calls at once take."""
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call, seconds)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
