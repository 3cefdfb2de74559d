"""The second system call filters, of code that shares its namespaces with what runs it.

Landlock keeps files, TCP, abstract sockets, signals and ptrace in one domain. These filters refuse
what it does not know: sockets of all families, limits and priorities of other processes, and what
changes a file's owner, mode, times or attributes, which needs no right that Landlock has.

`shared_program` is for a command, which starts other programs. `alone_program` is for the call of a
skill's tool: one process that makes no other one and touches no process but itself. The kernel
takes the stricter answer of one of them and `seccomp.program`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from skillhouse.sandbox.seccomp import (
    _ALLOWED,
    _ARGUMENTS,
    _DENIED,
    _JUMP_ANY_BIT,
    _JUMP_EQUAL,
    _LOAD,
    _argument,
    _assembled,
    _call,
    _columns,
    _Instruction,
    _Numbers,
    _numbers,
    _one_of,
    _refuse,
    _start,
)

_FILE_ATTRIBUTES: Mapping[str, _Numbers] = {
    # What changes files past Landlock, which knows no owners, modes, times and attributes: the
    # files of the user are the code's own otherwise.
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
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
_WATCHING: Mapping[str, _Numbers] = {
    # What shows the names of files that others open, wherever they are.
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
}
OWN_PID = 0x7FFFFFF1
"""Placeholder in the program for the id of the process that loads it; no process has it."""
_CLONE_THREAD = 0x00010000
_SET_DEATH_SIGNAL = 1
_REFUSED_ALONE: Mapping[str, _Numbers] = {
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
    # too many, no process of the same user hands any over.
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}
_ON_ITSELF: Mapping[str, _Numbers] = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
"""Their first argument has to be the caller's own number: `abort` and `raise` do that."""
_FCNTL_REFUSED = (8, 10, 15, 1024, 1026)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX, by which the kernel sends any signal to any process of the
user (Landlock keeps that off from Linux 6.12 on); F_SETLEASE and F_NOTIFY, which hold up others who
open a file."""
_IOCTL_REFUSED = (0x8901, 0x8902, 0x40086602, 0x401C5820, 0x40806685)
"""FIOSETOWN and SIOCSPGRP, likewise; FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR and FS_IOC_ENABLE_VERITY,
which change attributes of a file that is open for reading."""
_REFUSED_SHARED: Mapping[str, _Numbers] = {
    # What acts on other processes of the same user.
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
}
_BY_NUMBER: Mapping[str, _Numbers] = {
    # The number of a process is their first argument; 0 is the caller.
    "prlimit64": (302, 261),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
}
_OF_KIND: Mapping[str, tuple[int, int, int]] = {
    # name: (x86_64, aarch64, the kind of number that is one process); the number follows.
    "setpriority": (141, 140, 0),
    "ioprio_set": (251, 30, 1),
}
_UTIMENSAT = (280, 88)


def alone_program(machine: str) -> bytes:
    """Return the second filter, in which `OWN_PID` is to be replaced where it is loaded.

    >>> OWN_PID.to_bytes(4, "little") in alone_program("x86_64")
    True
    """
    column, number_of = _columns(machine)
    code = _start(machine)
    refused = {**_REFUSED_ALONE, **_FILE_ATTRIBUTES, **_WATCHING, "utimensat": _UTIMENSAT}
    code += _refuse(_numbers(refused, column), errno.EPERM)
    # All families: no namespace keeps this network away.
    code += _refuse([number_of["socket"]], errno.EAFNOSUPPORT)
    code += _first_argument(number_of["clone"], (_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD))
    for number in _numbers(_ON_ITSELF, column):
        code += _first_argument(number, (_JUMP_EQUAL, 1, 0, OWN_PID))
    own = ((_JUMP_EQUAL, 2, 0, 0), (_JUMP_EQUAL, 1, 0, OWN_PID))
    code += _first_argument(number_of["prlimit64"], *own)
    code += _call(number_of["fcntl"], _one_of(1, _FCNTL_REFUSED))
    code += _call(number_of["ioctl"], _one_of(1, _IOCTL_REFUSED))
    # The kernel's promise that a call ends with what runs it is not the call's to take back.
    code += _first_argument(number_of["prctl"], (_JUMP_EQUAL, 0, 1, _SET_DEATH_SIGNAL))
    return _assembled(code)


def shared_program(machine: str) -> bytes:
    """Return the filter for a machine of `seccomp.ARCHITECTURES`.

    >>> len(shared_program("x86_64")) % 8
    0
    """
    column, number_of = _columns(machine)
    code = _start(machine)
    refused = {**_REFUSED_SHARED, **_FILE_ATTRIBUTES, **_WATCHING}
    code += _refuse(_numbers(refused, column), errno.EPERM)
    code += _refuse([number_of["socket"]], errno.EAFNOSUPPORT)
    for number in _numbers(_BY_NUMBER, column):
        code += _first_argument(number, (_JUMP_EQUAL, 1, 0, 0))
    for row in _OF_KIND.values():
        code += _call(row[column], [*_equal(0, row[2]), *_equal(1, 0), _ALLOWED])
    # `touch` of an open file, to now; all else names times, or a file by its path.
    code += _call(_UTIMENSAT[column], [*_null(1), *_null(2), _ALLOWED])
    code += _call(number_of["fcntl"], _one_of(1, _FCNTL_REFUSED))
    code += _call(number_of["ioctl"], _one_of(1, _IOCTL_REFUSED))
    return _assembled(code)


def _equal(place: int, value: int) -> list[_Instruction]:
    """Return the refusal of a call unless an argument has a value."""
    return [_argument(place), (_JUMP_EQUAL, 1, 0, value), _DENIED]


def _null(place: int) -> list[_Instruction]:
    """Return the refusal of a call unless a pointer is NULL: both halves of it count."""
    high: _Instruction = (_LOAD, 0, 0, _ARGUMENTS + 8 * place + 4)
    return [*_equal(place, 0), high, (_JUMP_EQUAL, 1, 0, 0), _DENIED]


def _first_argument(number: int, *tests: _Instruction) -> list[_Instruction]:
    return _call(number, [_argument(0), *tests, _DENIED, _ALLOWED])
