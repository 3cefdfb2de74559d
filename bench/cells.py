"""What a call in a cell costs beside the least that its isolation can cost, in one run.

`./x bench cells [--rounds N]` runs in turn, so that a slow moment hits all: a bare process in bare
bubblewrap that forks for each request (the floor of a Python call); our call in a warm Python
cell; Node started in bubblewrap with our options (the floor of a first call); our first call and
our call with a warm spare. Then 200 calls at once, what a cell at rest holds, and how long other
calls take while a hostile one runs. Skills that import asyncio, dateutil, pydantic and, in Node,
semver are called beside a fork of a bare process that has these imported.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from _imports import CASES, PYTHON_FLOOR, WARM_TARGET, spec_of, timed, waits
from _imports import Floor as ImportFloor
from _measure import markdown_table
from skillhouse.extensions.cells import CellResult, CellSpec, Executor
from skillhouse.floor import tree_digest
from skillhouse.sandbox import SandboxLevel, SandboxStatus, detect
from skillhouse.sandbox.code_call import OutputPart
from skillhouse.sandbox.seccomp import program

PYTHON_TARGET = 1.5
"""Warm Python call over the bare fork."""
FIRST_TARGET = 1.3
NODE_TARGET_MS = 3.0
IDLE_TARGETS = {"python": 15.0, "javascript": 60.0}
LATENCY_TARGET = 3.0
AT_ONCE = 200
PAUSE_SECONDS = 0.05
BARE = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64"),
    *("/lib64", "--symlink", "usr/bin", "/bin", "--tmpfs", "/tmp"),
)
FLOOR = PYTHON_FLOOR.format(paths=[], ahead="")
SKILLS = {
    "python": {
        "main.py": "async def echo(params, context):\n    return params\n\n"
        "def spin(params, context):\n    import os\n    for _ in range(16):\n"
        "        os.fork()\n    while True:\n        pass\n\n"
        'tools = {"echo": echo, "spin": spin}\n',
    },
    "javascript": {
        "index.js": "export const tools = { echo: async (params, context) => params };\n"
    },
}
ENTRIES = {"python": "main.py", "javascript": "index.js"}


class Nothing:
    """What a call asks for that asks for nothing."""

    network = None

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    async def sign(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    async def read_file(self, path: str) -> str:
        raise NotImplementedError

    def output(self, part: OutputPart) -> None: ...

    def log(self, text: str) -> None: ...

    def progress(self, fraction: float, text: str) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure cells.")
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        print(anyio.run(compare, Path(directory).resolve(), rounds))


async def compare(place: Path, rounds: int) -> str:
    status = await detect()
    specs = {language: make_skill(place, language) for language in SKILLS}
    made = make_executor(status, place)
    parts = [
        await warm_calls(made, specs, rounds),
        await first_calls(status, place, specs["javascript"], max(8, rounds // 4)),
        await many(made, specs["python"]),
    ]
    await made.close()
    parts.append(await imports(status, place, max(8, rounds // 2)))
    parts.append(await idle(status, place, specs))
    parts.append(await beside_hostile(status, place, specs["python"], rounds))
    return "\n\n".join(parts)


def make_executor(status: SandboxStatus, place: Path) -> Executor:
    return Executor(status, state=place / "state")


def make_skill(place: Path, language: str) -> CellSpec:
    directory = place / language
    directory.mkdir()
    for name, text in SKILLS[language].items():
        (directory / name).write_text(text)
    return CellSpec(
        skill=f"bench:{language}",
        digest=tree_digest(directory),
        directory=directory,
        language="python" if language == "python" else "javascript",
        entry=ENTRIES[language],
    )


async def call(executor: Executor, spec: CellSpec) -> CellResult:
    done = await executor.execute(spec, "echo", {"n": 1}, meta={}, host=Nothing())
    assert done.kind == "ok", done
    return done


class Floor:
    """The bare process that forks."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(True)
        number = theirs.fileno()
        rules = program(platform.machine()).hex()
        python = ("/usr/bin/python3", "-I", "-S", "-c", FLOOR, str(number))
        command = (*BARE, *python, SKILLS["python"]["main.py"], rules)
        self._process = subprocess.Popen(command, pass_fds=(number,))
        theirs.close()

    def call(self) -> None:
        self.ours.send(b'{"n": 1}')
        assert self.ours.recv(65_536)
        assert self.ours.recv(65_536)

    def close(self) -> None:
        self.ours.close()
        self._process.wait()


async def warm_calls(made: Executor, specs: Mapping[str, CellSpec], rounds: int) -> str:
    floor = Floor()
    times: dict[str, list[float]] = {"fork": [], "python": [], "javascript": []}
    for number in range(rounds + 3):
        for name, taken in times.items():
            began = time.perf_counter()
            if name == "fork":
                floor.call()
            else:
                await call(made, specs[name])
            if number >= 3:
                taken.append((time.perf_counter() - began) * 1_000)
            if name == "javascript":
                await settled()
    floor.close()
    base = median(times["fork"])
    names = {
        "fork": "bare fork in bubblewrap (floor)",
        "python": f"Python call, warm (target {PYTHON_TARGET} x)",
        "javascript": f"Node call, warm spare (target {NODE_TARGET_MS} ms)",
    }
    rows = [row(names[name], taken, base) for name, taken in times.items()]
    return markdown_table((f"{rounds} rounds", "median ms", "min ms", "p90 ms", "ratio"), rows)


def row(name: str, taken: list[float], base: float) -> tuple[str, ...]:
    ordered = sorted(taken)
    middle = median(ordered)
    high = ordered[len(ordered) * 9 // 10]
    return name, f"{middle:.2f}", f"{ordered[0]:.2f}", f"{high:.2f}", f"{middle / base:.2f}"


async def first_calls(status: SandboxStatus, place: Path, spec: CellSpec, rounds: int) -> str:
    bare: list[float] = []
    ours: list[float] = []
    command = (*BARE, "node", "-e", "0")
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env={})  # noqa: ASYNC221
        bare.append((time.perf_counter() - began) * 1_000)
        executor = make_executor(status, place)
        began = time.perf_counter()
        await call(executor, spec)
        ours.append((time.perf_counter() - began) * 1_000)
        await executor.close()
    base = median(bare)
    rows = [
        row("bare bubblewrap + node -e 0 (floor)", bare, base),
        row(f"first Node call (target {FIRST_TARGET} x)", ours, base),
    ]
    return markdown_table((f"{rounds} rounds", "median ms", "min ms", "p90 ms", "ratio"), rows)


async def imports(status: SandboxStatus, place: Path, rounds: int) -> str:
    """Return what calls of skills that import something take, with a pause and without."""
    rows: list[tuple[str, ...]] = []
    said: list[str] = []
    for name, case in CASES.items():
        executor = make_executor(status, place)
        spec = await spec_of(name, case, place, executor)
        if isinstance(spec, str):
            said.append(spec)
            await executor.close()
            continue
        before = tree_bytes()[1]
        first = await timed(executor, spec, Nothing())
        floor = ImportFloor(BARE, case, spec.dependencies)
        bare: list[float] = []
        ours: list[float] = []
        for _ in range(rounds):
            await waits(executor, spec)
            await settled()
            began = time.perf_counter()
            floor.call()
            bare.append((time.perf_counter() - began) * 1_000)
            ours.append(await timed(executor, spec, Nothing()))
        floor.close()
        await waits(executor, spec)
        await settled()
        held = (tree_bytes()[1] - before) / 1e6
        ceaseless = [await timed(executor, spec, Nothing()) for _ in range(rounds)]
        await executor.close()
        base = median(bare)
        rows.append(row(f"{name}: floor", bare, base))
        rows.append(row(f"{name}: call, warm (target {WARM_TARGET} x)", ours, base))
        rows.append(row(f"{name}: calls without a pause", ceaseless, base))
        said.append(f"{name}: first call {first:.0f} ms, at rest {held:.1f} MB.")
    header = (f"imports, {rounds} rounds", "median ms", "min ms", "p90 ms", "ratio")
    return "\n".join([markdown_table(header, rows), "", *said])


async def many(executor: Executor, spec: CellSpec) -> str:
    kinds: list[str] = []

    async def one() -> None:
        done = await executor.execute(spec, "echo", {"n": 1}, meta={}, host=Nothing())
        kinds.append(done.kind)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(one)
    taken = time.perf_counter() - began
    return f"{AT_ONCE} calls at once: {kinds.count('ok')} ok in {taken * 1_000:.0f} ms."


async def idle(status: SandboxStatus, place: Path, specs: Mapping[str, CellSpec]) -> str:
    """Return what a cell at rest holds: proportional set size, shared pages counted by share."""
    said = []
    for language, spec in specs.items():
        before = tree_bytes()
        executor = make_executor(status, place)
        await call(executor, spec)
        await anyio.sleep(0.5)
        await settled()
        resident, proportional = (
            now - then for now, then in zip(tree_bytes(), before, strict=True)
        )
        await executor.close()
        said.append(
            f"{language} {proportional / 1e6:.1f} MB proportional, {resident / 1e6:.1f} MB"
            f" resident summed (target {IDLE_TARGETS[language]:.0f})"
        )
    return f"Idle cell: {'; '.join(said)}."


async def settled() -> None:
    """Return when nothing that we started works: the next spare is there, the last call gone."""
    before = -1
    while (now := sum(map(ticks, descendants()))) != before:
        before = now
        await anyio.sleep(PAUSE_SECONDS)


def ticks(pid: int) -> int:
    """Return the processor time that a process took, in hundredths of a second."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def descendants() -> list[int]:
    found: list[int] = []
    waiting = children(os.getpid())
    while waiting:
        found.append(waiting.pop())
        waiting += children(found[-1])
    return found


def tree_bytes() -> tuple[int, int]:
    """Return resident and proportional bytes of all that descends from this process."""
    resident = proportional = 0
    for pid in descendants():
        try:
            lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            continue
        found = {line.split(":")[0]: int(line.split()[1]) * 1_024 for line in lines}
        resident += found.get("Rss", 0)
        proportional += found.get("Pss", 0)
    return resident, proportional


def children(pid: int) -> list[int]:
    found: list[int] = []
    # A process or a thread may end while it is looked at.
    with contextlib.suppress(OSError):
        for task in Path("/proc", str(pid), "task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


async def beside_hostile(status: SandboxStatus, place: Path, spec: CellSpec, rounds: int) -> str:
    """Return how long calls take, and the core's own timer, while another user's call forks."""
    if status.level is not SandboxLevel.CGROUP:
        return "No control groups: a fork bomb is not tried."
    executor = make_executor(status, place)
    other = CellSpec(
        skill=spec.skill,
        digest=spec.digest,
        directory=spec.directory,
        language=spec.language,
        entry=spec.entry,
        user="hostile",
    )
    await call(executor, spec)
    quiet = await latencies(executor, spec, rounds)

    async def bomb() -> None:
        await executor.execute(other, "spin", {}, meta={}, timeout=60, host=Nothing())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bomb)
        await anyio.sleep(1)
        loud = await latencies(executor, spec, rounds)
        tasks.cancel_scope.cancel()
    await executor.close()
    rows = [
        (name, f"{median(a):.2f}", f"{median(b):.2f}", f"{median(b) / median(a):.2f}")
        for name, a, b in zip(("another call", "the core's loop"), quiet, loud, strict=True)
    ]
    header = (f"beside a fork bomb (target {LATENCY_TARGET} x)", "quiet ms", "loud ms", "ratio")
    return markdown_table(header, rows)


async def latencies(
    executor: Executor, spec: CellSpec, rounds: int
) -> tuple[list[float], list[float]]:
    calls, loops = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        await call(executor, spec)
        calls.append((time.perf_counter() - began) * 1_000)
        began = time.perf_counter()
        await anyio.sleep(0.005)
        loops.append((time.perf_counter() - began) * 1_000)
    return calls, loops


if __name__ == "__main__":
    main()
