"""The process inside a cell for Python skills, which forks once for each call.

Run as a script by `python -I -S`, with the standard library only; its argument is the descriptor
of the socket to the core. It never imports anything of the skill and never reads what a call
writes: each call gets a socket and a pipe of its own, straight from the core. It imports modules of
the standard library ahead of the calls where the core says that the skill's code needs them.

A call runs as the first process of process and mount namespaces of its own, with its own /tmp
and /dev/shm and no /proc, without any capability and behind the strict system call filter. When
it ends or is killed, the kernel kills whatever else it started (pid_namespaces(7)).
"""

from __future__ import annotations

import _socket
import ctypes
import gc
import json
import marshal
import os
import resource
import select
import signal
import struct
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:  # The modules themselves would cost a megabyte.
    from types import CodeType
    from typing import Any, NoReturn

    from skillhouse.extensions.cells import cell_context, cell_coroutines

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MOUNT_FLAGS = 0x6  # MS_NOSUID | MS_NODEV
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_CAP_AMBIENT = 4, 22, 24, 47
PR_CAP_AMBIENT_CLEAR_ALL, SECCOMP_MODE_FILTER = 4, 2
CAPABILITIES = (21, 8)  # SYS_ADMIN, SETPCAP: all that the cell has.
CAPABILITY_VERSION = 0x20080522
LINK = 3
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "go": signal.SIGCONT}
"""What an order does to the process of a call. One that waits for its call is stopped."""
PREPARE, PREPARED = "cell.prepare", "cell.prepared"
EXECUTE = "tool.execute"
OUTPUT_FOLDER, OUTPUT_VARIABLE = "skill-output", "OUTPUT_DIR"  # As in cell_output.py.
UNREACHED = (101, 111, 113)  # ENETUNREACH, ECONNREFUSED, EHOSTUNREACH.
TOOL_FAILED, RESOURCE_LIMIT, INVALID_PARAMS = -32000, -32002, -32602

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    control = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)  # noqa: FBT003 - it has no name.
    # No other process reads or writes our memory, nor that of our forks.
    checked(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")
    data = control.recv(65536)
    if not data:
        return  # It was started early, and no call took it.
    settings = json.loads(data)
    if settings["namespaces"]:
        # We can leave a call's process namespace only if we own the one we return to.
        checked(libc.unshare(CLONE_NEWPID | CLONE_NEWNS), "unshare")
        inner = os.fork()
        if inner:
            control.close()
            os.closerange(0, 3)
            _, status = os.waitpid(inner, 0)
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    Cell(control, settings).serve()


class Cell:
    def __init__(self, control: _socket.socket, settings: Any) -> None:
        self.control = control
        self.settings = settings
        # By the descriptor of a process: the number of its call, its id.
        self.calls: dict[int, tuple[int, int]] = {}
        self.own = os.pidfd_open(os.getpid())
        # Names of modules to import while nothing else is to be done.
        self.wanted: list[str] = []
        data = bytes.fromhex(settings["seccomp"])
        self.filter = (ctypes.create_string_buffer(data, len(data)), len(data) // 8)

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        # The first compilation of a process takes a millisecond more than all others.
        compile("pass", "<cell>", "exec")
        gc.freeze()
        self.say({"ready": os.getpid()})
        while True:
            found = poll.poll(0 if self.wanted else None)
            if not found:
                self.import_one()
            for descriptor, _ in found:
                if descriptor == self.control.fileno():
                    self.take(poll)
                else:
                    poll.unregister(descriptor)
                    self.end(descriptor)

    def say(self, value: Any) -> None:
        try:
            self.control.send(json.dumps(value).encode())
        except OSError:
            os._exit(0)

    def take(self, poll: Any) -> None:
        data, extra, _, _ = self.control.recvmsg(65536, _socket.CMSG_SPACE(8))
        if not data:
            os._exit(0)  # The core is gone.
        given: list[int] = []
        for _, _, content in extra:
            given += struct.unpack(f"{len(content) // 4}i", content)
        order = json.loads(data)
        if "import" in order:
            skill, packages = self.settings["skill"], self.settings["packages"]
            self.wanted += part(IMPORTS).allowed(order["import"], skill, packages)
            return
        for what in SIGNALS:
            if what in order:
                self.send(order[what], SIGNALS[what])
                return
        try:
            if "proxy" in order:
                self.bind_way(order)
            pid = self.fork(order, given)
        except OSError as error:
            self.say({"ended": order["call"], "status": None, "failed": str(error)})
        else:
            descriptor = os.pidfd_open(pid)
            self.calls[descriptor] = (order["call"], pid)
            poll.register(descriptor, select.POLLIN)
        finally:
            for number in given:
                os.close(number)

    def send(self, call: int, number: int) -> None:
        for descriptor, (one, _) in self.calls.items():
            if one == call:
                signal.pidfd_send_signal(descriptor, number)

    def bind_way(self, order: Any) -> None:
        """Bind the call's way out, and hand it to the core, which lets it listen in its time."""
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        order["port"] = str(listener.getsockname()[1])
        given = struct.pack("i", listener.fileno())
        report = json.dumps({"way": order["call"]}).encode()
        try:
            self.control.sendmsg([report], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
        finally:
            listener.close()

    def import_one(self) -> None:
        if not part(IMPORTS).import_one(self.wanted):
            self.wanted.clear()
        if not self.wanted:
            gc.freeze()

    def fork(self, order: Any, given: list[int]) -> int:
        if not self.settings["namespaces"]:
            return os.fork() or self.become(order, given)
        checked(libc.unshare(CLONE_NEWPID), "unshare")
        try:
            return os.fork() or self.become(order, given)
        finally:
            checked(libc.setns(self.own, CLONE_NEWPID), "setns")

    def end(self, descriptor: int) -> None:
        number, pid = self.calls.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        self.say({"ended": number, "status": os.waitstatus_to_exitcode(status)})

    def become(self, order: Any, given: list[int]) -> NoReturn:
        code = 70
        try:
            self.confine(order, *given)
            for name, value in order.get("proxy", {}).items():
                os.environ[name] = value.replace("{port}", order["port"])
            code = run_call(self.settings)
        except BaseException as error:  # noqa: BLE001 - a process edge.
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
        finally:
            os._exit(code)

    def confine(self, order: Any, link: int, output: int) -> None:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        if link != LINK:
            # `link` may itself be one of the numbers that are overwritten.
            os.dup2(link, LINK)
        os.closerange(LINK + 1, 65536)
        os.set_inheritable(LINK, False)  # noqa: FBT003 - likewise.
        if self.settings["namespaces"]:
            checked(libc.unshare(CLONE_NEWNS), "unshare")
            for place, size in self.settings["writable"]:
                options = b"mode=1777,size=%d" % size
                checked(
                    libc.mount(b"call", place.encode(), b"tmpfs", MOUNT_FLAGS, options), "mount"
                )
        for kind, value in order["limits"]:
            resource.setrlimit(kind, (value, value))
        drop_capabilities()
        buffer, length = self.filter
        program = struct.pack("HxxxxxxQ", length, ctypes.addressof(buffer))
        checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")


def drop_capabilities() -> None:
    for number in CAPABILITIES:
        # Fails in a container, where we had none to begin with.
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    checked(libc.capset(header, bytes(24)), "capset")


def run_call(settings: Any) -> int:
    link = cell_context.Link(LINK)
    output = make_output()
    imported = cell_coroutines.AsyncioImport()
    imported.install()
    request = link.receive()
    loaded_tools = None
    if request["method"] == PREPARE:
        loaded_tools = prepared(settings, request["params"]["env"], link)
        request = link.receive()
    number, params = request["id"], request["params"]
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
    try:
        link.token = params["capability"]
        if loaded_tools is None:
            os.environ.update(params["context"]["env"])
            tools = load(settings)
        else:
            tools = loaded_tools()
        if request["method"] == "tool.list":
            answer["result"] = sorted(str(name) for name in tools)
        else:
            context = cell_context.Context(link, params["context"], output)
            result = call(tools, params, context)
            if hasattr(result, "__await__") and not isinstance(result, cell_context.Done):
                result = cell_coroutines.run(result, imported)
            answer["result"] = result
    except CallRefusedError as error:
        answer["error"] = {"code": INVALID_PARAMS, "message": str(error)}
    except BaseException as error:  # noqa: BLE001 - the skill's own code, whatever it raises.
        answer["error"] = failure(error, settings["skill"])
        if params["context"]["meta"].get("debug"):
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if request["method"] == EXECUTE:
        send_output(link, output)
    try:
        link.finish(answer)
    except (TypeError, ValueError, RecursionError) as error:
        refusal = failure(error, settings["skill"])
        refusal["message"] = f"the result is not JSON: {refusal['message']}"
        link.finish({"jsonrpc": "2.0", "id": number, "error": refusal})
    return 0


def make_output() -> str:
    """Make the folder of which the core keeps the files, and return its path."""
    output = os.path.join(os.environ.get("TMPDIR") or "/tmp", OUTPUT_FOLDER)  # noqa: S108
    os.mkdir(output, 0o700)
    os.environ[OUTPUT_VARIABLE] = output
    return output


def send_output(link: cell_context.Link, output: str) -> None:
    try:
        if os.path.isdir(output) and not os.path.islink(output) and not os.listdir(output):
            return
        for name, data, left_out in part(OUTPUT).output_parts(output):
            link.tell("core.output", cell_context.output_params(name, data, left_out))
    except (OSError, ValueError, MemoryError, ImportError) as error:
        # Also where the code has left no descriptor: what it returned is worth more.
        why = f"the output folder cannot be read: {said(error)}"
        link.tell("core.output", cell_context.output_params("", b"", why[:200]))


def resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def prepared(settings: Any, env: Any, link: cell_context.Link) -> Any:
    """Load the skill's code ahead of the call and report; return what gives its tools."""
    imports = part(IMPORTS)
    before, size = frozenset(sys.modules), resident()
    os.environ.update(env)
    tools: Any = None
    failed: BaseException | None = None
    try:
        tools = load(settings)
    except BaseException as error:  # noqa: BLE001 - raised again when the call has come.
        failed = error
    report = {
        "modules": imports.standard_names(before, settings["skill"]),
        "bytes": resident() - size,
        "loaded": failed is None,
    }
    link.push(link.framed({"jsonrpc": "2.0", "method": PREPARED, "params": report}))

    def give() -> Any:
        if failed is not None:
            raise failed
        return tools

    return give


class CallRefusedError(Exception):
    pass


def frames(error: BaseException, place: str) -> list[Any]:
    found: list[Any] = []
    inner = error.exceptions[:1] if isinstance(error, BaseExceptionGroup) else ()
    for step in (error.__traceback__, *(one.__traceback__ for one in inner)):
        while step is not None:
            code = step.tb_frame.f_code
            found.append([code.co_filename, step.tb_lineno, code.co_name])
            step = step.tb_next
    if isinstance(error, SyntaxError):
        found.append([error.filename, error.lineno, ""])
    return [one for one in found if str(one[0]).startswith(place + "/")][-16:]


def said(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # A group, as of asyncio.TaskGroup, names none of its errors.
    inner = error.exceptions[:3] if isinstance(error, BaseExceptionGroup) else ()
    return ": ".join([text, *map(said, inner)])


def failure(error: BaseException, place: str) -> dict[str, Any]:
    text = said(error)
    text = text.encode("utf-8", "replace").decode()
    # EAGAIN and ENOMEM: no process, no memory.
    is_limit = isinstance(error, MemoryError) or getattr(error, "errno", 0) in (11, 12)
    code = RESOURCE_LIMIT if is_limit else TOOL_FAILED
    data: dict[str, Any] = {"frames": frames(error, place)}
    if is_unreached(error):
        data["unreached"] = "python"
    return {"code": code, "message": text[:8192], "data": data}


def is_unreached(error: BaseException | None) -> bool:
    """Whether an exception came of a host that was not found or not reached, by what caused it."""
    for _ in range(16):
        if error is None:
            return False
        if type(error).__name__ == "gaierror" or getattr(error, "errno", 0) in UNREACHED:
            return True
        error = error.__cause__ or error.__context__
    return False


def load(settings: Any) -> Any:
    sys.dont_write_bytecode = True
    # The copy of a skill has no bytecode, but for what is in its archives of modules: there too
    # the source is what runs. Python has imported the module before us.
    zipimport: Any = sys.modules["zipimport"]
    searched = zipimport._zip_searchorder  # noqa: SLF001 - there is no other way to say it.
    zipimport._zip_searchorder = tuple(one for one in searched if not one[1])  # noqa: SLF001
    place = settings["skill"]
    sys.argv = [path := os.path.join(place, settings["entry"])]
    sys.path[:0] = import_places(settings)
    name, suffix = os.path.splitext(os.path.basename(path))
    if suffix != ".py":
        raise CallRefusedError(f"expected a Python file: {settings['entry']}")
    tools = getattr(loaded(name, path), "tools", None)
    if not hasattr(tools, "keys"):
        raise CallRefusedError(f"expected a mapping `tools` in {settings['entry']}")
    return tools


def import_places(settings: Any) -> list[str]:
    """Return where a skill's code is looked for, before the standard library."""
    place = settings["skill"]
    entry = os.path.dirname(os.path.join(place, settings["entry"]))
    return list(dict.fromkeys([entry, place, *settings["packages"]]))


def loaded(name: str, path: str, code: CodeType | None = None) -> Any:
    """Return the module at `path`, as the import system would, in half the time."""
    loader = SourceFileLoader(name, path)
    module = type(sys)(name)
    module.__file__ = path
    module.__loader__ = loader
    module.__package__ = ""
    module.__spec__ = ModuleSpec(name, loader, origin=path)
    sys.modules[name] = module
    if code is None:
        code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102
    return module


def call(tools: Any, params: Any, context: cell_context.Context) -> Any:
    name = params["tool"]
    if name not in tools.keys():  # noqa: SIM118 - the skill's mapping may be of any class.
        raise CallRefusedError(f"the skill exports no tool {name!r}")
    return tools[name](params["args"], context)


def read_beside(name: str) -> tuple[str, bytes]:
    path = os.path.join(os.path.dirname(__file__), f"{name}.py")
    with open(path, "rb") as file:
        return path, file.read()


def part(name: str) -> Any:
    """Return our module in this file's directory, under a name that no skill's module has."""
    own_name = f"_skillhouse_{name}"
    if own_name in sys.modules:
        return sys.modules[own_name]
    path, data = PARTS[name]
    # The magic number of compiled code ends with CR LF, which no source of ours has.
    if data[2:4] == b"\r\n":
        # INVARIANT: from the core, as the sources are; nothing else writes these files.
        return loaded(own_name, path, marshal.loads(data[16:]))  # noqa: S302
    return loaded(own_name, path, compile(data, path, "exec", dont_inherit=True))


IMPORTS, OUTPUT = "cell_imports", "cell_output"
# Read now, as a cell without namespaces soon sees this directory no more.
PARTS = {name: read_beside(name) for name in ("cell_context", "cell_coroutines", IMPORTS, OUTPUT)}
if not TYPE_CHECKING:
    cell_context = part("cell_context")
    cell_coroutines = part("cell_coroutines")

if __name__ == "__main__":
    main()
