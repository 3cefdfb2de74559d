"""Allowed calls through `skillhouse up`, by one, two and four replicas, in one run.

`./x bench replicas [--seconds N] [--rounds N] [--url URL]` starts one server whose state is a file,
and four whose state is on PostgreSQL (an empty database; without URL one of its own), and asks
them by the HTTP API: first one call after the other, in turns; then sixteen at once, directly and
behind HAProxy (round robin). Loader, balancer and database are on the same machine, and the
processors are the bound: what they are busy with is named beside the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from _measure import ROOT, in_turns, markdown_table
from executors import HAPROXY, free_port, wait_for
from state import empty_database

TARGET_MS = 2.0
"""Most that an allowed call may take more than with a state in a file."""
CALLERS = 16
REPLICAS = 4
REPEATS = 3
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})\n")
ALLOW = "".join(
    f'[[rules]]\neffect = "allow"\naction = "{action}"\npattern = "*"\n'
    for action in ("read", "write")
)
KINDS = ("read", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    port: int
    token: str
    pid: int

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Caller:
    """One connection that asks for one call after another."""

    def __init__(self, port: int, token: str, kind: str, name: str) -> None:
        self.port, self.done = port, 0
        self._kind, self._name = kind, name
        self._head = (
            f"POST /api/v1/calls HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        )
        self._pair: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self) -> None:
        if self._pair is None:
            self._pair = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._pair
        arguments = {"path": "a.txt"}
        if self._kind == "write":
            # A name of its own: no call finds what another one wrote.
            arguments = {"path": f"{self._name}-{self.done}.txt", "content": "text"}
        body = json.dumps({"tool": self._kind, "arguments": arguments})
        writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", head)
        text = await reader.readexactly(int(length[1]) if length else 0)
        if head.split(b" ", 2)[1] != b"200" or json.loads(text).get("status") != "ok":
            raise SystemExit(f"a call was not done: {text.decode()[:300]}")
        self.done += 1

    def close(self) -> None:
        if self._pair is not None:
            self._pair[1].close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure replicas.")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each kind, at once")
    parser.add_argument("--rounds", type=int, default=300, help="of one call after the other")
    parser.add_argument("--url", help="an empty database")
    options = parser.parse_args()
    with contextlib.ExitStack() as kept:
        base = Path(kept.enter_context(tempfile.TemporaryDirectory())).resolve()
        url = kept.enter_context(empty_database(options.url))
        fronts = {count: free_port() for count in (1, 2, REPLICAS)}
        file = kept.enter_context(server(base / "file", ALLOW, fronts))
        config = f'{ALLOW}\n[state]\nurl = "{url}"\n'
        many = [
            kept.enter_context(server(base / f"replica-{number}", config, fronts))
            for number in range(REPLICAS)
        ]
        token = shared_token(many[0])
        many = [replace(one, token=token) for one in many]
        asyncio.run(one_after_the_other(file, many[0], options.rounds))
        forms = {"one, state in a file": (file.port, [file]), "one": (many[0].port, many[:1])}
        if kept.enter_context(proxies(base, fronts, many)):
            names = ("one behind HAProxy", "two", "four")
            for (count, port), name in zip(fronts.items(), names, strict=True):
                forms[name] = (port, many[:count])
        asyncio.run(at_once(forms, options.seconds))


async def one_after_the_other(file: Server, replica: Server, rounds: int) -> None:
    places = {"file": file, "server": replica}
    cases = {
        f"{kind}, state in a {place}" if place == "file" else f"{kind}, on a {place}": Caller(
            one.port, one.token, kind, f"alone-{place}"
        )
        for kind in KINDS
        for place, one in places.items()
    }
    taken = await in_turns(cases, rounds)
    for one in cases.values():
        one.close()
    found = {name: (median(took) / 1_000, min(took) / 1_000) for name, took in taken.items()}
    rows = [(name, f"{m:.2f}", f"{least:.2f}") for name, (m, least) in found.items()]
    load = os.getloadavg()[0]
    print(f"{rounds} rounds, load {load:.1f}\n")
    print(markdown_table(("allowed call by the API", "ms, median", "least"), rows))
    for kind in KINDS:
        more = [
            found[f"{kind}, on a server"][at] - found[f"{kind}, state in a file"][at]
            for at in (0, 1)
        ]
        print(
            f"\nan allowed {kind} takes {more[0]:.2f} ms more, median, and {more[1]:.2f}, least "
            f"(target {TARGET_MS})"
        )


async def at_once(forms: Mapping[str, tuple[int, Sequence[Server]]], seconds: float) -> None:
    rates: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for turn in range(REPEATS):
        for kind in KINDS:
            for name, (port, servers) in forms.items():
                callers = [
                    Caller(port, servers[0].token, kind, f"{kind}-{len(rates)}-{turn}-{number}")
                    for number in range(CALLERS)
                ]
                begun, used = time.monotonic(), sum(one.cpu_seconds() for one in servers)
                await asyncio.gather(*(_calls(one, begun + seconds) for one in callers))
                took = time.monotonic() - begun
                busy = (sum(one.cpu_seconds() for one in servers) - used) / took
                done = sum(one.done for one in callers) / took
                rates.setdefault((kind, name), []).append((done, busy))
    base = {kind: median(done for done, _ in rates[kind, "one"]) for kind in KINDS}
    rows = []
    for (kind, name), found in rates.items():
        done, busy = (median(column) for column in zip(*found, strict=True))
        rows.append((f"{kind}: {name}", f"{done:.0f}", f"{done / base[kind]:.2f}", f"{busy:.0%}"))
    head = (f"{CALLERS} callers at once", "calls/s", "beside one", "processors of the servers")
    print(f"\n{os.cpu_count()} processors\n\n{markdown_table(head, rows)}")


async def _calls(caller: Caller, until: float) -> None:
    try:
        while time.monotonic() < until:
            await caller()
    finally:
        caller.close()


@contextlib.contextmanager
def server(base: Path, config: str, fronts: Mapping[int, int]) -> Iterator[Server]:
    """Run one in a home and a project of its own."""
    home, project = base / "home", base / "project"
    (home / ".config/skillhouse").mkdir(parents=True)
    (home / ".config/skillhouse/config.toml").write_text(config)
    (project / ".git").mkdir(parents=True)
    (project / "a.txt").write_text("a line of an ordinary file\n" * 150)
    hosts = [part for port in fronts.values() for part in ("--allow-host", f"127.0.0.1:{port}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "skillhouse", "up", "--port", "0", *hosts],
        stdout=subprocess.PIPE,
        text=True,
        cwd=project,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        assert process.stdout is not None
        found = ADDRESS.fullmatch(process.stdout.readline())
        assert found
        yield Server(port=int(found[1]), token=found[2], pid=process.pid)
    finally:
        process.terminate()
        process.wait(30)


def shared_token(one: Server) -> str:
    """Return a token that each server of the state knows."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{one.port}/api/v1/tokens",
        data=json.dumps({"name": "bench", "scopes": ["call"]}).encode(),
        headers={"Authorization": f"Bearer {one.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        token: str = json.load(answer)["token"]
    return token


@contextlib.contextmanager
def proxies(base: Path, fronts: Mapping[int, int], many: Sequence[Server]) -> Iterator[bool]:
    """Run HAProxy with a front for each number of servers; False where it is not installed."""
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        yield False
        return
    text = HAPROXY
    for count, port in fronts.items():
        servers = "".join(
            f"  server s{n} 127.0.0.1:{one.port} check\n" for n, one in enumerate(many[:count])
        )
        text += f"listen of-{count}\n  bind 127.0.0.1:{port}\n  balance roundrobin\n{servers}"
    (base / "haproxy.cfg").write_text(text)
    process = subprocess.Popen((program, "-db", "-q", "-f", str(base / "haproxy.cfg")))
    try:
        for port in fronts.values():
            wait_for(port)
        yield True
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
