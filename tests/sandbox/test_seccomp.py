"""Tests of the filter's program and of finding control groups, without running anything."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from skillhouse.sandbox.guard import find_place
from skillhouse.sandbox.seccomp import ARCHITECTURES, program

ALLOW, KILL, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF0000, 0x80000000, 0x50001, 0x50026, 0x50061
X86, ARM = 0xC000003E, 0xC00000B7


def answer(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return what the kernel's machine for such programs would answer (linux/filter.h)."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = [struct.unpack_from("=HBBI", code, place) for place in range(0, len(code), 8)]
    value = place = 0
    while True:
        kind, when_true, when_false, operand = lines[place]
        place += 1
        if kind == 0x06:
            return int(operand)
        if kind == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
            continue
        if kind == 0x54:
            value &= operand
            continue
        holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[kind]
        place += when_true if holds else when_false


@pytest.mark.parametrize(
    ("machine", "architecture", "call", "expected"),
    [
        ("x86_64", X86, (0,), ALLOW),  # read
        ("x86_64", X86, (101,), EPERM),  # ptrace
        ("x86_64", X86, (425,), EPERM),  # io_uring_setup
        ("x86_64", X86, (435,), ENOSYS),  # clone3
        ("x86_64", ARM, (0,), KILL),
        ("x86_64", 0x40000003, (0,), KILL),  # i386
        ("x86_64", X86, (0x40000000,), KILL),  # x32
        ("x86_64", X86, (56, 0x11), ALLOW),  # clone, as fork does
        ("x86_64", X86, (56, 0x3D0F00), ALLOW),  # clone, as threads do
        ("x86_64", X86, (56, 0x10000011), EPERM),  # CLONE_NEWUSER
        ("x86_64", X86, (56, 0x00020011), EPERM),  # CLONE_NEWNS
        ("x86_64", X86, (41, 1), EAFNOSUPPORT),  # AF_UNIX
        ("x86_64", X86, (41, 2), ALLOW),
        ("x86_64", X86, (41, 10), ALLOW),
        ("x86_64", X86, (41, 16), ALLOW),  # AF_NETLINK, NETLINK_ROUTE
        ("x86_64", X86, (41, 16, 3, 9), EAFNOSUPPORT),  # NETLINK_AUDIT
        ("x86_64", X86, (41, 2, 1, 9), ALLOW),
        ("x86_64", X86, (135, 0xFFFFFFFF), ALLOW),  # personality, to ask
        ("x86_64", X86, (135, 0x20008), ALLOW),
        ("x86_64", X86, (135, 0x40000), EPERM),  # ADDR_NO_RANDOMIZE
        ("x86_64", X86, (135, 0x1_0040_0008), EPERM),  # READ_IMPLIES_EXEC, and more above
        ("x86_64", X86, (41, 40), EAFNOSUPPORT),  # AF_VSOCK
        ("x86_64", X86, (53, 1, 1), ALLOW),  # socketpair: AF_UNIX, SOCK_STREAM
        ("x86_64", X86, (53, 1, 0o2000001), ALLOW),  # and SOCK_CLOEXEC
        ("x86_64", X86, (53, 1, 5), ALLOW),  # SOCK_SEQPACKET
        ("x86_64", X86, (53, 1, 2), EPERM),  # SOCK_DGRAM
        ("x86_64", X86, (53, 1, 0o2004002), EPERM),
        ("x86_64", X86, (53, 1, 3), EPERM),  # SOCK_RAW, which AF_UNIX takes as SOCK_DGRAM
        ("x86_64", X86, (53, 30, 1), EAFNOSUPPORT),  # AF_TIPC
        ("x86_64", X86, (457,), EPERM),  # statmount
        ("x86_64", X86, (458,), EPERM),  # listmount
        ("x86_64", X86, (16, 0, 0x5412), EPERM),  # TIOCSTI
        ("x86_64", X86, (16, 0, 0x1_0000_5412), EPERM),
        ("x86_64", X86, (16, 0, 0x541C), EPERM),  # TIOCLINUX
        ("x86_64", X86, (16, 0, 0x5423), EPERM),  # TIOCSETD
        ("x86_64", X86, (16, 0, 0x5413), ALLOW),  # TIOCGWINSZ
        ("x86_64", X86, (90, 0, 0o755), ALLOW),  # chmod
        ("x86_64", X86, (90, 0, 0o4755), EPERM),
        ("x86_64", X86, (268, 0, 0, 0o2755), EPERM),  # fchmodat
        ("x86_64", X86, (2, 0, 0o101, 0o4755), EPERM),  # open with O_CREAT
        ("x86_64", X86, (257, 0, 0, 0o101, 0o644), ALLOW),  # openat with O_CREAT
        ("x86_64", X86, (257, 0, 0, 0o101, 0o4755), EPERM),
        ("x86_64", X86, (257, 0, 0, 0o20200002, 0o4755), EPERM),  # O_TMPFILE
        ("x86_64", X86, (257, 0, 0, 0, 0o6000), ALLOW),
        ("x86_64", X86, (437,), ENOSYS),  # openat2
        ("aarch64", ARM, (63,), ALLOW),  # read
        ("aarch64", ARM, (117,), EPERM),  # ptrace
        ("aarch64", X86, (63,), KILL),
        ("aarch64", ARM, (220, 0x10000011), EPERM),
        ("aarch64", ARM, (198, 1), EAFNOSUPPORT),
        ("aarch64", ARM, (198, 16, 3, 15), EAFNOSUPPORT),
        ("aarch64", ARM, (92, 0x40000), EPERM),  # personality
        ("aarch64", ARM, (92, 0), ALLOW),
        ("aarch64", ARM, (199, 1, 1), ALLOW),
        ("aarch64", ARM, (199, 1, 2), EPERM),
        ("aarch64", ARM, (29, 0, 0x5412), EPERM),
        ("aarch64", ARM, (29, 0, 0x5423), EPERM),
        ("aarch64", ARM, (52, 0, 0o4755), EPERM),  # fchmod
        ("aarch64", ARM, (56, 0, 0, 0o101, 0o4755), EPERM),  # openat
    ],
)
def test_the_filter_answers_as_the_tables_say(
    machine: str, architecture: int, call: tuple[int, ...], expected: int
):
    assert answer(program(machine), architecture, *call) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ((41, 2), ALLOW),
        ((41, 16), EAFNOSUPPORT),
        ((41, 16, 3, 15), EAFNOSUPPORT),
        ((135, 0xFFFFFFFF), ALLOW),
        ((135, 0), ALLOW),
        ((135, 8), EPERM),
        ((135, 0x40000), EPERM),
    ],
)
def test_the_code_of_a_skill_gets_less(call: tuple[int, ...], expected: int):
    assert answer(program("x86_64", is_cell=True), X86, *call) == expected


def test_every_machine_has_a_program_that_the_kernel_takes():
    # BPF_MAXINSNS of linux/bpf_common.h is 4,096 instructions.
    for machine in ARCHITECTURES:
        assert 0 < len(program(machine)) <= 4_096 * 8


@pytest.mark.parametrize("machine", ["riscv64", ""])
def test_an_unknown_machine_has_no_program(machine: str):
    with pytest.raises(KeyError):
        program(machine)


def groups(base: Path, mounts: str, cgroup: str) -> Path:
    """Write what the kernel says about a process, with `base` for the mount points."""
    (base / "mountinfo").write_text(mounts.replace("BASE", str(base)))
    (base / "cgroup").write_text(cgroup)
    return base


V2 = "30 23 0:26 / BASE/v2 rw - cgroup2 cgroup2 rw\n"
V1 = (
    "31 23 0:27 / BASE/memory rw - cgroup cgroup rw,memory\n"
    "32 23 0:28 / BASE/pids rw - cgroup cgroup rw,pids\n"
)


def group(directory: Path, controllers: str | None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.procs").touch()
    if controllers is not None:
        (directory / "cgroup.subtree_control").write_text(controllers)
    return directory


def test_a_sibling_in_version_2_is_preferred(tmp_path: Path):
    parent = group(tmp_path / "v2" / "app.slice", "cpu memory pids\n")
    group(parent / "own.scope", "memory pids\n")
    place = find_place(groups(tmp_path, V2, "0::/app.slice/own.scope\n"))
    assert place is not None
    assert (place.version, place.memory, place.directories) == (2, parent, (parent,))


def test_version_2_without_the_controllers_gives_way_to_version_1(tmp_path: Path):
    group(tmp_path / "v2" / "own", "hugetlb\n")
    memory, pids = group(tmp_path / "memory" / "own", None), group(tmp_path / "pids", None)
    place = find_place(groups(tmp_path, V2 + V1, "4:memory:/own\n8:pids:/\n0::/own\n"))
    assert place is not None
    assert (place.version, place.directories) == (1, (memory, pids))


def test_without_a_place_there_is_none(tmp_path: Path):
    assert find_place(tmp_path) is None
    group(tmp_path / "memory", None)
    assert find_place(groups(tmp_path, V1, "4:memory:/\n")) is None
