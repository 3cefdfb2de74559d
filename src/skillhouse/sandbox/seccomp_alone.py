"""The filter for code that shares its process numbers and its user with what runs it.

Where no namespace can be made (in a hardened container), a call is one process that makes no other
one, opens no socket, and touches no process but itself. It is loaded beside the common filter; the
kernel takes the stricter answer of both.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping

from skillhouse.sandbox.seccomp import ARCHITECTURES, instructions, refusing, refusing_values

OWN_PID = 0x7FFFFFF1
"""Stands in the program for the number of the process that loads it; no process has it."""
_CLONE_THREAD = 0x00010000
_SET_DEATH_SIGNAL = 1
_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000
_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_FIRST_ARGUMENT = 16

_REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # name: (x86_64, aarch64); None where the architecture has no such call.
    # What makes processes: a call that has one process leaves nothing behind.
    "fork": (57, None),
    "vfork": (58, None),
    # What acts on other processes of the same user.
    "tkill": (200, 130),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    # What holds memory that no look at a process shows.
    "memfd_create": (319, 279),
    # What hands descriptors over: those on their way are counted for the user, and when they are
    # too many, nobody of the same user hands any over.
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    # What changes files past Landlock, which knows no owners, modes, times and attributes: the
    # skill's own tree belongs to the same user, and the next call would see it.
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}
_ON_ITSELF: Mapping[str, tuple[int, int]] = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
"""Their first argument has to be the caller's own number: `abort` and `raise` do that."""
_FCNTL = (72, 25)
_FCNTL_REFUSED = (8, 10, 15, 1024, 1026)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX, by which the kernel sends any signal to any process of the
user (Landlock keeps that off from Linux 6.12 on); F_SETLEASE and F_NOTIFY, which hold up others who
open a file."""
_IOCTL_REFUSED = (0x8901, 0x8902, 0x40086602, 0x401C5820, 0x40806685)
"""FIOSETOWN and SIOCSPGRP, likewise; FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR and FS_IOC_ENABLE_VERITY,
which change attributes of a file that is open for reading."""
_PRLIMIT = (302, 261)
_PRCTL = (157, 167)

_Instruction = tuple[int, int, int, int]


def alone_program(machine: str) -> bytes:
    """Return the filter, in which `OWN_PID` is to be replaced where it is loaded.

    Raises:
        KeyError: the machine is none of `ARCHITECTURES`.

    >>> struct.pack("=I", OWN_PID) in alone_program("x86_64")
    True
    """
    architecture = ARCHITECTURES[machine]
    column = architecture.column
    refused = [number for row in _REFUSED.values() if (number := row[column]) is not None]
    code = instructions(machine)
    code += refusing(refused, errno.EPERM)
    # All families: no namespace keeps this network away.
    code += refusing([architecture.socket], errno.EAFNOSUPPORT)
    code += _rule(architecture.clone, [(_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD)])
    for row in _ON_ITSELF.values():
        code += _rule(row[column], [(_JUMP_EQUAL, 1, 0, OWN_PID)])
    code += _rule(_PRLIMIT[column], [(_JUMP_EQUAL, 2, 0, 0), (_JUMP_EQUAL, 1, 0, OWN_PID)])
    code += refusing_values(_FCNTL[column], 1, _FCNTL_REFUSED)
    code += refusing_values(architecture.ioctl, 1, _IOCTL_REFUSED)
    # The kernel's promise that a call ends with what runs it is not the call's to take back.
    code += _rule(_PRCTL[column], [(_JUMP_EQUAL, 0, 1, _SET_DEATH_SIGNAL)])
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code)


def _rule(number: int, tests: list[_Instruction]) -> list[_Instruction]:
    """Return a test of the call `number`'s first argument; after `tests`, refuse, then allow."""
    answers = [(_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    body = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *tests, *answers]
    return [(_JUMP_EQUAL, 0, len(body), number), *body]
