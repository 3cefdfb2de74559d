"""Runs one program behind Landlock, a system call filter and limits, without namespaces.

Run as a script by `python -I -S`, with the standard library only; it takes the place of bubblewrap
in `process.Run`: `landlock_inside.py --args FD -- PROGRAM ARGUMENT…`, with options separated by NUL
in FD, and reports in JSON to the descriptor of `--json-status-fd`.

This process is the supervisor. It confines itself so far that it can signal nothing but what it
started, starts a watcher like itself, and then the program, which is confined further. What the
program starts comes to the supervisor when its parent ends. At the end `kill(-1)` kills all of it
in one step, as Landlock makes "all processes" those of this domain. If the supervisor itself is
killed, the watcher does the same.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

if __name__ == "__main__":
    # A script that runs isolated has no packages to import from.
    _shared = os.path.join(os.path.dirname(os.path.abspath(__file__)), "landlock_rules.py")
    with open(_shared, encoding="utf-8") as _file:
        exec(compile(_file.read(), _shared, "exec"))  # noqa: S102
else:
    from skillhouse.sandbox.landlock_rules import (
        ALL_SCOPES,
        ALL_TCP,
        MAKE_DIR,
        MAKE_FIFO,
        MAKE_LINK,
        MAKE_REGULAR,
        NAME,
        ON_FILES,
        PR_SET_CHILD_SUBREAPER,
        PR_SET_NAME,
        PR_SET_NO_NEW_PRIVS,
        PR_SET_PDEATHSIG,
        READ,
        READ_DIR,
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

ABI_MIN = 6
"""Linux 6.12: the first that keeps signals and abstract sockets in the domain."""
ALL_FILES = 0xFFFF
"""Rights over files, those of devices included; all are denied without a rule."""
LIST = READ_DIR
CHANGE = READ | WRITE_FILE | TRUNCATE
"""Of a file: its content."""
WRITE = CHANGE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REGULAR | MAKE_FIFO | MAKE_LINK | REFER
"""Of a directory: everything below it."""
NAMESPACES = 0x10000000 | 0x40000000 | 0x08000000  # User, network, IPC.
NO_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def ruleset_of(files: int, tcp: int) -> int:
    version = abi()
    if version < ABI_MIN:
        raise OSError(f"expected Landlock {ABI_MIN} (Linux 6.12) or later, got {version}")
    return made_ruleset(files, tcp, ALL_SCOPES)


def allow_system(ruleset: int, path: str, rights: int) -> None:
    """Allow a path of the system, following its links; one that is not there is passed over."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_directory = stat.S_ISDIR(os.fstat(place).st_mode)
        allow_beneath(ruleset, place, rights if is_directory else rights & ON_FILES)
    finally:
        os.close(place)


def allow_workspace(ruleset: int, workspace: str, grants: Any) -> None:
    """Allow paths of the workspace, each (relative path, rights, whether it is a directory).

    INVARIANT: no link is followed on the way, and what is of another kind by now is passed over:
    another run may have put it there.
    """
    top = os.open(workspace, NO_LINK | os.O_DIRECTORY)
    above, held = "", opened_below(top, "")
    for relative, rights, is_directory in grants:
        parent, _, name = relative.rpartition("/")
        if parent != above:
            if held is not None:
                os.close(held)
            above, held = parent, opened_below(top, parent)
        place = opened(name or ".", held)
        if place is None:
            continue
        try:
            if is_directory == stat.S_ISDIR(os.fstat(place).st_mode):
                allow_beneath(ruleset, place, rights)
        finally:
            os.close(place)


def opened(name: str, parent: int | None) -> int | None:
    """Return a descriptor of what has a name in a directory; None if nothing, or a link, has it."""
    if parent is None:
        return None
    try:
        place = os.open(name, NO_LINK, dir_fd=parent)
    except OSError:
        return None
    if stat.S_ISLNK(os.fstat(place).st_mode):
        os.close(place)
        return None
    return place


def opened_below(top: int, relative: str) -> int | None:
    place: int | None = os.dup(top)
    for name in relative.split("/") if relative else ():
        inner = opened(name, place)
        if place is not None:
            os.close(place)
        place = inner
    return place


def options_at(descriptor: int) -> dict[str, str]:
    with os.fdopen(descriptor, "rb") as file:
        words = file.read().decode("utf-8", "surrogateescape").split("\0")
    if len(words) % 2 == 0 or words[-1]:
        raise ValueError("the options are not whole")  # Whoever started this was killed meanwhile.
    return dict(zip(words[:-1:2], words[1:-1:2]))  # noqa: B905 - not in older Pythons.


def content_at(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def made_namespaces() -> bool:
    """Whether this process has namespaces of its own for users, network and IPC now.

    They are one more boundary where the kernel grants them; nothing relies on them.
    """
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NAMESPACES) != 0:
        return False
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return True


def confine_supervisor(parent: int) -> None:
    checked(libc.prctl(PR_SET_NAME, NAME, 0, 0, 0), "prctl")
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    checked(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    # Signals only: what is inside must be able to send none to this process, and it none outside.
    # Moving between directories is denied by every ruleset that does not allow it.
    ruleset = ruleset_of(REFER, 0)
    allow_system(ruleset, "/", REFER)
    enforce(ruleset)
    # INVARIANT: `kill(-1)` means this domain from here on. Without that it would kill everything of
    # this user, so it is tried on the process that started us.
    try:
        os.kill(parent, 0)
    except PermissionError:
        return
    except ProcessLookupError:
        os._exit(0)
    raise OSError("signals leave the domain")


def kill_all() -> None:
    try:
        os.kill(-1, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # None is left.


def watch(alarm: int) -> NoReturn:
    """Wait until the supervisor is gone, and end what it left."""
    for number in range(3):
        os.dup2(alarm, number, inheritable=False)
    os.closerange(3, 65536)
    while os.read(0, 1):
        pass
    kill_all()
    os._exit(0)


def become(argv: list[str], settings: Any, filters: list[bytes], parent: int) -> NoReturn:
    """Confine this process and run the program in it."""
    os.setsid()
    has_namespaces = made_namespaces()
    drop_capabilities()
    # After the namespaces, which would clear it.
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(0)
    ruleset = ruleset_of(ALL_FILES, ALL_TCP)
    for path, rights in settings["system"]:
        allow_system(ruleset, path, rights)
    allow_workspace(ruleset, settings["workspace"], settings["grants"])
    os.chdir(settings["cwd"])
    # It counts all processes of the user, but in a namespace of its own only those there.
    processes = settings["processes"] + (0 if has_namespaces else settings["running"])
    if settings["processes"]:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these two, and what it starts would too.
        signal.signal(number, signal.SIG_DFL)
    enforce(ruleset)
    for program in filters:
        load_filter(program)
    os.execvpe(argv[0], argv, settings["variables"])


def started(work: Any) -> tuple[int, int]:
    """Return a new process, and a descriptor that ends when it runs its program; else a reason."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - a process edge.
        os.write(writing, f"{error}".encode(errors="replace")[:200])
    finally:
        os._exit(126)


class Supervisor:
    def __init__(self, argv: list[str], options: dict[str, str]) -> None:
        self.argv = argv
        self.settings = json.loads(options["--settings"])
        self.status = int(options["--json-status-fd"])
        self.parent = self.settings["parent"]
        self.owner = os.pidfd_open(self.parent)
        self.filters = [content_at(int(options[name])) for name in ("--shared", "--seccomp")]
        os.set_inheritable(self.status, False)  # noqa: FBT003 - it has no name.
        self.alarm, self.held = os.pipe()
        self.watcher = 0

    def run(self) -> None:
        confine_supervisor(self.parent)
        # The signal only interrupts what waits: the descriptor has what there is to read.
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watcher = self.watcher_started()
        own = os.getpid()
        work = lambda: become(self.argv, self.settings, self.filters, own)  # noqa: E731
        program, failing = started(work)
        namespace = os.stat("/proc/self/ns/pid_for_children").st_ino
        self.report({"child-pid": self.watcher, "pid-namespace": namespace})
        self.close_streams()
        code = self.ended(program, reading)
        kill_all()
        self.reap()
        why = os.read(failing, 256)
        if why:
            os.write(self.settings["complaint"], why)
        elif code is not None:
            self.report({"exit-code": code})

    def watcher_started(self) -> int:
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            watch(self.alarm)
        # INVARIANT: before the program starts. Where our group is killed the watcher is left.
        os.setpgid(pid, pid)
        return pid

    def report(self, value: Any) -> None:
        try:
            os.write(self.status, json.dumps(value).encode() + b"\n")
        except BrokenPipeError:
            return  # What started this is gone; the rest is cleaned up all the same.

    def close_streams(self) -> None:
        """Close the program's streams here, so that whoever reads them sees their end."""
        self.settings["complaint"] = os.dup(2)
        nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        for number in range(3):
            os.dup2(nothing, number)

    def ended(self, program: int, reading: int) -> int | None:
        """Wait for the program, and return its exit code; None when it is to be ended."""
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        poll.register(self.owner, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self.owner:
                    return None
                os.read(reading, 4096)
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == program:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                if pid == self.watcher:
                    return None  # That is how a run is ended from outside.
                if pid == 0:
                    break

    def reap(self) -> None:
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main() -> None:
    if sys.argv[1:] == ["--abi"]:
        print(abi())
        return
    options = options_at(int(sys.argv[2]))
    Supervisor(sys.argv[4:], options).run()


if __name__ == "__main__":
    main()
