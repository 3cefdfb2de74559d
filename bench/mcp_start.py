"""How soon `skillhouse mcp` answers, beside bare Python and the server of the SDK alone.

`./x bench mcp_start [--rounds N]` measures wall time from the spawn of a fresh process to the
answer, rounds interleaved, medians. The SDK's server has one tool and nothing behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _measure import ROOT, markdown_table

TARGET_SECONDS = 1.0
"""Most that a coding agent waits for `initialize` (issue "real agents", point 1)."""
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
    parser = argparse.ArgumentParser(description="Measure the start of the MCP server.")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    python = sys.executable
    cases = {
        "bare Python, one line": (python, "-c", BARE),
        "the SDK's server": (python, "-c", SDK),
        "`skillhouse mcp`": (python, "-m", "skillhouse", "mcp"),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(options.rounds + 1):
            for name, command in cases.items():
                found[name].append(start(command, Path(home)))
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
    print(markdown_table(header, rows))
    print(f"\nslowest initialize of `skillhouse mcp`: {worst:.2f} s, target {TARGET_SECONDS:g} s")


def start(command: Sequence[str], home: Path) -> tuple[float, float, float]:
    """Return the seconds from the spawn to three answers; of a bare process all are the first."""
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), *filter(None, sys.path))),
    }
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
