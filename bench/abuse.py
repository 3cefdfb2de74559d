"""How long calls of others take while one skill does its worst, beside the same calls before it.

`./x bench abuse [--rounds N] [--only NAME]` runs, for each abuse, blocks of another user's calls in
turn without and beside the abuse, which starts anew whenever it has ended. All is in one event loop
and one run; the core's own timer is measured along.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from statistics import median

import anyio

from _measure import markdown_table
from cells import Nothing, call, latencies, make_executor, make_skill
from skillhouse.extensions.cells import CellSpec
from skillhouse.floor import structs, tree_digest
from skillhouse.sandbox import SandboxLevel, SandboxStatus, detect

TARGET = 3.0
"""Latency of another call beside an abuse, over that without."""
ABUSE_SECONDS = 2.0
"""Time limit of each abusive call, so that its end and its next start are measured too."""
WARM_SECONDS = 0.3
BLOCKS = 4
"""Blocks of calls without and with the abuse, in turn, so that a slow moment hits both."""
HEAD = """
import os, signal, socket, struct, subprocess, sys, time
import _socket

def framed(data):
    return struct.pack("!I", len(data)) + data

"""
ABUSES: Mapping[str, str] = {
    "34 fork bomb": "while True:\n    os.fork()",
    "35 memory bomb": "held = []\nwhile True:\n    held.append(b'x' * (1 << 20))",
    "36 spin of 16 processes": "for _ in range(4):\n    os.fork()\nwhile True:\n    pass",
    "37 sleep that ignores signals": "for n in (1, 2, 15):\n    signal.signal(n, signal.SIG_IGN)\n"
    "time.sleep(60)",
    "38 children that stay behind": "for _ in range(40):\n    subprocess.Popen(['sleep', '60'], "
    "start_new_session=True)\nreturn 1",
    "39 flood of output": "while True:\n    os.write(1, bytes(65536))",
    "40 tiny writes": "while True:\n    os.write(1, b'x')",
    "41 full temporary directory": "while True:\n    with open('/tmp/full', 'wb') as file:\n"
    "        for _ in range(300):\n            file.write(bytes(1 << 20))",
    "42 a million descriptors": "while True:\n    held = []\n    try:\n        while True:\n"
    "            held.append(os.dup(0))\n    except OSError:\n        [os.close(n) for n in held]",
    "43 flood of messages": 'link = _socket.socket(fileno=3)\ndata = framed(b\'{"jsonrpc":"2.0",'
    '"method":"core.log","params":{}}\') * 100\nwhile True:\n    link.sendall(data)',
    "43 message byte by byte": "link = _socket.socket(fileno=3)\n"
    "link.sendall(struct.pack('!I', 8 << 20))\nwhile True:\n    link.send(b'[')",
    "43 one long message": "link = _socket.socket(fileno=3)\nlink.sendall(framed(b'[' + b'1,' * "
    "3_900_000 + b'1]'))\ntime.sleep(60)",
    "43 deep message": "link = _socket.socket(fileno=3)\nlink.sendall(framed(b'[' * 4_000_000))\n"
    "time.sleep(60)",
    "44 stale capabilities": 'link = _socket.socket(fileno=3)\ndata = framed(b\'{"jsonrpc":'
    '"2.0","method":"core.sign","params":{"capability":"x"},"id":1}\')\n'
    "while True:\n    link.sendall(data)\n    link.recv(65536)",
    "47 walk of all files": "while True:\n    for _ in os.walk('/'):\n        pass",
    "49 connections": "while True:\n    for n in range(1, 500):\n        s = socket.socket()\n"
    "        s.setblocking(False)\n        s.connect_ex(('127.0.0.1', n))\n        s.close()",
    "56 kills itself": "os.kill(os.getpid(), 9)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure calls beside abuse.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", help="part of the name of an abuse", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        print(anyio.run(compare, place, options.rounds, options.only))


async def compare(place: Path, rounds: int, only: str) -> str:
    status = await detect()
    if status.level is not SandboxLevel.CGROUP:
        return "No control groups: nothing is tried that only they hold."
    gentle = make_skill(place, "python")
    rows = []
    for number, (name, lines) in enumerate(ABUSES.items()):
        if only in name:
            hostile = structs.replace(make(place, f"hostile{number}", lines), user="hostile")
            rows.append((name, *await beside(status, place, gentle, hostile, rounds)))
    worst = max(float(row[-2]) for row in rows)
    header = (
        f"{rounds} calls each",
        *("quiet ms", "beside ms", "p90 quiet", "p90 beside", "ratio", "core's loop"),
    )
    table = markdown_table(header, rows)
    return f"{table}\n\nWorst ratio of medians {worst:.2f} (target {TARGET:.0f})."


def make(place: Path, name: str, lines: str) -> CellSpec:
    directory = place / name
    directory.mkdir()
    inner = "\n".join(f"    {line}" for line in lines.splitlines())
    source = f"{HEAD}def echo(params, context):\n{inner}\n\ntools = {{'echo': echo}}\n"
    (directory / "main.py").write_text(source)
    return CellSpec(
        skill=f"bench:{name}",
        digest=tree_digest(directory),
        directory=directory,
        language="python",
        entry="main.py",
    )


async def beside(
    status: SandboxStatus, place: Path, gentle: CellSpec, hostile: CellSpec, rounds: int
) -> tuple[str, ...]:
    """Return medians and 90th percentiles without and with, their ratio, and that of the loop."""
    executor = make_executor(status, place)
    await call(executor, gentle)

    async def abuse() -> None:
        while True:
            await executor.execute(
                hostile, "echo", {}, meta={}, timeout=ABUSE_SECONDS, host=Nothing()
            )

    quiet, loud = [], []
    for _ in range(BLOCKS):
        quiet.append(await latencies(executor, gentle, rounds // BLOCKS))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abuse)
            await anyio.sleep(WARM_SECONDS)
            loud.append(await latencies(executor, gentle, rounds // BLOCKS))
            tasks.cancel_scope.cancel()
        await anyio.sleep(WARM_SECONDS)
    await executor.close()
    calls, loops = (list(chain(*parts)) for parts in zip(*quiet, strict=True))
    loud_calls, loud_loops = (list(chain(*parts)) for parts in zip(*loud, strict=True))
    return (
        *(f"{median(taken):.2f}" for taken in (calls, loud_calls)),
        *(f"{sorted(taken)[len(taken) * 9 // 10]:.2f}" for taken in (calls, loud_calls)),
        f"{median(loud_calls) / median(calls):.2f}",
        f"{median(loud_loops) / median(loops):.2f}",
    )


if __name__ == "__main__":
    main()
