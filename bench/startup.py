"""What the start of a verb costs, and how soon `skillhouse mcp` answers.

`./x bench startup [--rounds N] [--skills N] [--tree DIR] [--cpu | --calls]` starts fresh processes,
rounds interleaved; DIR is another checkout. First the CPU of verbs, user and system time with
children, as a ratio to bare `python -c pass` of the same run, the least of the rounds: other work
on a machine only ever adds to it. `list` and `search` have 1,000 skills, their index and words kept
by an earlier run; `mcp` is killed when it has answered `initialize`. Then, unless `--cpu` is given,
wall time from the spawn to answers over MCP, medians, beside bare Python and the server of the SDK
alone, which has one tool and nothing behind it. Last, a call of a Python skill's tool and an `exec`
of Python in a fresh process, beside bare bubblewrap with Python running the same function: least
wall time, and the least processor time of the process with its children, which says more where
other work keeps the processors busy. `--calls` prints that alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _measure import ROOT, markdown_table
from discovery import make_tree

BARE_START = "`python -c pass`"
PROGRAM = Path(sys.executable).with_name("skillhouse")
"""As it is installed: `python -m skillhouse` would have to load `runpy` besides."""

TARGET_SECONDS = 1.0
"""Most that a coding agent waits for `initialize`."""
BARE = "import sys; sys.stdin.readline(); print('{}', flush=True)"
SDK = """
import anyio, mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

async def tools(*_):
    return types.ListToolsResult(tools=[types.Tool(name="a", input_schema={"type": "object"})])

async def main():
    server = Server("bare", on_list_tools=tools)
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())

anyio.run(main)
"""
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
CALL = {"name": "search_skills", "arguments": {"query": "weather"}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what starts cost.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--skills", type=int, default=1_000)
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--cpu", action="store_true", help="only the first table")
    parser.add_argument("--calls", action="store_true", help="only the last table")
    options = parser.parse_args()
    source = options.tree.resolve() / "src"
    if options.calls:
        print(call_table(source, rounds=options.rounds))
        return
    print(cpu_table(source, rounds=options.rounds, skills=options.skills))
    if not options.cpu:
        print(f"\n{mcp_table(source, rounds=options.rounds)}")
        print(f"\n{call_table(source, rounds=options.rounds)}")


def cpu_table(source: Path, *, rounds: int, skills: int) -> str:
    """Return the table of what verbs cost."""
    cases: dict[str, tuple[str | Path, ...]] = {
        BARE_START: (sys.executable, "-c", "pass"),
        "`skillhouse --version`": (PROGRAM, "--version"),
        "`skillhouse --help`": (PROGRAM, "--help"),
        f"`skillhouse list`, {skills:,} skills": (PROGRAM, "list"),
        f"`skillhouse search`, {skills:,} skills": (PROGRAM, "search", "weather"),
        "`skillhouse mcp` to `initialize`": (PROGRAM, "mcp"),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        make_tree(home / ".agents/skills", skills)
        for _ in range(rounds + 1):
            for name, command in cases.items():
                hello = command[-1] == "mcp"
                found[name].append(cpu_ms(command, home, environment_of(home, source), hello=hello))
    # The first round fills caches.
    least = {name: min(values[1:]) for name, values in found.items()}
    middle = {name: statistics.median(values[1:]) for name, values in found.items()}
    bare = least[BARE_START]
    rows = [
        (name, f"{least[name]:.1f}", f"{least[name] / bare:.1f}", f"{middle[name]:.1f}")
        for name in cases
    ]
    return markdown_table(("", "CPU ms, least", "× bare", "CPU ms, median"), rows)


def cpu_ms(
    command: Sequence[str | Path], home: Path, environment: Mapping[str, str], *, hello: bool
) -> float:
    """Return the milliseconds that a process and its children ran, up to its end or its hello."""
    before = children_ms()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=home
    ) as process:
        if hello:
            answered(process, "initialize", 1, HELLO)
            process.kill()
        _, _ = process.communicate()
    if not hello and process.returncode:
        sys.exit(f"exit code {process.returncode} of: {' '.join(map(str, command))}")
    return children_ms() - before


def children_ms() -> float:
    """Return the milliseconds that all processes have run that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1_000


def environment_of(home: Path, source: Path) -> dict[str, str]:
    """Return the environment of every process: a home of its own, and where another tree is."""
    other = {} if source == ROOT / "src" else {"PYTHONPATH": str(source)}
    return {"HOME": str(home), "PATH": os.environ["PATH"], **other}


def mcp_table(source: Path, *, rounds: int) -> str:
    """Return the table of how soon servers answer."""
    python = sys.executable
    cases = {
        "bare Python, one line": (python, "-c", BARE),
        "the SDK's server": (python, "-c", SDK),
        "`skillhouse mcp`": (python, "-m", "skillhouse", "mcp"),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for _ in range(rounds + 1):
            for name, command in cases.items():
                found[name].append(start(command, home, environment_of(home, source)))
    # The first round fills caches.
    middles = {
        name: [statistics.median(column) for column in zip(*rows[1:], strict=True)]
        for name, rows in found.items()
    }
    bare = middles["bare Python, one line"][0]
    worst = max(row[0] for row in found["`skillhouse mcp`"])
    rows = [
        (name, *(f"{seconds:.2f}" for seconds in middle), f"{middle[0] / bare:.1f}")
        for name, middle in middles.items()
    ]
    header = ("", "initialize s", "tools/list s", "a call s", "initialize × bare Python")
    slowest = f"slowest initialize of `skillhouse mcp`: {worst:.2f} s, target {TARGET_SECONDS:g} s"
    return f"{markdown_table(header, rows)}\n\n{slowest}"


MANIFEST = """
[project]
name = "hello"
version = "0.1.0"
description = "Greets"
[[tool.skillhouse.tools]]
name = "greet"
description = "Greets"
security = { level = "read" }
parameters = { type = "object" }
"""
SKILL = "def greet(args, context):\n    return {'text': 'hello'}\ntools = {'greet': greet}\n"
SETTINGS = """
[skill_code]
enabled = true
[[rules]]
effect = "allow"
action = "skill_tool"
pattern = "*"
[[rules]]
effect = "allow"
action = "exec"
pattern = "*"
"""
"""No network: a command that may reach it gets a proxy, which the bare run has not."""
PYTHON = ("-I", "-S", "-c", "print({'text': 'hello'})")
BARE_CALL = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"),
    *("/usr/bin/python3", *PYTHON),
)
CALL_TARGET = 20.0
"""Most times the wall time of bare bubblewrap."""


def call_table(source: Path, *, rounds: int) -> str:
    """Return the table of what calls in fresh processes cost, with and without a self-test."""
    tool = (PROGRAM, "call", "hello:greet")
    arguments = json.dumps({"command": "python3", "params": PYTHON})
    command = (PROGRAM, "call", "exec", "--args", arguments)
    cases: dict[str, tuple[tuple[str | Path, ...], bool]] = {
        "bare bubblewrap, Python": (BARE_CALL, False),
        "`skillhouse call TOOL`": (tool, False),
        "`skillhouse call exec`": (command, False),
        # This order: an `exec` tests and keeps less than a tool needs.
        "`skillhouse call exec`, nothing kept": (command, True),
        "`skillhouse call TOOL`, nothing kept": (tool, True),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    worked: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        project, skill = home / "project", home / ".agents/skills/hello"
        for place in (project, skill, home / ".config/skillhouse"):
            place.mkdir(parents=True)
        (skill / "pyproject.toml").write_text(MANIFEST)
        (skill / "main.py").write_text(SKILL)
        (home / ".config/skillhouse/config.toml").write_text(SETTINGS)
        for _ in range(rounds + 1):
            for name, (argv, is_fresh) in cases.items():
                if is_fresh:
                    for kept in home.glob(".local/state/skillhouse/sandbox/tested-*"):
                        kept.unlink()
                began, before = time.perf_counter(), children_ms()
                subprocess.run(
                    argv,
                    check=True,
                    cwd=project,
                    env=environment_of(home, source),
                    capture_output=True,
                )
                found[name].append((time.perf_counter() - began) * 1_000)
                worked[name].append(children_ms() - before)
    least = {name: min(values[1:]) for name, values in found.items()}
    bare = least["bare bubblewrap, Python"]
    rows = [
        (name, f"{ms:.0f}", f"{ms / bare:.1f}", f"{min(worked[name][1:]):.0f}")
        for name, ms in least.items()
    ]
    table = markdown_table(("", "wall ms, least", "× bare", "CPU ms, least"), rows)
    return f"{table}\n\nTarget: at most {CALL_TARGET:g} times bare, where a self-test is kept."


def start(
    command: Sequence[str], home: Path, environment: Mapping[str, str]
) -> tuple[float, float, float]:
    """Return the seconds from the spawn to three answers; of a bare process all are the first."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=home
    ) as process:
        try:
            answered(process, "initialize", 1, HELLO)
            first = time.perf_counter() - began
            if "-c" in command and BARE in command:
                return first, first, first
            assert process.stdin is not None
            process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            answered(process, "tools/list", 2, {})
            second = time.perf_counter() - began
            answered(process, "tools/call", 3, CALL)
            return first, second, time.perf_counter() - began
        finally:
            process.kill()


def answered(
    process: subprocess.Popen[bytes], method: str, number: int, params: Mapping[str, Any]
) -> None:
    """Send a request and wait for its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    if not process.stdout.readline():
        sys.exit(f"no answer to {method}")


if __name__ == "__main__":
    main()
