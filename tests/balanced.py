"""`--replicas`: where a test starts one server, two of one state are behind HAProxy instead.

HAProxy has the configuration that docs/guides/from-one-machine-to-many.md shows.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import until
from tests.replicas import http

ONE_SERVER = {
    "address": "it is about the address that one server prints, and about the cookie of its port",
    "agent": "a server that a coding agent started opens no other one, nor does one open it (0552)",
    "balancer": "HAProxy refuses the request before a server has it",
    "inside": "it puts something into the server's process in the place of a part, or asks for it",
    "moment": "it is about what one server keeps for a second, or which one a page listens to",
    "process": "it is about the signals, the output or the restart of one process",
    "session": "it is about which skills a conversation has loaded, which one server keeps",
    "servers": "it starts several servers, a balancer or such runs itself",
}
"""Why a test is left out with `--replicas`: what its mark `one_server` names."""
GUIDE = Path(__file__).parents[1] / "docs/guides/from-one-machine-to-many.md"
BLOCK = re.compile(
    r"`haproxy\.cfg`:\n\n<!-- run by: [^\n]* -->\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE
)
PROGRAM = shutil.which("haproxy") or "/usr/sbin/haproxy"
"""Debian keeps it off the path of users."""
RUNNING: list[str] = []
"""Addresses of balancers that run, for one test or for all of a file."""
_REPLICATED: list[bool] = []
BALANCED: set[str] = set()
"""The tests of this run whose requests went through HAProxy."""


def replicate(*, is_wanted: bool) -> None:
    """Have tests start two servers where they start one, or one as they are written."""
    _REPLICATED[:] = [is_wanted]


def is_replicated() -> bool:
    return True in _REPLICATED


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def haproxy(base: Path, ports: dict[str, int]) -> Iterator[None]:
    """Run the balancer of the guide for a block; `ports` are by those that the guide shows."""
    found = BLOCK.search(GUIDE.read_text(encoding="utf-8"))
    assert found is not None
    text = found[1]
    for shown, real in ports.items():
        assert f":{shown}" in text
        text = text.replace(f":{shown}", f":{real}")
    file = base / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    with subprocess.Popen([PROGRAM, "-f", file, "-db"], stderr=subprocess.DEVNULL) as running:
        try:
            yield
        finally:
            running.kill()


def is_answering(address: str) -> bool:
    """Whether a ready server is behind an address."""
    try:
        return http(address, "/readyz").status == 200
    except OSError:
        return False


@contextmanager
def balanced(base: Path, front: int, servers: tuple[str, str]) -> Iterator[str]:
    """Run HAProxy before two servers at a port for a block; gives its address."""
    first, second = (int(address.rpartition(":")[2]) for address in servers)
    address = f"http://127.0.0.1:{front}"
    with haproxy(base, {"8600": front, "8601": first, "8602": second}):
        assert until(lambda: is_answering(address), 20)
        RUNNING.append(address)
        try:
            yield address
        finally:
            RUNNING.remove(address)
            BALANCED.add(os.environ.get("PYTEST_CURRENT_TEST", "").partition(" (")[0])
