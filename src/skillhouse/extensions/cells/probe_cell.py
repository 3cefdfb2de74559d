"""The skill that the self-test runs in a cell for Python skills.

`look` tries what must fail and leaves behind all that it can; `left` is the next call and reports
what it finds of that. In a container of its own, without namespaces, the same is `look_contained`
and `left_contained`; `memory` and `spin` there run into limits.
"""

import builtins
import contextlib
import ctypes
import os
import resource
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MARK = "left-by-another-call"
SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - the cell's own.
FIXED = ("/", "/skill", "/usr", "/etc", "/dev", "/proc", "/sys")
OWN_NAMES = {"PATH", "LANG", "HOME", "TMPDIR"}
OUTPUT = "OUTPUT_DIR"  # As in cell_output.py.
PTRACE_ATTACH = 16


def refused(message: str, action: Callable[[], object]) -> str:
    """Return "" if the action fails as something forbidden does."""
    try:
        action()
    except OSError:
        return ""
    return message


def all_refused(actions: Iterable[Callable[[], object]]) -> str:
    return next(filter(None, (refused("it was possible", action) for action in actions)), "")


def look(params: Any, context: Any) -> dict[str, str]:
    results = {probe.__name__: probe(params) for probe in PROBES}
    for place in SCRATCH:
        with contextlib.suppress(OSError):
            Path(place, MARK).touch()
    setattr(builtins, MARK, True)
    return results | {"programs_startable": start(params["process"])}


def start(argv: list[str]) -> str:
    """Start a program that outlives the call, if it can; return "" if it did."""
    nothing = subprocess.DEVNULL
    try:
        subprocess.Popen(argv, start_new_session=True, stdout=nothing, stderr=nothing)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def outside_unreadable(params: Any) -> str:
    for name in (params["canary"], "/etc/shadow", "/proc/1/environ", "/proc/self/mountinfo"):
        if hole := refused(f"{name} could be read", Path(name).read_bytes):
            return hole
    return ""


def outside_unwritable(params: Any) -> str:
    # The host checks what arrived beside its canary.
    with contextlib.suppress(OSError):
        write(params["outside"])
    for name in FIXED:
        if hole := refused(f"{name} could be written", lambda: write(f"{name}/probe")):  # noqa: B023
            return hole
    return refused("the skill could be written", lambda: Path(__file__).open("a").close())


def network_refused(params: Any) -> str:
    address = ("127.0.0.1", params["tcp"])
    return refused("reached the host", lambda: socket.create_connection(address, 1).close())


def existence_hidden(params: Any) -> str:
    return refused("could be seen", lambda: os.stat(params["canary"]))


def left(params: Any, context: Any) -> dict[str, str]:
    remains = [place for place in SCRATCH if Path(place, MARK).exists()]
    if hasattr(builtins, MARK):
        remains.append("memory")
    return {"nothing_left": f"of an earlier call: {', '.join(remains)}" if remains else ""}


def look_contained(params: Any, context: Any) -> dict[str, str]:
    canary, executor, cell = params["canary"], params["executor"], os.getppid()
    tcp = ("127.0.0.1", params["tcp"])
    attempts: dict[str, tuple[Callable[[], object], ...]] = {
        "canary_unreadable": (lambda: read(canary),),
        "names_unreadable": (lambda: os.listdir(os.path.dirname(canary)),),
        "outside_unwritable": (lambda: write(params["outside"]),),
        "skill_unwritable": (
            lambda: write(os.path.join(params["skill"], "main.py")),
            lambda: write(__file__),
            lambda: os.truncate(__file__, 0),
            lambda: os.utime(__file__, (1, 1)),
            lambda: os.chmod(__file__, 0o700),
        ),
        "processes_hidden": (
            lambda: os.listdir("/proc"),
            lambda: read(f"/proc/{executor}/environ"),
            lambda: read(f"/proc/{cell}/maps"),
        ),
        "signals_refused": (
            lambda: os.kill(executor, 0),
            lambda: os.kill(cell, 0),
            lambda: os.kill(-1, 0),
        ),
        "limits_unchanged": (lambda: resource.prlimit(executor, resource.RLIMIT_NOFILE, (64, 64)),),
        "priority_unchanged": (lambda: os.setpriority(os.PRIO_PROCESS, executor, 19),),
        "trace_refused": (lambda: trace(cell),),
        "fork_refused": (fork,),
        "tcp_refused": (lambda: connect(socket.SOCK_STREAM, tcp),),
        "udp_refused": (lambda: connect(socket.SOCK_DGRAM, tcp),),
        "unix_refused": (lambda: socket.socket(socket.AF_UNIX).close(),),
    }
    extra = set(os.environ) - OWN_NAMES
    descriptors = [number for number in range(3, 256) if is_open(number)]
    return {name: all_refused(actions) for name, actions in attempts.items()} | {
        "variables_clean": "" if extra == {"SKILLHOUSE_PROBE", OUTPUT} else str(extra),
        "descriptors_clean": "" if descriptors == [3] else str(descriptors),
        "own_place_writable": use_own_place(),
        "existence_hidden": existence_hidden(params),
        "programs_startable": start(params["process"]),
    }


def left_contained(params: Any, context: Any) -> dict[str, str]:
    """Look for what an earlier call left; it wrote to its own directory only."""
    output, own = os.environ[OUTPUT], os.environ["TMPDIR"]
    # Each call has an output folder, which is empty when it begins.
    remains = {os.path.join(own, name) for name in os.listdir(own)} - {output}
    return {"nothing_left": ", ".join(sorted(remains) + os.listdir(output))}


def memory(params: Any, context: Any) -> int:
    return len([bytearray(1 << 20) for _ in range(1024)])


def spin(params: Any, context: Any) -> None:
    while True:
        pass


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(100)


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def connect(kind: int, address: Any) -> None:
    with socket.socket(socket.AF_INET, kind) as client:
        client.settimeout(1)
        client.connect(address)


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def trace(process: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, process, None, None) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def use_own_place() -> str:
    """Return "" if a call can write its directory and start a thread, as it must."""
    try:
        with tempfile.TemporaryDirectory() as place:
            write(os.path.join(place, "file"))
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
    except Exception as error:  # noqa: BLE001 - any failure is reported.
        return f"{type(error).__name__}: {error}"
    return ""


PROBES = (outside_unreadable, outside_unwritable, network_refused, existence_hidden)
tools = {
    "look": look,
    "left": left,
    "look_contained": look_contained,
    "left_contained": left_contained,
    "memory": memory,
    "spin": spin,
}
