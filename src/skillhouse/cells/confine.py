"""Confines its own process, where no namespaces can be made, and becomes a cell or one call.

Run as a script by `python -I -S`, with the standard library only: `confine.py SETTINGS`,
a JSON object. Landlock (files, TCP, signals), two system call filters and limits confine the code:
one process, no socket, its own directory to write, which scratch.py removes and own_tmp.py shows
as /tmp.
"""

from __future__ import annotations

import _socket
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # The same on all architectures.
RULE_PATH_BENEATH = 1
ABI_MIN = 3
"""Linux 6.2: before it, what may be read can be truncated."""
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = 1, 2, 4, 8, 16, 32
MAKE_DIR, MAKE_REGULAR, MAKE_LINK, REFER, TRUNCATE = 128, 256, 4096, 8192, 16384
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REGULAR | MAKE_LINK
WRITE |= REFER | TRUNCATE
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
HANDLED = ((3, 0x7FFF), (5, 0xFFFF))
"""The rights over files that exist from each version on; all are denied without a rule."""
TCP, SCOPES = 3, 3  # Bind and connect; abstract sockets and signals.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME = 1, 4, 15
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
PR_CAPBSET_DROP, LAST_CAPABILITY, CAPABILITY_VERSION = 24, 63, 0x20080522
OWN_PID = 0x7FFFFFF1  # As in shared_filter.py.
NAME = b"skillhouse-run"  # As in landlock_inside.py.
OOM_SCORE = 800
"""When the container's memory is full, a cell goes before what runs it."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def abi() -> int:
    return max(0, int(libc.syscall(CREATE_RULESET, None, 0, 1)))


def restrict(readable: list[str], writable: list[str]) -> None:
    """Allow files below these paths and no others, no TCP, and no signals to others."""
    version = abi()
    if version < ABI_MIN:
        raise OSError(f"expected Landlock {ABI_MIN} (Linux 6.2) or later, got {version}")
    handled = max(rights for since, rights in HANDLED if since <= version)
    values = [handled, TCP if version >= 4 else 0, SCOPES if version >= 6 else 0]
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("QQQ", *values)
    ruleset = checked(libc.syscall(CREATE_RULESET, attributes, size, 0), "landlock")
    try:
        for paths, rights in ((readable, READ), (writable, WRITE)):
            for path in paths:
                allow(ruleset, path, rights)
        checked(libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock")
    finally:
        os.close(ruleset)


def allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # This system has no such path.
    try:
        if not os.path.isdir(path):
            rights &= ON_FILES
        rule = struct.pack("=Qi", rights, place)
        checked(libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0), "landlock")
    finally:
        os.close(place)


def load_filter(data: bytes) -> None:
    data = data.replace(struct.pack("=I", OWN_PID), struct.pack("=I", os.getpid()))
    buffer = ctypes.create_string_buffer(data, len(data))
    program = struct.pack("HxxxxxxQ", len(data) // 8, ctypes.addressof(buffer))
    checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")


def die_with(parent: int) -> None:
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(0)  # It has ended already.


def prepare(settings: Any) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE))
    checked(libc.prctl(PR_SET_NAME, NAME, 0, 0, 0), "prctl")
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    for number in range(LAST_CAPABILITY + 1):
        # Fails for those that the kernel does not have, and where we had none to begin with.
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    checked(libc.capset(header, bytes(24)), "capset")
    # After the capabilities, whose loss clears it.
    die_with(settings["parent"])
    # No process of the same user reads or writes its memory.
    checked(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")
    for kind, value in settings["limits"]:
        resource.setrlimit(kind, (value, value))


def become_node(settings: Any) -> NoReturn:
    restrict(settings["readable"], [settings["place"], "/dev/null"])
    load_filter(bytes.fromhex(settings["alone"]))
    load_filter(bytes.fromhex(settings["seccomp"]))
    argv = settings["argv"]
    environment = {"PATH": settings["path"], "LANG": "C.UTF-8"}
    os.chdir(settings["skill"])
    os.execve(argv[0], argv, environment | dict.fromkeys(("HOME", "TMPDIR"), settings["place"]))


def loaded(name: str, path: str) -> Any:
    """Return our module at a path, where the import system cannot find it."""
    module = type(sys)(name)
    module.__file__ = path
    sys.modules[name] = module
    code = compile(SourceFileLoader(name, path).get_data(path), name, "exec")
    exec(code, module.__dict__)  # noqa: S102
    return module


def serve_python(settings: Any) -> None:
    cell = loaded("cell_python", settings["script"])
    scratch = loaded("scratch", settings["scratch"])
    own_tmp = loaded("own_tmp", f"{os.path.dirname(settings['script'])}/own_tmp.py")
    own_tmp.install()
    base = settings["place"]
    alone = bytes.fromhex(settings["alone"])
    readable = settings["readable"]

    # Loaded by path, as it is in a cell: its types are not known here.
    class Contained(cell.Cell):  # type: ignore[misc,name-defined]
        def fork(self, order: Any, given: list[int]) -> int:
            os.mkdir(place_of(order["call"]), 0o700)
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                self.parent = parent
                self.become(order, given)
            return pid

        def confine(self, order: Any, link: int, output: int) -> None:
            die_with(self.parent)
            place = place_of(order["call"])
            os.chdir(self.settings["skill"])
            os.environ.update(dict.fromkeys(("HOME", "TMPDIR"), place))
            restrict(readable, [place, "/dev/null"])
            load_filter(alone)
            super().confine(order, link, output)
            own_tmp.place = place

        def end(self, descriptor: int) -> None:
            # The cell's end removes the rest, and no other call sees it.
            scratch.remove(place_of(self.calls[descriptor][0]))
            super().end(descriptor)

    def place_of(number: int) -> str:
        return f"{base}/{number}"

    control = _socket.socket(fileno=settings["descriptor"])
    os.set_inheritable(control.fileno(), False)  # noqa: FBT003 - it has no name.
    cell_settings = json.loads(control.recv(65536))
    os.environ.clear()
    os.environ.update({"PATH": settings["path"], "LANG": "C.UTF-8", "HOME": base})
    restrict(readable, [base, "/dev/null"])
    Contained(control, cell_settings).serve()


def main() -> None:
    settings = json.loads(sys.argv[1])
    if settings.get("abi"):
        print(abi())
        return
    prepare(settings)
    if "argv" in settings:
        become_node(settings)
    serve_python(settings)


if __name__ == "__main__":
    main()
