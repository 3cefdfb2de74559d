"""Attacks on what holds one call in a container where no namespaces can be made."""

from __future__ import annotations

import os
import platform
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from skillhouse.extensions.cells import confine
from skillhouse.extensions.cells.cell_environment import make_room_for_descriptors
from skillhouse.sandbox import scratch
from skillhouse.sandbox.guard import OPEN_FILES
from skillhouse.sandbox.seccomp import ARCHITECTURES, alone_program
from tests.harness import ran

pytestmark = pytest.mark.slow

MACHINE = platform.machine()
INSIDE = Path(confine.__file__)
NEEDS_LINUX = pytest.mark.skipif(
    sys.platform != "linux" or MACHINE not in ARCHITECTURES, reason="no system call filter here"
)

ATTEMPT = """
import ctypes, fcntl, os, signal, struct, sys
from importlib.machinery import SourceFileLoader
inside = SourceFileLoader("inside", sys.argv[1]).load_module()
victim, data = int(sys.argv[2]), bytes.fromhex(sys.argv[3])
reading, writing = os.pipe()
file = os.open(sys.argv[4], os.O_RDONLY)
if data:
    inside.checked(inside.libc.prctl(38, 1, 0, 0, 0), "prctl")
    inside.load_own_filter(data)

def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "worked"

def signals():
    fcntl.fcntl(reading, fcntl.F_SETOWN, victim)
    fcntl.fcntl(reading, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writing, b"x")

def owns():
    fcntl.fcntl(reading, 15, struct.pack("ii", 1, victim))  # F_SETOWN_EX

print(
    attempt(signals),
    attempt(owns),
    attempt(lambda: fcntl.fcntl(file, 1024, fcntl.F_RDLCK)),  # F_SETLEASE
    attempt(lambda: os.memfd_create("x")),
)
"""
"""The kernel sends the signal: no rule about `kill` hears of it."""


def tried(tmp_path: Path, data: bytes) -> tuple[list[str], int]:
    """Return what came of each attempt, and the victim's end; 0 when it went on."""
    (tmp_path / "file").write_text("of a skill")
    victim = subprocess.Popen(["sleep", "60"])
    try:
        argv = ["-W", "ignore", "-c", ATTEMPT, str(INSIDE), str(victim.pid), data.hex()]
        done = ran([sys.executable, *argv, str(tmp_path / "file")], check=True)
        try:
            return done.stdout.split(), victim.wait(0.2)
        except subprocess.TimeoutExpired:
            return done.stdout.split(), 0
    finally:
        victim.kill()
        victim.wait()


@NEEDS_LINUX
def test_no_signal_goes_to_others_by_way_of_a_pipe(tmp_path: Path):
    said, end = tried(tmp_path, b"")
    assert (said, end) == (["worked"] * 4, -signal.SIGKILL)

    said, end = tried(tmp_path, alone_program(MACHINE))
    assert (said, end) == (["PermissionError"] * 4, 0)


def hand_over_all(most: int, full: int) -> None:
    """Hand over as many descriptors as go, to nobody who takes them; say so, and stay."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = []
    for _ in range(100):
        ends = socket.socketpair()
        held.append(ends)
        try:
            for _ in range(8):
                socket.send_fds(ends[0], [b"x"], [0] * 250)
        except OSError:
            os.write(full, b"full")
            signal.pause()


def hands_over() -> bool:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            socket.send_fds(ours, [b"x"], [0])
        except OSError:
            return False
        return True


@NEEDS_LINUX
def test_who_runs_cells_hands_descriptors_over_whatever_a_call_does(tmp_path: Path):
    """In a process of a user of its own, since these are counted for a user."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        # What other tests of this process left open would count as well.
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if os.getuid() == 0:
            # Nobody else's: the same test may run beside this one.
            own = 100_000 + os.getpid()
            os.setgroups([])
            os.setgid(own)
            os.setuid(own)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        full, told = os.pipe()
        call = os.fork()
        if call == 0:
            hand_over_all(OPEN_FILES, told)
            os._exit(1)
        os.close(told)
        said_so = os.read(full, 4)
        naive = hands_over()
        make_room_for_descriptors()
        os.write(1, said_so + f" {naive} {hands_over()}".encode())
        os.kill(call, signal.SIGKILL)
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as said:
        assert said.read() == "full False True"


def dug(base: Path, depth: int) -> None:
    handle = os.open(base, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=handle))
    os.close(handle)


@NEEDS_LINUX
def test_what_is_deeper_than_a_path_is_removed(tmp_path: Path):
    place = tmp_path / "place"
    place.mkdir()
    dug(place, 5_000)
    with pytest.raises(OSError, match="too long"):
        os.stat(f"{place}/{'d/' * 5_000}file")
    scratch.remove(str(place))
    assert not place.exists()


@NEEDS_LINUX
def test_what_is_deep_counts_as_too_many_files(tmp_path: Path):
    dug(tmp_path, scratch.DEPTH_MAX)
    count, _ = scratch.files_of(str(tmp_path))
    assert count > scratch.FILES_MAX


@NEEDS_LINUX
def test_removing_follows_no_link(tmp_path: Path):
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    place = tmp_path / "place"
    (place / "below").mkdir(parents=True)
    (place / "link").symlink_to(outside)
    (place / "below/link").symlink_to(outside)
    assert scratch.files_of(str(place))[0] == 3
    scratch.remove(str(place))
    assert not place.exists()
    assert (outside / "kept").is_dir()
    (tmp_path / "place").symlink_to(outside)
    scratch.remove(str(place))
    assert (outside / "kept").is_dir()
