"""The second system call filter of commands that share namespaces with the host (landlock level).

Landlock keeps files, TCP, abstract sockets, signals and ptrace in the run's domain. This filter
refuses what it does not know: sockets of all families, System V IPC, limits and priorities of other
processes, and what changes a file's owner, mode, times or attributes, which needs no right that
Landlock has. The kernel takes the stricter answer of this and `seccomp.program`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from skillhouse.sandbox.seccomp import (
    _ALLOWED,
    _ARGUMENTS,
    _DENIED,
    _FCNTL_REFUSED,
    _IOCTL_REFUSED,
    _JUMP_EQUAL,
    _LOAD,
    _argument,
    _assembled,
    _call,
    _columns,
    _first_argument,
    _Instruction,
    _Numbers,
    _numbers,
    _one_of,
    _refuse,
    _start,
)

_REFUSED: Mapping[str, _Numbers] = {
    # System V IPC and message queues of the host: by number, without any file.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # What acts on other processes of the same user.
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    # What shows the names of files that others open, wherever they are.
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    # What changes files past Landlock.
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
_ON_ITSELF: Mapping[str, _Numbers] = {
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


def shared_program(machine: str) -> bytes:
    """Return the filter for a machine of `seccomp.ARCHITECTURES`.

    >>> len(shared_program("x86_64")) % 8
    0
    """
    column, number_of = _columns(machine)
    code = _start(machine)
    code += _refuse(_numbers(_REFUSED, column), errno.EPERM)
    code += _refuse([number_of["socket"]], errno.EAFNOSUPPORT)
    for number in _numbers(_ON_ITSELF, column):
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
