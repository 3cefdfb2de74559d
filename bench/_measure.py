"""Measures in fresh processes: CPU and memory as the kernel counts them, rounds interleaved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process, or the middle one of several, needed."""

    cpu_ms: float
    """User and system time of the whole process, its start included."""
    peak_mib: float
    """Largest resident set."""
    said: Mapping[str, Any]
    """The JSON object that the process printed; empty when it printed nothing."""


def run(command: Sequence[str | Path]) -> Usage:
    """Run `command` with our sources on its path; stop everything when it fails."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    printed = process.stdout.read()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"exit code {process.returncode} of: {' '.join(map(str, command))}")
    return Usage(
        cpu_ms=(used.ru_utime + used.ru_stime) * 1_000,
        peak_mib=used.ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10)),
        said=json.loads(printed) if printed.strip() else {},
    )


def interleaved(cases: Mapping[str, Sequence[str | Path]], *, rounds: int) -> dict[str, Usage]:
    """Run each case once a round, so that a slow moment hits all, and return the medians.

    Numbers that the processes print are taken by their median too.
    """
    found: dict[str, list[Usage]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, command in cases.items():
            found[name].append(run(command))
    return {name: _middle(usages) for name, usages in found.items()}


Case = Callable[[], Awaitable[object]]


async def in_turns(
    cases: Mapping[str, Case], rounds: int, counts: Mapping[str, int] | None = None
) -> dict[str, list[float]]:
    """Return what each case took each time, in µs, each round starting with another case.

    `counts` is how often a case runs in a round, once where it is left out.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for case in cases.values():
        await case()
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            case = cases[name]
            for _ in range(counts[name] if counts else 1):
                began = time.perf_counter_ns()
                await case()
                found[name].append((time.perf_counter_ns() - began) / 1_000)
    return found


def _middle(usages: list[Usage]) -> Usage:
    said = {key: median(usage.said[key] for usage in usages) for key in usages[0].said}
    return Usage(
        cpu_ms=median(usage.cpu_ms for usage in usages),
        peak_mib=median(usage.peak_mib for usage in usages),
        said=said,
    )


def moment_of(handle: int) -> Callable[[bytes], float]:
    """Return what reads a terminal on to the next mark, and gives the time when it was there."""
    unread = b""

    def until(mark: bytes) -> float:
        nonlocal unread
        while mark not in unread:
            unread += os.read(handle, 65_536)
        unread = unread.split(mark, 1)[1]
        return time.perf_counter()

    return until


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns but the first are aligned to the right."""
    marks = ["---", *("--:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, marks, *rows))
