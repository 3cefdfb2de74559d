"""Tests of the way from a run to a proxy: run_options.py and bridge_inside.py, in earnest."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from skillhouse.net import EgressDecision, EgressProxy, NetPolicy, Route, host_rule
from skillhouse.sandbox import Completed, Launcher, Limits, SandboxError, SandboxProfile
from tests.net.certificates import contexts
from tests.net.servers import LOOPBACK, Server, fixed, ok, secure, serving
from tests.sandbox.places import launcher, workspace

__all__ = ["launcher", "workspace"]

pytestmark = pytest.mark.slow

CURL = ("curl", "-sS", "--max-time", "8")


@dataclass(slots=True)
class Outside:
    """What is on the host: a server, a proxy that lets `docs.test` reach it, and what it said."""

    server: Server
    proxy: Path
    said: list[EgressDecision] = field(default_factory=list)


@asynccontextmanager
async def outside(
    base: Path, *rules: str, tls: ssl.SSLContext | None = None, page: bytes = b"page"
) -> AsyncIterator[Outside]:
    async with secure(tls, ok(page)) if tls else serving(ok(page)) as server:
        place = Outside(server, base / "proxy.sock")
        hosts = tuple(host_rule(rule.replace("PORT", str(server.port))) for rule in rules)
        policy = NetPolicy(hosts=hosts, private=LOOPBACK)
        route = Route(resolve=fixed(["127.0.0.1"]))
        proxy = EgressProxy(policy, report=place.said.append, route=route)
        async with proxy.listening(place.proxy):
            yield place


async def run(launcher: Launcher, workspace: Path, argv: Sequence[str], proxy: Path) -> Completed:
    profile = SandboxProfile(workspace, proxy_socket=proxy, limits=Limits(seconds=20.0))
    return await launcher.run(argv, profile, cwd=workspace)


def said(done: Completed) -> tuple[int | None, str]:
    return done.exit_code, (done.stdout + done.stderr).decode()


def test_a_command_reaches_an_allowed_host_by_its_name_through_the_proxy_only(
    launcher: Launcher, workspace: Path, tmp_path: Path, need
):
    need(Path("/usr/bin/curl").exists(), "no curl")

    async def main() -> None:
        async with outside(tmp_path, "http://docs.test:PORT") as out:
            url = f"http://docs.test:{out.server.port}/a"
            done = await run(launcher, workspace, (*CURL, url), out.proxy)
            assert said(done) == (0, "page")
            direct = (*CURL, "--noproxy", "*", url)
            assert (await run(launcher, workspace, direct, out.proxy)).exit_code == 6  # No DNS.
            address = (*CURL, "--noproxy", "*", out.server.url)
            assert (await run(launcher, workspace, address, out.proxy)).exit_code == 7
            other = (*CURL, f"http://other.test:{out.server.port}/")
            code, text = said(await run(launcher, workspace, other, out.proxy))
            assert (code, "no rule allows" in text) == (0, True)
            assert [(d.allowed, d.method, d.origin) for d in out.said] == [
                (True, "GET", f"http://docs.test:{out.server.port}"),
                (False, "GET", f"http://other.test:{out.server.port}"),
            ]
            assert len(out.server.seen) == 1

    anyio.run(main)


async def test_a_tunnel_needs_a_rule_that_says_connect(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    script = (
        "import os, socket, ssl, sys\n"
        "host, port = os.environ['HTTPS_PROXY'].removeprefix('http://').split(':')\n"
        "for name in ('docs.test', 'deep.test'):\n"
        "    s = socket.create_connection((host, int(port)))\n"
        "    head = f'CONNECT {name}:{sys.argv[1]} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'\n"
        "    s.sendall(head.encode())\n"
        "    print(s.recv(100).split(b'\\r\\n')[0].decode())\n"
        "    if name == 'deep.test':\n"
        "        s = ssl._create_unverified_context().wrap_socket(s, server_hostname=name)\n"
        "        s.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n')\n"
        "        data = b''\n"
        "        while chunk := s.recv(65536):\n"
        "            data += chunk\n"
        "        print(len(data.partition(b'\\r\\n\\r\\n')[2]))\n"
    )

    mine, _ = contexts(tmp_path, "deep.test")
    rules = ("https://docs.test:PORT", "CONNECT https://deep.test:PORT")
    async with outside(tmp_path, *rules, tls=mine, page=b"x" * 3_000_000) as out:
        argv = ("python3", "-c", script, str(out.server.port))
        done = await run(launcher, workspace, argv, out.proxy)
        refused = f"403 no rule allows CONNECT to https://docs.test:{out.server.port}"
        assert said(done) == (0, f"HTTP/1.1 {refused}\nHTTP/1.1 200 connected\n3000000\n")
        assert [d.allowed for d in out.said] == [False, True]


INSIDE = """
import ctypes, json, os, socket, sys
found = {}

def attempt(name, action):
    try:
        action()
        found[name] = "succeeded"
    except OSError as error:
        found[name] = type(error).__name__

def connect(family, address):
    with socket.socket(family) as s:
        s.settimeout(2)
        s.connect(address)

told = json.loads(sys.argv[1])
bridge = os.getppid()
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX))
attempt("the proxy's socket", lambda: connect(socket.AF_UNIX, "/run/skillhouse-proxy"))
attempt("host tcp", lambda: connect(socket.AF_INET, ("127.0.0.1", told["tcp"])))
attempt("public tcp", lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))
attempt("public ipv6", lambda: connect(socket.AF_INET6, ("2001:db8::1", 80)))
attempt("dns", lambda: socket.getaddrinfo("docs.test", 80))
attempt("vsock", lambda: socket.socket(40))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
attempt("mptcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(
    ("192.0.2.1", 80)))
attempt("abstract", lambda: connect(socket.AF_UNIX, "\\0" + "host"))
attempt("bridge memory", lambda: open(f"/proc/{bridge}/mem", "r+b"))
for n in range(10):
    attempt(f"descriptor {n} of the bridge", lambda: os.open(f"/proc/{bridge}/fd/{n}", os.O_RDWR))
    attempt(f"where that leads {n}", lambda: os.readlink(f"/proc/{bridge}/fd/{n}"))
attempt("bridge environment", lambda: open(f"/proc/{bridge}/environ").read())
attempt("ptrace", lambda: ctypes.CDLL(None, use_errno=True).ptrace(16, bridge, 0, 0) and exec(
    "raise OSError"))
attempt("remove the socket", lambda: os.unlink("/run/skillhouse-proxy"))
attempt("change the bridge", lambda: open("/etc/skillhouse-bridge.py", "w"))
found["filters"] = [
    line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp_filters")]
found["descriptors"] = sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1]
print(json.dumps(found))
"""


async def test_the_command_itself_has_no_socket_but_to_the_bridge_and_no_hold_on_it(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    async with outside(tmp_path) as out:
        told = json.dumps({"tcp": out.server.port})
        argv = ("python3", "-c", INSIDE, told)
        done = await run(launcher, workspace, argv, out.proxy)
        found = json.loads(done.stdout)
        assert found.pop("filters") in (["2"], [])  # Newer kernels count them.
        assert found.pop("descriptors") == [0, 1, 2]
        assert {name for name, came in found.items() if came == "succeeded"} == set()
        assert (out.said, out.server.seen) == ([], [])


async def test_a_command_ends_as_it_would_without_a_bridge(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    cases = {
        "exit 3": (3, None, b"", ""),
        "cat": (0, None, b"fed", ""),
        "kill -TERM $$": (None, 15, b"", ""),
        "sleep 60 & echo left": (0, None, b"left\n", ""),
        "sleep 60": (None, None, b"", "time"),
        "yes | head -c 3 | tr -d '\\n'": (0, None, b"y"[:1] + b"y", ""),
    }
    async with outside(tmp_path) as out:
        found = {}
        for script in cases:
            profile = SandboxProfile(workspace, proxy_socket=out.proxy, limits=Limits(seconds=2.0))
            done = await launcher.run(("sh", "-c", script), profile, cwd=workspace, stdin=b"fed")
            found[script] = (done.exit_code, done.signal, done.stdout, done.limit)
        assert found == cases
        done = await run(launcher, workspace, ("env",), out.proxy)
        lines = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
        proxies = {name for name, value in lines.items() if value == "http://127.0.0.1:3128"}
        assert proxies == {
            *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
            *("http_proxy", "https_proxy", "all_proxy"),
        }


async def test_many_connections_and_one_that_never_speaks_do_not_stop_the_others(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    script = (
        "import socket\n"
        "idle = [socket.create_connection(('127.0.0.1', 3128)) for _ in range(20)]\n"
        "for n in range(40):\n"
        "    s = socket.create_connection(('127.0.0.1', 3128))\n"
        "    s.sendall(b'GET http://docs.test:PORT/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "    data = b''\n"
        "    while chunk := s.recv(65536):\n"
        "        data += chunk\n"
        "    assert data.endswith(b'page'), data\n"
        "print('done')\n"
    )
    async with outside(tmp_path, "http://docs.test:PORT") as out:
        text = script.replace("PORT", str(out.server.port))
        done = await run(launcher, workspace, ("python3", "-c", text), out.proxy)
        assert said(done) == (0, "done\n")
        assert len(out.server.seen) == 40


def test_what_is_no_proxy_or_more_than_a_proxy_is_refused(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    plain = tmp_path / "plain"
    plain.touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "there.sock"))
        assert stat.S_ISSOCK(os.stat(tmp_path / "there.sock").st_mode)
        cases = [
            (SandboxProfile(workspace, proxy_socket=tmp_path / "missing"), "place-missing"),
            (SandboxProfile(workspace, proxy_socket=plain), "place-missing"),
            (
                SandboxProfile(workspace, proxy_socket=tmp_path / "there.sock", network=True),
                "network-refused",
            ),
        ]
        for profile, code in cases:

            async def main(profile: SandboxProfile = profile) -> None:
                await launcher.run(("true",), profile, cwd=workspace)

            with pytest.raises(SandboxError) as caught:
                anyio.run(main)
            assert caught.value.code == code


def ignored_here() -> int:
    """Return the signals that this process ignores, but for the two that Python does (fs/proc)."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "SigIgn" in line
    )
    own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    return int(line.split()[1], 16) & ~own


async def test_a_command_beside_the_bridge_ignores_no_further_signal(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    """Python ignores two; a command that inherited that would not end with its reader."""
    async with outside(tmp_path, "http://docs.test:PORT") as out:
        command = ("grep", "SigIgn", "/proc/self/status")
        done = await run(launcher, workspace, command, out.proxy)
        assert said(done) == (0, f"SigIgn:\t{ignored_here():016x}\n")
