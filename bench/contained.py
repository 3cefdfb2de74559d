"""What a call costs where a container is the boundary, beside bubblewrap, in one run.

`./x bench contained [--rounds N]` runs in turn: a bare process in bare bubblewrap that forks for
each request (the floor of a Python call), calls in cells of bubblewrap here, and calls in cells of
an executor in a place like that of deploy/compose.yaml: another user, no capability, no new user
namespaces, a read-only root and /tmp in memory. There the call is held by Landlock, two filters
and limits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from _measure import markdown_table
from cells import SKILLS, Floor, call, make_executor, make_skill, row, settled
from skillhouse.extensions.cells import CellSpec, Executor, contained_test
from skillhouse.sandbox import detect

WARM_UP = 3
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives",
          "/etc/ssl")  # fmt: skip
OWN = Path(__file__).resolve()
INSIDE = "--inside"


def main() -> None:
    if INSIDE in sys.argv:
        anyio.run(serve)
        return
    parser = argparse.ArgumentParser(description="Measure calls at the level of a container.")
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        print(anyio.run(compare, Path(directory).resolve(), rounds))


class Contained:
    """An executor in a place like a container's; it says how long each call took."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            place_argv(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.level = self._said()

    def _said(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the executor in the container ended"
        return json.loads(line)

    def ask(self, kind: str, language: str) -> float:
        """Return the milliseconds of one call: "warm", or "first" in a new cell."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, language]) + "\n")
        self._process.stdin.flush()
        return float(self._said())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def place_argv() -> list[str]:
    """Return what runs this script in such a place."""
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--disable-userns",
               "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL", "--new-session",
               "--die-with-parent", "--as-pid-1", "--clearenv", "--setenv", "PATH", os.defpath,
               "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # fmt: skip
    source = OWN.parents[1] / "src"
    options += ["--setenv", "PYTHONPATH", str(source)]
    for path in SYSTEM:
        options += ["--ro-bind-try", path, path]
    for path in sorted({sys.prefix, sys.base_prefix, str(source), str(OWN.parent)}):
        options += ["--ro-bind", path, path]
    return ["bwrap", *options, "--remount-ro", "/", "--", sys.executable, str(OWN), INSIDE]


async def serve() -> None:
    """Measure calls as stdin asks for them."""
    status = await contained_test()
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    executor = make_executor(status, place)
    specs = {language: make_skill(place, language) for language in SKILLS}
    print(json.dumps([str(status.level), *status.reasons]), flush=True)
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        kind, language = json.loads(line)
        print(await measured(executor, specs, kind, language), flush=True)
        await settled()
    await executor.close()


async def measured(
    executor: Executor, specs: Mapping[str, CellSpec], kind: str, language: str
) -> float:
    """Return the milliseconds of a call."""
    if kind == "first":
        await executor.reload(specs[language].skill)
        await settled()
    began = time.perf_counter()
    await call(executor, specs[language])
    return (time.perf_counter() - began) * 1_000


async def compare(place: Path, rounds: int) -> str:
    status = await detect()
    specs = {language: make_skill(place, language) for language in SKILLS}
    ours, contained, floor = make_executor(status, place), Contained(), Floor()
    bare: list[float] = []
    cases = [(kind, language) for kind in ("warm", "first") for language in SKILLS]
    taken: dict[tuple[str, str, str], list[float]] = {
        (at, *case): [] for case in cases for at in ("here", "there")
    }
    for number in range(rounds + WARM_UP):
        began = time.perf_counter()
        floor.call()
        bare.append((time.perf_counter() - began) * 1_000)
        for kind, language in cases:
            if kind == "first" and number % 4:
                continue
            here = await measured(ours, specs, kind, language)
            await settled()
            there = contained.ask(kind, language)
            if number >= WARM_UP:
                taken["here", kind, language].append(here)
                taken["there", kind, language].append(there)
    floor.close()
    contained.close()
    await ours.close()
    return table(rounds, bare[WARM_UP:], taken, str(status.level), contained.level)


def table(
    rounds: int,
    bare: list[float],
    taken: Mapping[tuple[str, str, str], list[float]],
    here: str,
    there: list[str],
) -> str:
    rows = [row("bare fork in bubblewrap (floor)", bare, median(bare))]
    for kind in ("warm", "first"):
        for language in SKILLS:
            base = taken["here", kind, language]
            others = taken["there", kind, language]
            rows.append(row(f"{language}, {kind}, {here}", base, median(base)))
            rows.append(row(f"{language}, {kind}, {there[0]}", others, median(base)))
    header = (f"{rounds} rounds", "median ms", "min ms", "p90 ms", "× bubblewrap")
    return markdown_table(header, rows)


if __name__ == "__main__":
    main()
