"""Attacks on what holds a command where bubblewrap is missing. Each works without it."""

from __future__ import annotations

import ctypes
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from skillhouse.sandbox import Completed, Launcher, SandboxLevel
from skillhouse.sandbox.landlock import LandlockLauncher
from skillhouse.sandbox.status import surroundings
from tests.harness import ran, until
from tests.sandbox.places import (
    launcher_at,
    own,
    run,
    running,
    sh,
    started,
    still_running,
    workspace,
)

pytestmark = pytest.mark.slow

__all__ = ["workspace"]

PYTHON = "/usr/bin/python3"
HERE = Path(__file__).resolve().parents[2]


@pytest.fixture
def launcher(tmp_path: Path, need: Any) -> Launcher:
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    return launcher_at(SandboxLevel.LANDLOCK, need, tmp_path / "state")


def python(launcher: Launcher, workspace: Path, code: str, **options: Any) -> Completed:
    return run(launcher, workspace, "python3", "-I", "-c", textwrap.dedent(code), **options)


def naive(workspace: Path, code: str) -> str:
    argv = (PYTHON, "-I", "-c", textwrap.dedent(code))
    return ran(argv, cwd=workspace, check=True).stdout


def test_a_second_name_of_a_protected_file_is_written(launcher: Launcher, workspace: Path):
    os.link(workspace / ".git" / "config", workspace / "innocent")
    os.link(workspace / ".env", workspace / "readable")
    script = "echo evil >> innocent; cat readable; ln .env linked; cat linked"
    done = sh(launcher, workspace, script)
    assert b"canary" not in done.stdout
    assert (workspace / ".git" / "config").read_text() == "[core]\n"


def test_a_secret_is_carried_out_by_a_new_name(launcher: Launcher, workspace: Path):
    (workspace / "free").mkdir()
    for way in ("ln .env free/x", "mv .env free/x", "ln -s ../.env free/x", "mv .ssh free/x"):
        script = f"{way}; cat free/x free/x/*; rm -rf free/x"
        assert b"canary" not in sh(launcher, workspace, script).stdout
    assert (workspace / ".env").read_text() == "TOKEN=canary\n"


def test_a_protected_files_mode_is_changed_by_its_descriptor(launcher: Launcher, workspace: Path):
    hook = workspace / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o644)
    code = """
    import os
    place = os.open(".git/hooks/pre-commit", os.O_RDONLY)
    for change in (
        lambda: os.fchmod(place, 0o755),
        lambda: os.chmod(".git/hooks/pre-commit", 0o755),
        lambda: os.utime(place, (1, 1)),
        lambda: os.utime(".git/hooks/pre-commit"),
    ):
        try:
            change()
            print("changed")
        except PermissionError:
            print("refused")
    """
    assert naive(workspace, code).split() == ["changed"] * 4
    hook.chmod(0o644)
    before = hook.stat()
    assert python(launcher, workspace, code).stdout.split() == [b"refused"] * 4
    assert (hook.stat().st_mode, hook.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@contextmanager
def shared_memory() -> Iterator[int]:
    """Yield the number of a System V segment of this process with a secret."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(0, 4096, 0o1600)
    place = libc.shmat(number, None, 0)
    try:
        ctypes.memmove(place, b"canary\0", 7)
        yield number
    finally:
        libc.shmctl(number, 0, None)
        libc.shmdt(ctypes.c_void_p(place))


def test_memory_of_the_host_is_attached_by_its_number(launcher: Launcher, workspace: Path):
    with shared_memory() as number:
        code = f"""
        import ctypes
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        place = libc.shmat({number}, None, 0)
        print(place not in (None, 2 ** 64 - 1) and ctypes.string_at(place))
        """
        assert naive(workspace, code) == "b'canary'\n"
        assert python(launcher, workspace, code).stdout == b"False\n"


def test_names_of_files_that_others_open_are_watched(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    code = f"""
    import ctypes, os
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    print(watch >= 0 and libc.inotify_add_watch(watch, b"{tmp_path}", 0xFFF) >= 0)
    """
    assert naive(workspace, code) == "True\n"
    assert python(launcher, workspace, code).stdout == b"False\n"


def test_terminals_of_the_host_are_written_to(launcher: Launcher, workspace: Path):
    code = """
    import os
    for path in PATHS:
        try:
            os.write(os.open(path, os.O_RDWR | os.O_NOCTTY), b"evil")
            print("written")
        except OSError as error:
            print(error.errno)
    """
    leader, follower = pty.openpty()
    try:
        paths = [os.ttyname(follower), "/dev/ptmx", "/dev/pts/ptmx", "/dev/tty"]
        code = code.replace("PATHS", repr(paths))
        assert naive(workspace, code).startswith("written\nwritten\n")
        assert os.read(leader, 99) == b"evil"
        # No devpts of its own can be mounted here, so a program that needs a terminal has none.
        assert python(launcher, workspace, code).stdout == b"13\n13\n13\n13\n"
    finally:
        os.close(leader)
        os.close(follower)


def test_limits_and_priorities_of_the_host_are_changed(launcher: Launcher, workspace: Path):
    with subprocess.Popen(("sleep", "60")) as victim:
        code = f"""
        import os, resource
        for change in (
            lambda: resource.prlimit({victim.pid}, resource.RLIMIT_CORE, (0, 0)),
            lambda: os.setpriority(os.PRIO_PROCESS, {victim.pid}, 19),
            lambda: os.sched_setaffinity({victim.pid}, os.sched_getaffinity(0)),
            lambda: os.kill({victim.pid}, 0),
        ):
            try:
                change()
                print("changed")
            except PermissionError:
                print("refused")
        """
        assert naive(workspace, code).split() == ["changed"] * 4
        assert python(launcher, workspace, code).stdout.split() == [b"refused"] * 4
        victim.kill()


def background(launcher: Launcher, workspace: Path, script: str) -> threading.Thread:
    def work() -> None:
        # However it ends: that is what the tests are about.
        with suppress(Exception):
            sh(launcher, workspace, script)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def holders(parent: int) -> list[int]:
    """Return our processes that hold a run: the supervisor, then its watcher."""
    named: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            head, _, rest = Path("/proc", name, "stat").read_text().rpartition(")")
            if head.endswith("(skillhouse-run"):
                named[int(name)] = int(rest.split()[1])
    supervisors = [pid for pid, above in named.items() if above == parent]
    return supervisors + [pid for pid, above in named.items() if above in supervisors]


TREE = 8
"""Processes of the run of this test."""


@pytest.mark.parametrize("which", [0, 1])
def test_killing_what_holds_a_run_leaves_nothing_of_it(
    launcher: Launcher, workspace: Path, which: int
):
    mark = own(611 + which)
    script = f"(setsid sleep {mark} &); setsid sh -c 'sleep {mark} & sleep {mark}' & sleep {mark}"
    thread = background(launcher, workspace, script)
    # The supervisor, the watcher, two shells and their four programs.
    until(lambda: len(running(mark)) >= TREE and len(holders(os.getpid())) == 2)
    victims = holders(os.getpid())
    assert len(victims) == 2
    os.kill(victims[which], signal.SIGKILL)
    assert still_running(mark) == []
    thread.join(10)
    assert not thread.is_alive()
    assert holders(os.getpid()) == []


def test_killing_the_core_leaves_nothing_of_a_run(launcher: Launcher, workspace: Path):
    mark = own(613)
    code = f"""
    import sys
    from pathlib import Path
    from skillhouse.sandbox import SandboxLevel
    from tests.sandbox.places import launcher_at, sh
    launcher = launcher_at(SandboxLevel.LANDLOCK, lambda *_: None, Path("state"))
    script = "(setsid sleep {mark} &); sleep {mark}"
    sh(launcher, Path({str(workspace)!r}), script, seconds=120.0)
    """
    argv = (sys.executable, "-c", textwrap.dedent(code))
    temporary = workspace.parent / "temporary"
    temporary.mkdir()
    paths = {"PYTHONPATH": f"{HERE}:{HERE}/src", "TMPDIR": str(temporary)}
    with subprocess.Popen(argv, cwd=workspace.parent, env=paths) as core:
        # The core, the supervisor, the watcher, a shell and its two programs: on a machine with
        # sixteen others at work they took longer than 20 seconds to be there.
        assert until(lambda: len(running(mark)) >= 6, 100)
        assert len(list(temporary.iterdir())) == 1
        core.kill()
    assert still_running(mark) == []
    assert until(lambda: not list(temporary.iterdir()))


def test_killing_the_group_of_what_holds_a_run_leaves_nothing_of_it(
    launcher: Launcher, workspace: Path
):
    # A control group would end the rest.
    launcher = LandlockLauncher(surroundings().machine, place=None)
    mark = own(615)
    script = f"setsid sleep {mark} & (setsid sleep {mark} &); sleep {mark}"
    thread = background(launcher, workspace, script)
    assert started(mark, seconds=20)
    # A watcher has the name of what it is only once it runs.
    assert until(lambda: len(holders(os.getpid())) == 2, 20)
    victims = holders(os.getpid())
    # As `Run` does where it got no report, whose number would be the watcher's.
    os.killpg(victims[0], signal.SIGKILL)
    assert still_running(mark) == []
    thread.join(10)
    assert not thread.is_alive()


def test_a_run_ends_itself_with_all_others_of_its_own(launcher: Launcher, workspace: Path):
    mark = own(614)
    with subprocess.Popen(("sleep", mark)) as beside:
        done = sh(launcher, workspace, f"kill -9 {os.getpid()} $PPID; kill -9 -1; echo left")
        assert done.stdout in (b"left\n", b"")
        assert beside.poll() is None
        beside.kill()
