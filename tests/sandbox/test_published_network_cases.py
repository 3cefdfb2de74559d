"""Published cases about hosts, tried on a command whose one way out is the filtering proxy."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.sandbox import Launcher, SandboxError, SandboxProfile
from tests.sandbox.places import launcher, workspace
from tests.sandbox.test_bridge_inside import outside, run

pytestmark = pytest.mark.slow

__all__ = ["launcher", "workspace"]

ASK = """
import json, os, socket, sys
host, port = os.environ['HTTP_PROXY'].removeprefix('http://').split(':')
found = []
for line in sys.argv[1:]:
    try:
        with socket.create_connection((host, int(port)), 5) as link:
            head = f'{line} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'
            link.sendall(head.encode())
            found.append(int(link.makefile('rb').readline().split()[1]))
    except (OSError, IndexError) as error:
        found.append(type(error).__name__)
print(json.dumps(found))
"""
"""Asks the proxy for each line, whatever programs would make of it, and prints the answers."""


async def asked(
    launcher: Launcher, workspace: Path, base: Path, rules: Sequence[str], lines: Sequence[str]
) -> tuple[list[Any], int]:
    """Return what the proxy answered to each line, and how many requests the server saw."""
    async with outside(base, *rules) as out:
        words = [line.replace("PORT", str(out.server.port)) for line in lines]
        done = await run(launcher, workspace, ("python3", "-c", ASK, *words), out.proxy)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout), len(out.server.seen)


def answers(
    launcher: Launcher, workspace: Path, base: Path, rules: Sequence[str], lines: Sequence[str]
) -> tuple[list[Any], int]:
    return anyio.run(asked, launcher, workspace, base, rules, lines)


def test_a_listed_host_is_reached(launcher: Launcher, workspace: Path, tmp_path: Path) -> None:
    lines = ("GET http://docs.test:PORT/", "GET http://DOCS.test:PORT/a?b=c")
    found = answers(launcher, workspace, tmp_path, ("http://docs.test:PORT",), lines)
    assert found == ([200, 200], 2)


def test_a_host_that_is_not_listed_is_refused(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    lines = (
        "GET http://other.test:PORT/",
        "GET http://sub.docs.test:PORT/",
        "GET http://127.0.0.1:PORT/",
        "GET http://localhost:PORT/",
        "GET http://docs.test.evil.test:PORT/",
        "GET http://docs.test@evil.test:PORT/",
        "CONNECT docs.test:PORT",
        "CONNECT evil.test:443",
    )
    codes, seen = answers(launcher, workspace, tmp_path, ("http://docs.test:PORT",), lines)
    assert seen == 0
    assert set(codes) <= {400, 403}


def test_another_port_or_protocol_of_a_listed_host_is_refused(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    lines = (
        "GET http://docs.test/",
        "GET http://docs.test:22/",
        "GET https://docs.test:PORT/",
        "GET ftp://docs.test:PORT/",
        "GET file:///etc/passwd",
        "POST http://docs.test:PORT/",
        "CONNECT docs.test:22",
        "CONNECT docs.test:PORT",
    )
    codes, seen = answers(launcher, workspace, tmp_path, ("http://docs.test:PORT",), lines)
    assert seen == 0
    assert set(codes) <= {400, 403, 405}


def test_a_wildcard_means_whole_labels(launcher: Launcher, workspace: Path, tmp_path: Path) -> None:
    refused = ("example.com.evil", "badexample.com", "example.com", "x.example.com.evil")
    lines = [f"GET http://{name}:PORT/" for name in ("a.example.com", *refused)]
    codes, seen = answers(launcher, workspace, tmp_path, ("http://*.example.com:PORT",), lines)
    assert codes == [200, 403, 403, 403, 403]
    assert seen == 1


FETCHES = (
    ("curl", "-sSf", "--max-time", "5", "http://127.0.0.1:PORT/"),
    ("curl", "-sSfk", "--max-time", "5", "https://example.com/"),
    ("curl", "-sSf", "--noproxy", "*", "--max-time", "5", "http://127.0.0.1:PORT/"),
    ("wget", "-q", "-T", "5", "-t", "1", "-O", "-", "http://example.com/"),
    ("getent", "hosts", "example.com"),
)


def test_an_empty_list_lets_nothing_out(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    lines = ("GET http://docs.test:PORT/", "CONNECT docs.test:PORT", "GET http://127.0.0.1:PORT/")
    codes, seen = answers(launcher, workspace, tmp_path, (), lines)
    assert (set(codes), seen) == ({403}, 0)

    async def programs() -> None:
        async with outside(tmp_path) as out:
            for words in FETCHES:
                if shutil.which(words[0]) is None:
                    continue
                argv = tuple(word.replace("PORT", str(out.server.port)) for word in words)
                assert (await run(launcher, workspace, argv, out.proxy)).exit_code != 0, argv
            assert out.server.seen == []
            assert not any(decision.allowed for decision in out.said)

    anyio.run(programs)


PAIR = """
import socket, sys
results = []
def attempt(action):
    try:
        action()
        results.append('worked')
    except OSError as error:
        results.append(error.errno)
attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW))
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    for name in sys.argv[1:]:
        attempt(lambda: one.connect(name))
        attempt(lambda: one.sendto(b'x', name) and other.recv(9) and sys.exit(9))
    other.close()
    attempt(lambda: one.connect(sys.argv[1]))
print(*sorted(set(map(str, results))))
"""


async def test_beside_a_proxy_a_socket_pair_leads_nowhere(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as host:
        host.bind(str(workspace / "host.sock"))
        host.listen()
        async with outside(tmp_path) as out:
            names = ("/run/skillhouse-proxy", "host.sock")
            argv = ("python3", "-c", PAIR, *names)
            done = await run(launcher, workspace, argv, out.proxy)
            # EPERM, ENOENT is no answer here; EINVAL, EISCONN and EOPNOTSUPP are a pair's.
            assert set(done.stdout.decode().split()) <= {"1", "22", "95", "106"}, done
            assert out.said == []
        host.setblocking(False)
        with pytest.raises(BlockingIOError):
            host.accept()


async def test_beside_a_proxy_no_unix_socket_is_made(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    code = (
        "import socket\n"
        "for kind in (1, 2, 5):\n"
        "    try: socket.socket(socket.AF_UNIX, kind)\n"
        "    except OSError as error: print(error.errno)"
    )
    async with outside(tmp_path) as out:
        done = await run(launcher, workspace, ("python3", "-c", code), out.proxy)
        assert done.stdout.split() == [b"97"] * 3


async def test_a_proxy_that_is_gone_is_no_way_out(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    async with outside(tmp_path, "http://docs.test:PORT") as out:
        port = out.server.port
    with pytest.raises(SandboxError):
        await run(launcher, workspace, ("true",), out.proxy)
    # A socket that nobody listens at any more.
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    words = ("python3", "-c", ASK, f"GET http://docs.test:{port}/")
    done = await run(launcher, workspace, words, tmp_path / "dead.sock")
    assert done.exit_code != 0 or json.loads(done.stdout) != [200]
    both = SandboxProfile(workspace, network=True, proxy_socket=tmp_path / "dead.sock")
    with pytest.raises(SandboxError):
        await launcher.run(("true",), both, cwd=workspace)
