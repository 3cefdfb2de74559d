"""Confines its own process, where no namespaces can be made, and becomes a cell or one call.

Run as a script by `python -I -S`, with the standard library only: `confine.py SETTINGS`,
a JSON object. Landlock (files, TCP, signals), two system call filters and limits confine the code:
one process, no socket, its own directory to write, which scratch.py removes and own_tmp.py shows
as /tmp.
"""

from __future__ import annotations

import _socket
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

if __name__ == "__main__":
    # A script that runs isolated has no packages to import from.
    _shared = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sandbox/landlock_rules.py"
    )
    with open(_shared, encoding="utf-8") as _file:
        exec(compile(_file.read(), _shared, "exec"))  # noqa: S102
else:
    from skillhouse.sandbox.landlock_rules import (
        ALL_SCOPES,
        ALL_TCP,
        MAKE_DIR,
        MAKE_LINK,
        MAKE_REGULAR,
        NAME,
        ON_FILES,
        PR_SET_DUMPABLE,
        PR_SET_NAME,
        PR_SET_NO_NEW_PRIVS,
        PR_SET_PDEATHSIG,
        READ,
        REFER,
        REMOVE_DIR,
        REMOVE_FILE,
        TRUNCATE,
        WRITE_FILE,
        abi,
        allow_beneath,
        checked,
        drop_capabilities,
        enforce,
        libc,
        load_filter,
        made_ruleset,
    )

ABI_MIN = 3
"""Linux 6.2: before it, what may be read can be truncated."""
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REGULAR | MAKE_LINK
WRITE |= REFER | TRUNCATE
HANDLED = ((3, 0x7FFF), (5, 0xFFFF))
"""The rights over files that exist from each version on; all are denied without a rule."""
OWN_PID = 0x7FFFFFF1  # As in sandbox/seccomp.py.
OOM_SCORE = 800
"""When the container's memory is full, a cell goes before what runs it."""


def restrict(readable: list[str], writable: list[str]) -> None:
    """Allow files below these paths and no others, no TCP, and no signals to others."""
    version = abi()
    if version < ABI_MIN:
        raise OSError(f"expected Landlock {ABI_MIN} (Linux 6.2) or later, got {version}")
    handled = max(rights for since, rights in HANDLED if since <= version)
    tcp, scopes = ALL_TCP if version >= 4 else 0, ALL_SCOPES if version >= 6 else 0
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = made_ruleset(handled, tcp, scopes, size=size)
    for paths, rights in ((readable, READ), (writable, WRITE)):
        for path in paths:
            allow(ruleset, path, rights)
    enforce(ruleset)


def allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # This system has no such path.
    try:
        allow_beneath(ruleset, place, rights if os.path.isdir(path) else rights & ON_FILES)
    finally:
        os.close(place)


def load_own_filter(data: bytes) -> None:
    load_filter(data.replace(struct.pack("=I", OWN_PID), struct.pack("=I", os.getpid())))


def die_with(parent: int) -> None:
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(0)  # It has ended already.


def prepare(settings: Any) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE))
    checked(libc.prctl(PR_SET_NAME, NAME, 0, 0, 0), "prctl")
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    drop_capabilities()
    # After the capabilities, whose loss clears it.
    die_with(settings["parent"])
    # No process of the same user reads or writes its memory.
    checked(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")
    for kind, value in settings["limits"]:
        resource.setrlimit(kind, (value, value))


def become_node(settings: Any) -> NoReturn:
    restrict(settings["readable"], [settings["place"], "/dev/null"])
    load_own_filter(bytes.fromhex(settings["alone"]))
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
            load_own_filter(alone)
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
