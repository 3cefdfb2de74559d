"""The self-test's script in the sandbox: it tries what must fail and reports the results.

Run as a script, with the standard library only. Its argument is a JSON object; it prints one that
maps the name of each probe to what went wrong, "" for nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLONE_NEWUSER = 0x10000000
PTRACE_NUMBER = {"x86_64": 101, "aarch64": 117}
NAMES = {"PATH", "HOME", "LANG", "SKILLHOUSE_PROBE", "PWD", "LC_CTYPE"}
"""Allowed variables; the shell and Python set the last two."""


def main() -> None:
    told = json.loads(sys.argv[1])
    said = {}
    for probe in PROBES:
        try:
            said[probe.__name__] = probe(told)
        except Exception as error:  # noqa: BLE001 - a probe that cannot be made has not passed.
            said[probe.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(said))


def outside_unreadable(told: Any) -> str:
    return _succeeds("could be read", lambda: Path(told["canary"]).read_text())


def outside_unwritable(told: Any) -> str:
    # Beside the workspace there may be the sandbox's own /tmp; the host says what arrived.
    with contextlib.suppress(OSError):
        Path(told["outside"]).touch()
    for directory in ("/", "/usr", "/etc", "/dev", "/proc/sys/kernel"):
        if said := _succeeds("could be written", lambda: Path(directory, "probe").touch()):  # noqa: B023
            return f"{directory} {said}"
    # The superuser's without any capability: only a read-only mount keeps it (bubblewrap covers
    # /proc/sys), and it names a program that the host would run.
    kernel = Path("/proc/sys/kernel/core_pattern")
    return _succeeds(f"{kernel} could be opened", lambda: kernel.open("r+b", buffering=0).close())


def workspace_writable(told: Any) -> str:
    Path("written").write_text("written")
    return ""


def protected_unwritable(told: Any) -> str:
    for name in (".git/hooks/probe", ".git/config", ".bashrc", ".mcp.json", ".env"):
        if said := _succeeds("could be written", lambda: Path(name).write_text("probe")):  # noqa: B023
            return f"{name} {said}"
    if said := _succeeds("could be moved", lambda: os.rename(".git", "moved")):
        return f".git {said}"
    return _succeeds("could be read", lambda: Path(".env").read_text())


def tcp_refused(told: Any) -> str:
    return _succeeds(
        "reached the host", lambda: socket.create_connection(("127.0.0.1", told["tcp"]), 1).close()
    )


def udp_refused(told: Any) -> str:
    # The sender of a datagram gets no error; the host checks whether one arrived.
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"probe", ("127.0.0.1", told["udp"]))
    return ""


def unix_refused(told: Any) -> str:
    for address in (told["unix"], "\0" + told["abstract"]):
        if said := _succeeds("reached the host", lambda: _connect(address)):  # noqa: B023
            return said
    return ""


def processes_hidden(told: Any) -> str:
    seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    if len(seen) > 4:
        return f"{len(seen)} processes are visible"
    return ""


def environment_clean(told: Any) -> str:
    if extra := set(os.environ) - NAMES:
        return f"unexpected variables: {len(extra)}"
    if os.environ.get("SKILLHOUSE_PROBE") != "declared":
        return "a declared variable is missing"
    leaked = Path("/proc/1/environ").read_bytes() + Path("/proc/1/cmdline").read_bytes()
    if told["canary_name"].encode() in leaked.split(b"\0")[0] or b"=" in leaked.split(b"--")[0]:
        return "the first process reveals the host"
    if Path("/proc/1/environ").read_bytes():
        return "the first process has an environment"
    return ""


def descriptors_closed(told: Any) -> str:
    # Listing them takes one more.
    open_ = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    return "" if open_ in ([0, 1, 2], [0, 1, 2, 3]) else f"open descriptors: {open_}"


def namespaces_refused(told: Any) -> str:
    library = ctypes.CDLL(None, use_errno=True)
    return "a user namespace could be made" if library.unshare(CLONE_NEWUSER) == 0 else ""


def calls_refused(told: Any) -> str:
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(PTRACE_NUMBER[os.uname().machine], 0, 0, 0, 0) == 0:
        return "ptrace is allowed"
    state = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    expected = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    wrong = [name for name, value in expected.items() if state.get(name) != value]
    return f"not as it should be: {', '.join(wrong)}" if wrong else ""


def _succeeds(message: str, action: Callable[[], object]) -> str:
    try:
        action()
    except OSError:
        return ""
    return message


def _connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)


PROBES: tuple[Callable[[Any], str], ...] = (
    outside_unreadable,
    outside_unwritable,
    workspace_writable,
    protected_unwritable,
    tcp_refused,
    udp_refused,
    unix_refused,
    processes_hidden,
    environment_clean,
    descriptors_closed,
    namespaces_refused,
    calls_refused,
)

if __name__ == "__main__":
    main()
