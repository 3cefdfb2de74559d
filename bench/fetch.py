"""What a fetch costs beside a bare HTTP client, and a way through the proxy beside none.

`./x bench fetch [--rounds N]` measures wall time on loopback, in one process and one event loop,
against a server in another one; rounds interleaved, medians. The bare client is httpx2, once with a
connection for each request, as `fetch` makes it, and once with one that it keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio
import httpx2

from _measure import Case, in_turns
from skillhouse.extensions.cells import self_test
from skillhouse.net import EgressProxy, NetPolicy, Route, SecretBinding, fetch, host_rule
from skillhouse.sandbox import SandboxLevel, SandboxProfile, launcher_for

TARGET_MS = 1.0
"""Most that `fetch` may add to a bare client."""
PAGE = b"a line of an ordinary page\n" * 150
RUNS_EACH = 10
"""Fetches are this much more frequent than runs in the sandbox."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure fetching.")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--serve", action="store_true", help="be the server")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    command = (sys.executable, __file__, "--serve")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            anyio.run(report, int(server.stdout.readline()), options.rounds)
        finally:
            server.terminate()


class Page(asyncio.Protocol):
    """Answers every request with the same page."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.request = b""

    def data_received(self, data: bytes) -> None:
        self.request += data
        if not self.request.endswith(b"\r\n\r\n"):
            return
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(PAGE)}\r\nContent-Type: text/plain\r\n\r\n"
        self.transport.write(head.encode() + PAGE)
        if b"connection: close" in self.request.lower():
            self.transport.close()
        self.request = b""


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Page, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def report(port: int, rounds: int) -> None:
    """Measure all cases and print the tables."""
    url = f"http://127.0.0.1:{port}/page"
    name = f"http://localhost:{port}/page"
    secrets = tuple(
        SecretBinding(name=f"KEY_{n}", value=f"value-{n}-" + "x" * 30, hosts=("api.example.com",))
        for n in range(10)
    )
    rules = tuple(host_rule(f"http://{host}:{port}") for host in ("127.0.0.1", "localhost"))
    policy = NetPolicy(hosts=rules, private=("127.0.0.1",))
    guarded = NetPolicy(hosts=rules, private=("127.0.0.1",), secrets=secrets)
    route = Route()
    none_kept = httpx2.Limits(max_keepalive_connections=0)
    async with (
        httpx2.AsyncClient(trust_env=False) as kept,
        httpx2.AsyncClient(trust_env=False, limits=none_kept) as client,
    ):

        async def bare(by: httpx2.AsyncClient, target: str) -> None:
            assert (await by.get(target)).content == PAGE

        async def ours(target: str, with_policy: NetPolicy) -> None:
            response = await fetch(target, policy=with_policy, route=route)
            assert response.body == PAGE

        found = await interleaved(
            {
                "httpx2, one connection kept": lambda: bare(kept, url),
                "httpx2, a connection each": lambda: bare(client, url),
                "httpx2 by name, a connection each": lambda: bare(client, name),
                "fetch": lambda: ours(url, policy),
                "fetch by name": lambda: ours(name, policy),
                "fetch with ten secrets": lambda: ours(url, guarded),
            },
            rounds,
        )
    print(f"{rounds} rounds, a page of {len(PAGE)} bytes\n")
    print("| case | median | target |", "| --- | --: | --: |", sep="\n")
    rows = [(case, f"{us:,.0f} µs", "") for case, us in found.items()]
    for case, beside in (
        ("fetch", "httpx2, a connection each"),
        ("fetch with ten secrets", "httpx2, a connection each"),
        ("fetch by name", "httpx2 by name, a connection each"),
        ("fetch", "httpx2, one connection kept"),
    ):
        added = found[case] - found[beside]
        rows.append(
            (f"{case}, added to {beside}", f"{added:,.0f} µs", f"{TARGET_MS * 1_000:,.0f} µs")
        )
    for row in rows:
        print(f"| {' | '.join(row)} |")
    await report_bridge(policy, max(5, rounds // RUNS_EACH))


async def report_bridge(policy: NetPolicy, rounds: int) -> None:
    """Measure a run with and without a way to the proxy."""
    status = await self_test()
    if status.level is SandboxLevel.NONE:
        return
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory).resolve()  # noqa: ASYNC240 - nothing else waits.
        workspace = base / "workspace"
        workspace.mkdir()
        launcher = launcher_for(status, state=base / "stash")
        proxy = EgressProxy(policy, report=lambda decision: None)
        async with proxy.listening(base / "proxy.sock") as path:

            async def run(proxy_socket: Path | None) -> None:
                profile = SandboxProfile(workspace, proxy_socket=proxy_socket)
                done = await launcher.run(("true",), profile, cwd=workspace)
                assert done.exit_code == 0, done

            found = await interleaved(
                {"true": lambda: run(None), "true, with a proxy": lambda: run(path)}, rounds
            )
    print(f"\nsandbox: {status.level}; {rounds} rounds\n")
    print("| run | median |", "| --- | --: |", sep="\n")
    for case, us in found.items():
        print(f"| {case} | {us / 1_000:,.1f} ms |")


async def interleaved(cases: Mapping[str, Case], rounds: int) -> dict[str, float]:
    """Return the median of each case in µs."""
    found = await in_turns(cases, rounds)
    return {name: statistics.median(values) for name, values in found.items()}


if __name__ == "__main__":
    main()
