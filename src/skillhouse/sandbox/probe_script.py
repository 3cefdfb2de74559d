"""The self-test's script in the sandbox: it tries what must fail and reports the results.

Run as a script, with the standard library only. Its argument is a JSON object; it prints one that
maps the name of each probe to what went wrong, "" for nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLONE_NEWUSER = 0x10000000
PTRACE_NUMBER = {"x86_64": 101, "aarch64": 117}
NAMES = {"PATH", "HOME", "LANG", "SKILLHOUSE_PROBE", "PWD", "LC_CTYPE", "SHLVL", "_"}
"""Allowed variables; shells and Python set the last four."""
MORE_NAMES = {"TMPDIR", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_COUNT"}
MORE_NAMES |= {"GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"}
"""Where nothing can be mounted, these replace mounts."""
PR_GET_SECCOMP, PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS = 21, 23, 39
CAPABILITY_VERSION = 0x20080522


def main() -> None:
    given = json.loads(sys.argv[1])
    results = {}
    for probe in PROBES:
        try:
            results[probe.__name__] = probe(given)
        except Exception as error:  # noqa: BLE001 - a probe that cannot be made has not passed.
            results[probe.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))


def outside_unreadable(given: Any) -> str:
    return _succeeds("could be read", lambda: Path(given["canary"]).read_text())


def outside_unwritable(given: Any) -> str:
    # Beside the workspace there may be the sandbox's own /tmp; the host says what arrived.
    with contextlib.suppress(OSError):
        Path(given["outside"]).touch()
    for directory in ("/", "/usr", "/etc", "/dev", "/proc/sys/kernel"):
        if said := _succeeds("could be written", lambda: Path(directory, "probe").touch()):  # noqa: B023
            return f"{directory} {said}"
    # The superuser's without any capability: only a read-only mount keeps it (bubblewrap covers
    # /proc/sys), and it names a program that the host would run.
    kernel = Path("/proc/sys/kernel/core_pattern")
    return _succeeds(f"{kernel} could be opened", lambda: kernel.open("r+b", buffering=0).close())


def existence_hidden(given: Any) -> str:
    return _succeeds("could be seen", lambda: os.stat(given["canary"]))


def workspace_writable(given: Any) -> str:
    Path("directory", "written").write_text("written")
    os.rename("directory/written", "directory/renamed")
    return ""


def workspace_top_writable(given: Any) -> str:
    Path("written").write_text("written")
    return ""


def modes_settable(given: Any) -> str:
    os.chmod("directory/program", 0o700)
    return ""


def tmp_writable(given: Any) -> str:
    Path("/tmp/skillhouse-probe-own").write_text("own")  # noqa: S108 - the sandbox's own.
    return ""


def loopback_usable(given: Any) -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
    return ""


def protected_unwritable(given: Any) -> str:
    for name in (".git/hooks/probe", ".git/config", ".bashrc", ".mcp.json", ".env"):
        if said := _succeeds("could be written", lambda: Path(name).write_text("probe")):  # noqa: B023
            return f"{name} {said}"
    if said := _succeeds("could be moved", lambda: os.rename(".git", "moved")):
        return f".git {said}"
    return _succeeds("could be read", lambda: Path(".env").read_text())


def tcp_refused(given: Any) -> str:
    return _succeeds(
        "reached the host", lambda: socket.create_connection(("127.0.0.1", given["tcp"]), 1).close()
    )


def udp_refused(given: Any) -> str:
    # The sender of a datagram gets no error; the host checks whether one arrived.
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"probe", ("127.0.0.1", given["udp"]))
    return ""


def unix_refused(given: Any) -> str:
    for address in (given["unix"], "\0" + given["abstract"]):
        if said := _succeeds("reached the host", lambda: _connect(address)):  # noqa: B023
            return said
    return ""


def processes_hidden(given: Any) -> str:
    process = given["process"]
    with contextlib.suppress(OSError):
        seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        if len(seen) > 4:
            return f"{len(seen)} processes are visible"
    for name in ("environ", "cmdline", "maps", "cwd"):
        place = f"/proc/{process}/{name}"
        action = lambda: os.readlink(place) if name == "cwd" else Path(place).read_bytes()  # noqa: B023, E731
        # In a process namespace of its own the number may be a process of this run.
        if not given["has_namespaces"] and (said := _succeeds("of the host could be read", action)):
            return f"{name} {said}"
    return ""


def signals_refused(given: Any) -> str:
    if given["has_namespaces"]:
        return ""
    return _succeeds("the host's process could be signalled", lambda: os.kill(given["process"], 0))


def limits_unchanged(given: Any) -> str:
    if given["has_namespaces"]:
        return ""
    # Where they succeed, they change nothing of account.
    limits = (resource.RLIMIT_CORE, (0, 0))
    for action in (
        lambda: resource.prlimit(given["process"], *limits),
        lambda: os.setpriority(os.PRIO_PROCESS, given["process"], os.getpriority(0, 0)),
        lambda: os.sched_setaffinity(given["process"], os.sched_getaffinity(0)),
    ):
        if said := _succeeds("a limit or priority of the host's process could be set", action):
            return said
    return ""


def outside_unchanged(given: Any) -> str:
    """Owners, modes and times: what needs no right to write."""
    for action in (
        lambda: os.chmod(given["canary"], 0o644),
        lambda: os.utime(given["canary"], (1, 1)),
        lambda: os.utime(given["canary"]),
        lambda: os.setxattr(given["canary"], "user.probe", b"x"),
        lambda: os.truncate(given["canary"], 0),
        lambda: os.chmod(".git/config", 0o700),
    ):
        if said := _succeeds("a file's mode, times or attributes could be changed", action):
            return said
    return ""


def shared_memory_refused(given: Any) -> str:
    if given["has_namespaces"]:
        return ""
    library = ctypes.CDLL(None, use_errno=True)
    made = library.shmget(0, 4096, 0o1600)  # IPC_PRIVATE, IPC_CREAT.
    if made < 0:
        return ""
    library.shmctl(made, 0, None)  # IPC_RMID
    return "System V memory of the host could be made"


def environment_clean(given: Any) -> str:
    allowed = NAMES if given["has_namespaces"] else NAMES | MORE_NAMES
    if extra := set(os.environ) - allowed:
        return f"unexpected variables: {len(extra)}"
    if os.environ.get("SKILLHOUSE_PROBE") != "declared":
        return "a declared variable is missing"
    if not given["has_namespaces"]:
        return _succeeds("the first process reveals the host", Path("/proc/1/environ").read_bytes)
    leaked = Path("/proc/1/environ").read_bytes() + Path("/proc/1/cmdline").read_bytes()
    if given["canary_name"].encode() in leaked.split(b"\0")[0] or b"=" in leaked.split(b"--")[0]:
        return "the first process reveals the host"
    if Path("/proc/1/environ").read_bytes():
        return "the first process has an environment"
    return ""


def descriptors_closed(given: Any) -> str:
    open_ = []
    for number in range(1024):
        with contextlib.suppress(OSError):
            os.fstat(number)
            open_.append(number)
    return "" if open_ == [0, 1, 2] else f"open descriptors: {open_}"


def namespaces_refused(given: Any) -> str:
    library = ctypes.CDLL(None, use_errno=True)
    return "a user namespace could be made" if library.unshare(CLONE_NEWUSER) == 0 else ""


def calls_refused(given: Any) -> str:
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(PTRACE_NUMBER[os.uname().machine], 0, 0, 0, 0) == 0:
        return "ptrace is allowed"
    bounding = [number for number in range(64) if library.prctl(PR_CAPBSET_READ, number) == 1]
    header, values = struct.pack("=Ii", CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    wrong = {
        "CapBnd": bool(bounding),
        "CapEff": library.capget(header, values) != 0 or any(values.raw),
        "NoNewPrivs": library.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1,
        "Seccomp": library.prctl(PR_GET_SECCOMP) != 2,
    }
    named = ", ".join(name for name, is_wrong in wrong.items() if is_wrong)
    return f"not as it should be: {named}" if named else ""


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
    outside_unchanged,
    existence_hidden,
    workspace_writable,
    workspace_top_writable,
    modes_settable,
    tmp_writable,
    protected_unwritable,
    tcp_refused,
    udp_refused,
    unix_refused,
    loopback_usable,
    processes_hidden,
    signals_refused,
    limits_unchanged,
    shared_memory_refused,
    environment_clean,
    descriptors_closed,
    namespaces_refused,
    calls_refused,
)

if __name__ == "__main__":
    main()
