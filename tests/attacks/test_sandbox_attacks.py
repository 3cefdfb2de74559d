"""Attacks on the machine by code that is run. Each first works without a sandbox, then not in it.

What works without one is done in a place of its own, and bounded, so that it harms nothing.
"""

from __future__ import annotations

import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import PROTECTED_NAMES
from skillhouse.floor.crash_cleanup import SANDBOX_NAME
from skillhouse.sandbox import Launcher, SandboxLevel
from tests.harness import until
from tests.sandbox.places import (
    ALL_LEVELS,
    has_namespaces,
    launcher_at,
    listing,
    own,
    run,
    running,
    sh,
    skip_unlimited,
    started,
    still_running,
    workspace,
)

pytestmark = pytest.mark.slow

__all__ = ["workspace"]

MIB = 1 << 20
PERL = "/usr/bin/perl"
PYTHON = "/usr/bin/python3"


@pytest.fixture(params=ALL_LEVELS)
def launcher(request: pytest.FixtureRequest, tmp_path: Path, need: Any) -> Launcher:
    """A launcher of each level in turn."""
    return launcher_at(request.param, need, tmp_path / "state")


def naive(script: str, place: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a script as a program without a sandbox would."""
    return subprocess.run(
        ("sh", "-c", script), cwd=place, capture_output=True, check=False, timeout=30, **options
    )


def test_a_variable_of_ours_leaks_through_proc(launcher: Launcher, workspace: Path, monkeypatch):
    monkeypatch.setenv("CANARY", "leak-of-a-secret")
    script = "cat /proc/*/environ /proc/self/environ; tr '\\0' '\\n' < /proc/$PPID/environ; env"
    outside = f"tr '\\0' '\\n' < /proc/{os.getpid()}/environ; {script}"
    assert b"leak-of-a-secret" in naive(outside, workspace).stdout
    assert b"leak-of-a-secret" not in sh(launcher, workspace, outside).stdout


def test_the_command_line_tells_paths_of_the_host(launcher: Launcher, workspace: Path, tmp_path):
    skill = tmp_path / "skill-beside"
    skill.mkdir()
    done = sh(launcher, workspace, "cat /proc/*/cmdline", readable=(skill,))
    assert b"skill-beside" not in done.stdout
    assert (SANDBOX_NAME.encode() in done.stdout) == has_namespaces(launcher)


@pytest.mark.parametrize("path", ["/etc/shadow", "/root/.bashrc", "/sys/kernel", "/run", "/home"])
def test_files_of_the_host_are_read(launcher: Launcher, workspace: Path, path: str):
    # Landlock leaves visible that a file is there, not what is in it.
    script = f"ls -d {path}" if has_namespaces(launcher) else f"ls {path}/ || cat {path}"
    if naive(script, workspace).returncode == 0:
        done = sh(launcher, workspace, script)
        assert (done.exit_code != 0, done.stdout) == (True, b"")


def test_a_device_of_the_host_is_closed_to_everyone_else(launcher: Launcher, workspace: Path):
    # Root owns it; `/dev/null` that only root opens ends most services of a machine.
    before = os.stat("/dev/full")
    script = "chmod 600 /dev/full; touch -d 2001-01-01 /dev/full; echo x > /dev/null && echo wrote"
    try:
        done = sh(launcher, workspace, script)
        after = os.stat("/dev/full")
    finally:
        if os.geteuid() == 0:
            os.chmod("/dev/full", before.st_mode & 0o777)
            os.utime("/dev/full", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)
    assert done.stdout == b"wrote\n"
    # What one run did there holds up no other.
    assert sh(launcher, workspace, "cat /dev/full | head -c 1 | wc -c").stdout.strip() == b"1"


def test_a_canary_outside_is_read_and_overwritten(launcher: Launcher, workspace: Path, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("canary")
    script = (
        f"cat {canary} ../canary /proc/self/root{canary}; echo x > {canary}; echo x > ../canary"
    )
    assert b"canary" in naive(script, workspace).stdout
    assert canary.read_text() == "x\n"
    canary.write_text("canary")
    assert b"canary" not in sh(launcher, workspace, script).stdout
    assert canary.read_text() == "canary"


def test_the_kernel_is_told_to_run_a_program(launcher: Launcher, workspace: Path):
    # Whoever has the superuser's id may write it, without any capability.
    script = 'for name in core_pattern modprobe hotplug; do : >> "/proc/sys/kernel/$name"; done'
    trigger = "for name in /proc/sysrq-trigger /proc/sys/vm/drop_caches; do : >> $name; done"
    if os.geteuid() == 0:
        assert naive(": >> /proc/sys/kernel/core_pattern", workspace).returncode == 0
    done = sh(
        launcher, workspace, f"( {script} ); ( {trigger} ); : >> /proc/sys/kernel/core_pattern"
    )
    assert done.exit_code != 0
    # What the modes refuse to a user is refused before the mount is looked at.
    is_mount = has_namespaces(launcher) and os.geteuid() == 0
    refusal = b"Read-only file system" if is_mount else b"Permission denied"
    assert refusal in done.stderr


@contextmanager
def listening(family: int, address: Any) -> Iterator[tuple[Any, list[bytes]]]:
    """Yield the address of a listener on the host, and what has arrived there."""
    arrived: list[bytes] = []
    datagram = family == socket.SOCK_DGRAM
    kind = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM if datagram else socket.SOCK_STREAM) as server:
        server.bind(address)
        if not datagram:
            server.listen()

        def serve() -> None:
            while True:
                try:
                    if datagram:
                        arrived.append(server.recv(100))
                    else:
                        server.accept()[0].close()
                        arrived.append(b"connected")
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname(), arrived
        finally:
            server.shutdown(socket.SHUT_RDWR) if not datagram else None


CALL = {
    "tcp": "s=socket.create_connection(('127.0.0.1',{port}),2)",
    "udp": "s=socket.socket(type=socket.SOCK_DGRAM);s.sendto(b'x',('127.0.0.1',{port}))",
    "mptcp": "s=socket.socket(proto=262);s.connect(('127.0.0.1',{port}))",
    "path": "s=socket.socket(socket.AF_UNIX);s.connect('host.sock')",
    "abstract": "s=socket.socket(socket.AF_UNIX);s.connect('\\0{name}')",
}


@pytest.mark.parametrize("way", CALL)
def test_the_network_is_reached_from_inside(
    launcher: Launcher, workspace: Path, way: str, need: Any
):
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    name = f"skillhouse-{secrets.token_hex(6)}"
    address: Any = {"path": str(workspace / "host.sock"), "abstract": f"\0{name}"}.get(
        way, ("127.0.0.1", 0)
    )
    family = socket.SOCK_DGRAM if way == "udp" else socket.SOCK_STREAM
    with listening(family, address) as (bound, arrived):
        port = bound[1] if isinstance(bound, tuple) else 0
        code = f"import socket;{CALL[way].format(port=port, name=name)}"
        subprocess.run((PYTHON, "-I", "-c", code), cwd=workspace, check=True)
        assert until(lambda: arrived)
        arrived.clear()
        is_both = way in ("path", "abstract") and has_namespaces(launcher)
        for granted in (False, True) if is_both else (False,):
            run(launcher, workspace, "python3", "-I", "-c", code, network=granted)
        time.sleep(0.1)
        assert arrived == []


@pytest.mark.parametrize("way", ["path", "abstract"])
def test_a_pair_of_datagram_sockets_is_turned_to_a_name(
    launcher: Launcher, workspace: Path, way: str, need: Any
):
    # A filter of `socket` does not see them, and `sendto` takes any address.
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    name = f"\0skillhouse-{secrets.token_hex(6)}" if way == "abstract" else "host.sock"
    code = (
        "import socket\n"
        "one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"one.sendto(b'out', {name!r})"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(str(workspace / name) if way == "path" else name)
        host.settimeout(5)
        subprocess.run((PYTHON, "-I", "-c", code), cwd=workspace, check=True)
        assert host.recv(9) == b"out"
        granted = way == "abstract" and has_namespaces(launcher)
        done = run(launcher, workspace, "python3", "-I", "-c", code, network=granted)
        assert b"PermissionError" in done.stderr
        host.setblocking(False)
        with pytest.raises(BlockingIOError):
            host.recv(9)


def test_names_are_resolved_from_inside(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "getent hosts example.com; cat /etc/resolv.conf")
    assert done.stdout == b""
    assert done.exit_code != 0


@pytest.mark.parametrize("family", [17, 38, 40, 1])
def test_other_sockets_lead_out(launcher: Launcher, workspace: Path, family: int, need: Any):
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    code = f"import socket; socket.socket({family}, socket.SOCK_DGRAM if {family} != 40 else 1)"
    granted = has_namespaces(launcher)
    done = run(launcher, workspace, "python3", "-I", "-c", code, network=granted)
    assert b"Address family not supported" in done.stderr


BOMB = """
import os, sys, time
made = 0
for _ in range(int(sys.argv[1])):
    try:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    except OSError:
        break
    made += 1
print(made, flush=True)
time.sleep(float(sys.argv[2]))
"""


def test_a_fork_bomb(launcher: Launcher, workspace: Path, need: Any):
    skip_unlimited(launcher)
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    with subprocess.Popen(
        (PYTHON, "-I", "-c", BOMB, "150", own(600)), stdout=subprocess.PIPE, start_new_session=True
    ) as bomb:
        assert bomb.stdout is not None
        assert int(bomb.stdout.readline()) == 150
        os.killpg(bomb.pid, signal.SIGKILL)
    done = run(
        launcher,
        workspace,
        "python3",
        "-I",
        "-c",
        BOMB,
        "5000",
        own(600),
        processes=40,
        seconds=1.5,
    )
    made = int(done.stdout or b"0")
    assert made <= 40
    assert done.limit in ("processes", "time")
    assert still_running(own(600)) == []


def test_a_fork_bomb_that_doubles(launcher: Launcher, workspace: Path, need: Any):
    skip_unlimited(launcher)
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    # Bounded: 2,048 processes, if nothing stops it.
    code = f"import os, time\nfor _ in range(11): os.fork()\ntime.sleep({own(604)})"
    began = time.monotonic()
    done = run(launcher, workspace, "python3", "-I", "-c", code, processes=40, seconds=2)
    assert done.limit in ("processes", "time") or done.exit_code != 0
    assert still_running(own(604)) == []
    assert time.monotonic() - began < 10


def test_a_memory_bomb(launcher: Launcher, workspace: Path, need: Any):
    need(Path(PERL).exists(), f"no {PERL}")
    script = 'perl -e \'my @a; push @a, "x" x 1048576 for 1 .. 300; print "survived"\''
    assert naive(script, workspace).stdout == b"survived"
    done = sh(launcher, workspace, script, memory_bytes=64 * MIB)
    assert b"survived" not in done.stdout
    assert done.exit_code != 0


def test_a_memory_bomb_of_many_processes(launcher: Launcher, workspace: Path, need: Any):
    need(Path(PERL).exists(), f"no {PERL}")
    one = 'perl -e \'my $a = "x" x (40 << 20); sleep 1; print "survived"\''
    script = f"for i in 1 2 3 4 5 6 7 8; do {one} & done; wait"
    done = sh(launcher, workspace, script, memory_bytes=100 * MIB)
    assert done.stdout.count(b"survived") <= 2
    if launcher.level is SandboxLevel.RLIMITS:
        assert done.limit == "memory"


def test_a_file_system_in_memory_is_filled(launcher: Launcher, workspace: Path):
    script = "for d in /tmp /dev/shm /dev / /etc; do head -c 900000000 /dev/zero > $d/x; done; true"
    began = time.monotonic()
    sh(launcher, workspace, script, memory_bytes=64 * MIB)
    assert time.monotonic() - began < 20


def test_output_floods_our_memory(launcher: Launcher, workspace: Path):
    flooded = naive("head -c 30000000 /dev/zero", workspace)
    assert len(flooded.stdout) == 30_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "cat /dev/zero & cat /dev/zero >&2"
    done = sh(launcher, workspace, script, output_bytes=262_144, seconds=3)
    assert 262_144 < len(done.stdout) + len(done.stderr) < 262_144 + 200
    assert (done.limit, done.left_out > 0) == ("time", True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_sigterm_is_ignored(launcher: Launcher, workspace: Path):
    script = f"trap '' TERM INT HUP; echo; while :; do sleep {own(601)}; done"
    with subprocess.Popen(("sh", "-c", script), stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        stubborn.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            stubborn.wait(0.3)
        stubborn.kill()
        subprocess.run(("kill", "-9", *map(str, running(own(601)))), check=False)
    done = sh(launcher, workspace, script, seconds=0.5)
    assert done.timed_out
    assert still_running(own(601)) == []


def test_a_double_fork_outlives_its_run(launcher: Launcher, workspace: Path):
    mark = f"602.{secrets.randbelow(10**9):09}"
    script = f"(setsid sleep {mark} </dev/null >/dev/null 2>&1 &); echo done"
    assert naive(script, workspace).stdout == b"done\n"
    left = started(mark)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert left
    assert sh(launcher, workspace, script).stdout == b"done\n"
    assert still_running(mark) == []


CORE = """
import sys, anyio
from pathlib import Path
from skillhouse.sandbox import SandboxLevel, SandboxProfile, SandboxStatus, launcher_for

async def main():
    launcher = launcher_for(SandboxStatus(level=SandboxLevel(sys.argv[1])))
    place = Path(sys.argv[2])
    script = f"setsid sleep {sys.argv[3]} & (setsid sleep {sys.argv[3]} &); touch begun; "
    argv = ("sh", "-c", script + f"sleep {sys.argv[3]}")
    await launcher.run(argv, SandboxProfile(place), cwd=place)
anyio.run(main)
"""


def test_kill_9_of_the_core_leaves_its_run_behind(launcher: Launcher, workspace: Path):
    mark = f"603.{secrets.randbelow(10**9):09}"
    with subprocess.Popen((sys.executable, "-c", CORE, launcher.level, workspace, mark)) as core:
        until((workspace / "begun").exists, 20)
        assert len(running(mark)) >= 2
        core.kill()
        core.wait()
    assert still_running(mark) == []


@pytest.mark.parametrize("name", [name for name in PROTECTED_NAMES if "*" not in name])
def test_a_protected_path_is_made(launcher: Launcher, tmp_path: Path, name: str):
    place = tmp_path / "new"
    place.mkdir()
    target = f"{name}/x" if name in (".git/hooks", ".claude", ".vscode") else name
    script = f"mkdir -p $(dirname {target}); echo x > {target}"
    assert naive(script, place).returncode == 0
    assert (place / target).exists()
    place = tmp_path / "guarded"
    place.mkdir()
    for attempt in (script, f"echo x > a; mkdir -p b; mv a {target}; mv b {name}; ln -s a {name}"):
        sh(launcher, place, attempt)
        assert not (place / name).exists()
        assert listing(place) <= {"a", "b"}


def test_a_hook_is_made_by_moving_the_git_directory(launcher: Launcher, workspace: Path):
    script = "mv .git old && mkdir -p .git/hooks && echo x > .git/hooks/post-checkout"
    before = listing(workspace)
    assert sh(launcher, workspace, script).exit_code != 0
    assert listing(workspace) == before


def test_a_hard_link_reaches_a_protected_file(launcher: Launcher, workspace: Path):
    assert naive("ln .git/config direct && echo x >> direct", workspace).returncode == 0
    assert (workspace / ".git" / "config").read_text() == "[core]\nx\n"
    (workspace / "direct").unlink()
    assert sh(launcher, workspace, "ln .git/config direct && echo y >> direct").exit_code != 0
    assert (workspace / ".git" / "config").read_text() == "[core]\nx\n"


def test_a_mount_is_taken_away(launcher: Launcher, workspace: Path):
    script = "umount .git/config; umount -l .env; unshare -Urm true; mount -o remount,rw /usr; true"
    sh(launcher, workspace, f"{script}; cat .env; echo x > .git/config")
    assert (workspace / ".git" / "config").read_text() == "[core]\n"


@pytest.mark.parametrize("mode", ["chmod 4755 f", "chmod 2755 f", "install -m 4755 f g"])
def test_a_setuid_program_is_left_for_others(launcher: Launcher, workspace: Path, mode: str):
    script = f"cp /usr/bin/id f; {mode}"
    assert naive(script, workspace).returncode == 0
    (workspace / "f").unlink()
    (workspace / "g").unlink(missing_ok=True)
    assert sh(launcher, workspace, script).exit_code != 0
    modes = {path.stat().st_mode & 0o6000 for path in workspace.iterdir()}
    assert modes == {0}


def test_other_processes_are_seen_or_killed(launcher: Launcher, workspace: Path):
    with subprocess.Popen(("sleep", "604.5")) as victim:
        assert naive(f"kill -0 {victim.pid}", workspace).returncode == 0
        done = sh(launcher, workspace, f"kill -9 {victim.pid} -1; cat /proc/[0-9]*/cmdline")
        assert b"604.5" not in done.stdout.replace(b"$$", b"")
        assert victim.poll() is None
        victim.kill()


def test_descriptors_of_ours_are_inherited(launcher: Launcher, workspace: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("canary")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        script = f"cat /proc/self/fd/{file.fileno()} 2>/dev/null; ls /proc/self/fd | wc -l"
        assert naive(script, workspace, close_fds=False).stdout.startswith(b"canary")
        # Without mounts of its own it sees nothing of /proc.
        expected = b"4\n" if has_namespaces(launcher) else b"0\n"
        assert sh(launcher, workspace, script).stdout == expected


def test_a_program_is_given_by_its_path(launcher: Launcher, workspace: Path):
    program = workspace / "ls"
    program.write_text("#!/bin/sh\necho taken over\n")
    program.chmod(0o755)
    assert naive("./ls", workspace).stdout == b"taken over\n"
    # Found in the sandbox's PATH only, which holds no place of the workspace.
    done = run(launcher, workspace, "ls", environment={"PATH": str(workspace)})
    assert b"taken over" not in done.stdout
