"""Attacks on the kernel and on other runs by a command (security.md section 6, items 49 to 59).

Each first works without a sandbox, in a process that is as privileged as the tests are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Unattended
from skillhouse.audit import read_records, verify_log
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import Launcher
from tests.harness import until
from tests.house.places import make_places
from tests.sandbox.places import launcher, own, run, running, sh, still_running, workspace

pytestmark = pytest.mark.slow

__all__ = ["launcher", "workspace"]

PYTHON = "/usr/bin/python3"
ALLOW = Rule(effect=Effect.ALLOW, action="*", pattern="*")


@pytest.fixture(autouse=True)
def _has_python(need: Any) -> None:
    need(Path(PYTHON).exists(), f"no {PYTHON}")


def python(launcher: Launcher, workspace: Path, code: str, **options: Any) -> bytes:
    return run(launcher, workspace, "python3", "-I", "-c", code, **options).stdout


def naive(code: str, place: Path) -> bytes:
    """Return what a program says that nothing holds."""
    return subprocess.run(
        (PYTHON, "-I", "-c", code),
        cwd=place,
        # Never the terminal of whoever runs the tests.
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=30,
    ).stdout


FAMILIES = {
    "netlink route": "import socket,struct\n"
    "s=socket.socket(16,3,0);s.bind((0,0))\n"
    "s.send(struct.pack('=IHHIIB3x',20,18,0x301,1,0,0))\n"  # RTM_GETLINK, dump.
    "s.settimeout(2)\n"
    "names=s.recv(65536)+s.recv(65536)\n"
    "print(*sorted({n for n in ('lo','eth0','docker0') if n.encode()+b'\\0' in names}))",
    "raw": "import socket;socket.socket(2,3,1);print('open')",
    "raw IPv6": "import socket;socket.socket(10,3,58);print('open')",
    "packet": "import socket;socket.socket(17,3,0);print('open')",
    "vsock": "import socket;socket.socket(40,1);print('open')",
    "IPv6": "import socket\n"
    "s=socket.socket(10,1);s.settimeout(2)\n"
    "try: s.connect(('2606:4700::1111',443))\n"
    "except ConnectionRefusedError: print('open')\n"
    "except OSError as e: print(e.errno)\n"
    "else: print('open')",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_49_no_family_of_sockets_leads_out(
    launcher: Launcher, workspace: Path, family: str
) -> None:
    outside, inside = (
        naive(FAMILIES[family], workspace),
        python(launcher, workspace, FAMILIES[family]),
    )
    if family == "netlink route":
        # Of the sandbox's own network, which has the loopback and nothing else.
        assert inside == b"lo\n"
        assert b"lo" in outside
        return
    if family == "IPv6":
        assert inside == b"101\n", "ENETUNREACH"
        return
    if os.geteuid() == 0 and family != "vsock":
        assert outside == b"open\n"
    assert inside == b""


SYSCALLS = """
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
nowhere = b"/nowhere/at/all"
calls = {
    "io_uring_setup": (425, 425, (0, None)),
    "mount": (165, 40, (None, nowhere, None, 0, None)),
    "unshare": (272, 97, (1,)),
    "setns": (308, 268, (-1, 0)),
    "pivot_root": (155, 41, (nowhere, nowhere)),
    "keyctl": (250, 219, (-1, 0, 0)),
    "bpf": (321, 280, (-1, None, 0)),
    "perf_event_open": (298, 241, (None, 0, -1, -1, 0)),
    "userfaultfd": (323, 282, (-1,)),
    "open_by_handle_at": (304, 265, (-1, None, 0)),
    "ptrace": (101, 117, (-1, -1, 0, 0)),
}
for name, (amd, arm, words) in calls.items():
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(amd if x86 else arm), *words)
    print(name, errno.errorcode.get(ctypes.get_errno(), "-") if result == -1 else "done")
"""
"""INVARIANT: none of these can do anything, on the host, as root: each has an argument that the
kernel refuses once it looks at it. That it looks is what the filter prevents."""


def test_50_the_kernels_wide_surfaces_are_closed(launcher: Launcher, workspace: Path) -> None:
    outside = dict(line.split() for line in naive(SYSCALLS, workspace).decode().splitlines())
    inside = dict(
        line.split() for line in python(launcher, workspace, SYSCALLS).decode().splitlines()
    )
    looked_at = {name for name, said in outside.items() if said not in ("EPERM", "ENOSYS")}
    assert {"setns", "unshare", "ptrace"} <= looked_at
    assert "done" not in outside.values()
    assert inside == dict.fromkeys(outside, "EPERM")


TYPE = """
import fcntl, os, pty, sys, termios
leader, follower = pty.openpty()
os.setsid()
fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
try:
    fcntl.ioctl(follower, termios.TIOCSTI, b"x")
    print("typed")
except OSError as error:
    print(error.errno)
"""


def test_51_nothing_is_typed_into_a_terminal(launcher: Launcher, workspace: Path) -> None:
    code = TYPE.replace("os.setsid()", "if os.fork(): os.wait(); sys.exit()\nos.setsid()")
    said = naive(code, workspace)
    # Linux 6.2 lets an administrator switch it off for all (dev.tty.legacy_tiocsti).
    assert said in (b"typed\n", b"5\n")
    # There is no terminal inside, and the call is refused whatever it is asked of.
    asking = (
        "import fcntl\n"
        "for number in (0x5412, 0x541C):\n"
        "    try: fcntl.ioctl(0, number, b'x')\n"
        "    except OSError as error: print(error.errno)\n"
        "try: open('/dev/tty')\n"
        "except OSError: print('no terminal')"
    )
    assert naive(asking, workspace).startswith(b"25\n"), "without a filter: no terminal at 0"
    assert python(launcher, workspace, asking) == b"1\n1\nno terminal\n"


OWN_TERMINAL = """
import fcntl, os, pty, sys
leader, follower = pty.openpty()
if os.fork(): os.wait(); sys.exit()
os.setsid()
fcntl.ioctl(follower, 0x540E, 0)
for name, number, given in (
    ("TIOCSTI", 0x5412, b"x"),
    ("TIOCLINUX", 0x541C, bytes([2])),
    ("TIOCSETD", 0x5423, bytes(4)),
):
    try:
        fcntl.ioctl(follower, number, given)
        print(name, "done")
    except OSError as error:
        print(name, error.errno)
"""
"""Its own terminal is a program's to do with as it likes; the discipline that is set is the one it
has. Any other makes the kernel load a module, on the host, which is why the call is refused."""


def test_51_nothing_is_asked_of_the_kernel_by_a_terminal_of_its_own(
    launcher: Launcher, workspace: Path
) -> None:
    outside = naive(OWN_TERMINAL, workspace).decode().split("\n")
    assert outside[0] in ("TIOCSTI done", "TIOCSTI 5")
    assert outside[1:3] == ["TIOCLINUX 25", "TIOCSETD done"]
    said = python(launcher, workspace, OWN_TERMINAL)
    assert said == b"TIOCSTI 1\nTIOCLINUX 1\nTIOCSETD 1\n"


REACH = """
import os, stat, sys
for path in sys.argv[2:]:
    try:
        place = os.open(path, os.O_RDWR | os.O_NOCTTY)
        print("opened" if os.isatty(place) else "no terminal")
        os.write(place, b"evil")
    except OSError as error:
        print(error.strerror)
try:
    os.mknod("made", stat.S_IFCHR | 0o666, int(sys.argv[1]))
    os.open("made", os.O_RDWR)
    print("made")
except OSError:
    print("none is made")
print(sorted(os.listdir("/dev/pts")), [os.isatty(n) for n in (0, 1, 2)])
"""
RUN_AT_A_TERMINAL = """
import sys
from pathlib import Path
from skillhouse.sandbox import SandboxStatus, SandboxLevel, launcher_for
from tests.sandbox.places import run
level, state, workspace, code, *paths = sys.argv[1:]
launcher = launcher_for(SandboxStatus(level=SandboxLevel(level)), state=Path(state))
argv = ("python3", "-I", "-c", code, *paths)
Path(state, "said").write_bytes(run(launcher, Path(workspace), *argv).stdout)
"""


def test_51_terminals_of_the_host_are_out_of_reach(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    leader, follower = pty.openpty()
    number = str(os.fstat(follower).st_rdev)
    paths = [os.ttyname(follower), "/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1"]
    state = tmp_path / "started"
    state.mkdir()

    def at_the_terminal(*argv: str) -> None:
        subprocess.run(
            argv,
            cwd=state,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            check=True,
            timeout=60,
        )

    def shown() -> bytes:
        said = b""
        while select.select([leader], [], [], 0)[0]:
            said += os.read(leader, 4_096)
        return said

    try:
        at_the_terminal(PYTHON, "-I", "-c", REACH, number, *paths[:2])
        # The number of a terminal is no secret, and a process of the same user writes to it.
        assert shown().count(b"evil") == 2
        words = (launcher.level, str(state), str(workspace), REACH, number, *paths)
        at_the_terminal(sys.executable, "-c", RUN_AT_A_TERMINAL, *words)
        assert b"evil" not in shown()
    finally:
        os.close(leader)
        os.close(follower)
    said = (state / "said").read_text().splitlines()
    assert "opened" not in said
    assert said[0] == "No such file or directory"
    assert said[-2:] == ["none is made", "['ptmx'] [False, False, False]"]


HOLD = """
import os, pathlib, time
def some():
    held = []
    try:
        while True:
            held.append(os.open("/dev/ptmx", os.O_RDWR))
    except OSError as error:
        return len(held), error.errno
for _ in range(8):
    reads, writes = os.pipe()
    if not os.fork():
        os.write(writes, b"%d %d" % some())
        time.sleep(30)
        os._exit(0)
    count, error = os.read(reads, 99).split()
    print(count.decode(), error.decode(), flush=True)
pathlib.Path("held").touch()
while not os.path.exists("seen"):
    time.sleep(0.01)
"""


def test_51_a_run_that_takes_all_terminals_leaves_the_host_some(
    launcher: Launcher, workspace: Path, need: Any
) -> None:
    """The kernel keeps `kernel.pty.reserve` for terminals outside of containers."""
    most, reserve = (int(Path("/proc/sys/kernel/pty", name).read_text()) for name in PTY_NUMBERS)
    need(is_first_user_namespace(), "a container has no terminals kept for it")
    found: list[bytes] = []
    thread = threading.Thread(
        target=lambda: found.append(python(launcher, workspace, HOLD, seconds=30.0))
    )
    thread.start()
    try:
        until((workspace / "held").exists)
        taken = int(Path("/proc/sys/kernel/pty/nr").read_text())
        for end in pty.openpty():
            os.close(end)
    finally:
        (workspace / "seen").touch()
        thread.join()
    assert taken <= most - reserve
    counts = [int(line.split()[0]) for line in found[0].decode().splitlines()]
    assert 0 < sum(counts) <= most - reserve
    # They are gone with the run.
    until(lambda: int(Path("/proc/sys/kernel/pty/nr").read_text()) <= taken - sum(counts))


PTY_NUMBERS = ("max", "reserve")


def is_first_user_namespace() -> bool:
    return Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


def test_53_and_55_a_run_changes_no_code_of_a_later_one(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "tool.py").write_text("def said(): return 'as approved'\n")
    attack = (
        f"import sys;sys.path.insert(0,{str(skill)!r});import tool\n"
        "tool.said=lambda:'evil'\n"
        f"try:\n open({str(skill / 'tool.py')!r},'w').write('def said(): return \"evil\"')\n"
        "except OSError as error: print(error.errno)"
    )
    use = f"import sys;sys.path.insert(0,{str(skill)!r});import tool;print(tool.said())"
    naive(attack, workspace)
    assert naive(use, workspace) == b"evil\n"
    for left in skill.rglob("*.pyc"):
        left.unlink()
    (skill / "tool.py").write_text("def said(): return 'as approved'\n")
    assert python(launcher, workspace, attack, readable=(skill,)) == b"30\n", "EROFS"
    assert python(launcher, workspace, use, readable=(skill,)) == b"as approved\n"
    assert list(skill.rglob("*.pyc")) == []


def test_54_a_run_leaves_nothing_in_the_temporary_directory_for_the_next(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    subprocess.run(
        ("sh", "-c", "echo state > $TMPDIR/left"), env={"TMPDIR": str(shared)}, check=True
    )
    assert (shared / "left").exists()
    for place in ("/tmp", "/dev/shm", "$HOME"):
        assert sh(launcher, workspace, f"echo state > {place}/left").exit_code == 0
        assert sh(launcher, workspace, f"cat {place}/left").stdout == b""


def test_56_a_run_that_is_killed_is_an_error_and_is_not_repeated(tmp_path: Path) -> None:
    """Its processes are killed by somebody else, in the middle of the call."""

    async def call(house: Skillhouse) -> Any:
        await house.services.sandbox.status()
        results = []

        async def exec_() -> None:
            words = ["-c", f"echo once >> log; sleep {own(605)}"]
            results.append(await house.call("exec", {"command": "sh", "params": words}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exec_)
            with anyio.fail_after(20):
                # No event tells what happens in another process.
                while not (tmp_path / "project/log").exists() or not running(own(605)):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            for process in running(own(605)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        return results[0]

    with Skillhouse(
        configured(make_places(tmp_path)),
        layers=(Layer(name="user", rules=(ALLOW,)),),
        channel=Unattended(),
    ) as house:
        result = anyio.run(call, house)
        assert result.status == "error"
        assert (tmp_path / "project/log").read_text() == "once\n"
        (entry,) = read_records(house.audit_log.path, limit=1)
        assert (entry.record.kind, entry.status) == ("intent", "error")
        assert verify_log(house.audit_log.path).unknown == ()
    # A caller that repeats what failed does it twice.
    assert still_running(own(605)) == []


CORE = """
import sys
from pathlib import Path
from tests.attacks.test_kernel_attacks import house_of
with house_of(Path(sys.argv[1])) as house:
    words = ["-c", f"touch begun; sleep {sys.argv[2]}"]
    house.call_sync("exec", {"command": "sh", "params": words})
"""


def house_of(base: Path) -> Skillhouse:
    return Skillhouse(
        configured(make_places(base)),
        layers=(Layer(name="user", rules=(ALLOW,)),),
        channel=Unattended(),
    )


def test_57_kill_9_of_the_house_is_told_at_the_next_start(tmp_path: Path) -> None:
    with subprocess.Popen(
        (sys.executable, "-c", CORE, str(tmp_path), own(606)),
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as core:
        until((tmp_path / "project/begun").exists, 30)
        core.kill()
    assert still_running(own(606)) == []
    with house_of(tmp_path) as house:
        assert len(verify_log(house.audit_log.path).unknown) == 1
        assert house.call_sync("list", {}).status == "ok"
    # A log without intents could not tell; its last line is of a call that ended.
    (entry,) = read_records(house.audit_log.path, limit=1, tool="exec")
    assert entry.status == "unknown"
