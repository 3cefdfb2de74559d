"""The system call filter: a classic BPF program, made by hand so that nothing must be installed.

Everything is allowed but what reaches past the namespaces or widens the kernel's attack surface.
The rules of the program are checked by the kernel when bubblewrap loads it; a wrong one ends the
run before it starts.

Where no namespace can be made, a second program is loaded too, of code that shares its namespaces.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping

# linux/bpf_common.h and linux/filter.h
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
# linux/seccomp.h
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
# struct seccomp_data: number, architecture, instruction pointer, six arguments of 64 bits.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000

_GROUP = 8
"""Rules that are passed over in one step."""
_SETID_BITS = 0o6000
_O_CREATES = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE."""
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET} of linux/sched.h."""
_FAMILIES = (2, 10)
"""AF_INET, AF_INET6. Not AF_UNIX: sockets in the workspace would be reachable, and
abstract ones where the network is the host's; socketpair needs no `socket`. Not AF_VSOCK: no
namespace holds it."""
_AF_UNIX, _AF_NETLINK, _NETLINK_ROUTE = 1, 16, 0
_PERSONALITIES = (0xFFFFFFFF, 0x0, 0x8, 0x20000, 0x20008)
"""Of a command: to ask; Linux, also of 32 bits, also with an old version's number. The others have
fixed addresses, a page at zero, or memory that runs because it can be read (personality(2))."""
_PERSONALITIES_OF_CODE = _PERSONALITIES[:2]
_PAIR_KINDS = (1, 5)
"""SOCK_STREAM and SOCK_SEQPACKET: the ends of such a pair stay connected to each other. Those of a
datagram pair can be turned to any name by `connect` or `sendto`."""
_SOCKET_KIND_BITS = 0xF
"""SOCK_TYPE_MASK of linux/net.h."""
_TERMINAL = (0x5412, 0x541C, 0x5423)
"""TIOCSTI and TIOCLINUX, which type into the terminal (CVE-2017-5226); TIOCSETD, for which the
kernel loads line disciplines, whose faults gave away hosts (CVE-2017-2636, CVE-2023-6546)."""

_Numbers = tuple[int | None, int | None]
"""Of one call on x86_64 and aarch64; None where the architecture has no such call."""
_REFUSED: Mapping[str, _Numbers] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "memfd_secret": (447, 447),
    "fanotify_init": (300, 262),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # They show without /proc what `mountinfo` would: where on the host each bind comes from.
    "statmount": (457, 457),
    "listmount": (458, 458),
    "lsm_set_self_attr": (460, 460),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "sysfs": (139, None),
}
_MAKES_NAMESPACES = ("unshare", "setns", "mount")
"""What a cell needs to give each of its calls process and mount namespaces of its own."""
_SHARED_OBJECTS: Mapping[str, _Numbers] = {
    # What these make outlives its maker, and would carry something from call to call.
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # And what others made is reached by its number alone.
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_unlink": (241, 181),
}
_ABSENT: Mapping[str, _Numbers] = {"clone3": (435, 435), "openat2": (437, 437)}
"""Answered with ENOSYS, so that libraries fall back to calls whose arguments can be looked at."""
_MODE_ARGUMENT: Mapping[str, tuple[int | None, int | None, int]] = {
    # name: (x86_64, aarch64, place of the mode)
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "mkdir": (83, None, 1),
    "mkdirat": (258, 34, 2),
    "mknod": (133, None, 1),
    "mknodat": (259, 33, 2),
    "creat": (85, None, 1),
}
_OPEN_ARGUMENTS: Mapping[str, tuple[int | None, int | None, int]] = {
    "open": (2, None, 1),
    "openat": (257, 56, 2),
}
"""name: (x86_64, aarch64, place of the flags); the mode follows the flags."""
_EXAMINED: Mapping[str, tuple[int, int]] = {
    # Calls of which some arguments are refused.
    "clone": (56, 220),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "prlimit64": (302, 261),
    "prctl": (157, 167),
    "personality": (135, 92),
}
ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The AUDIT_ARCH of each machine, in the order of the tables' columns, by `platform.machine()`; on
another machine there is no sandbox."""

_Instruction = tuple[int, int, int, int]
_ALLOWED: _Instruction = (_RETURN, 0, 0, _ALLOW)
_DENIED: _Instruction = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
_NO_FAMILY: _Instruction = (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT)


def program(
    machine: str,
    *,
    unix_sockets: bool = False,
    namespaces: bool = False,
    shared_objects: bool = True,
    is_cell: bool = False,
) -> bytes:
    """Return the filter for a machine of `ARCHITECTURES`, as an array of struct sock_filter.

    Args:
        unix_sockets: Allow AF_UNIX too, for the bridge to a proxy; what it starts gets the other
            filter as well, and the kernel then takes the stricter answer.
        namespaces: Allow what makes namespaces and mounts, for a cell that forks; each of its
            calls gets the other filter as well.
        shared_objects: Allow System V IPC and message queues; not for what shares an IPC
            namespace with others.
        is_cell: For code of skills: refuse netlink, of which a command gets the part that names
            network interfaces, and personalities that programs of other systems need.

    >>> len(program("x86_64")) % 8
    0
    """
    column, number_of = _columns(machine)
    families = (*_FAMILIES, _AF_UNIX) if unix_sockets else _FAMILIES
    code = _start(machine)
    refused = dict(_REFUSED if shared_objects else {**_REFUSED, **_SHARED_OBJECTS})
    for name in _MAKES_NAMESPACES if namespaces else ():
        del refused[name]
    code += _refuse(_numbers(refused, column), errno.EPERM)
    code += _refuse(_numbers(_ABSENT, column), errno.ENOSYS)
    code += _call(number_of["clone"], _any_bit(0, _NEW_NAMESPACES))
    netlink = [] if is_cell else _only_routes()
    code += _call(number_of["socket"], [_argument(0), *netlink, *_other_than(families, _NO_FAMILY)])
    allowed = _PERSONALITIES_OF_CODE if is_cell else _PERSONALITIES
    code += _call(number_of["personality"], [_argument(0), *_other_than(allowed, _DENIED)])
    code += _call(number_of["socketpair"], _pair())
    code += _call(number_of["ioctl"], _one_of(1, _TERMINAL))
    for row in _MODE_ARGUMENT.values():
        if (number := row[column]) is not None:
            code += _call(number, _any_bit(row[2], _SETID_BITS))
    for row in _OPEN_ARGUMENTS.values():
        if (number := row[column]) is not None:
            code += _call(number, _creates_setid(row[2]))
    return _assembled(code)


def _columns(machine: str) -> tuple[int, Mapping[str, int]]:
    column = {name: place for place, name in enumerate(ARCHITECTURES)}[machine]
    return column, {name: row[column] for name, row in _EXAMINED.items()}


def _assembled(code: list[_Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *line) for line in (*code, _ALLOWED))


def _start(machine: str) -> list[_Instruction]:
    """Return how every filter begins: calls of other machines end the process."""
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        # x32 shares the architecture's mark and would pass every comparison below.
        code += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    return code


def _numbers(table: Mapping[str, _Numbers], column: int) -> list[int]:
    return [number for row in table.values() if (number := row[column]) is not None]


def _refuse(numbers: Iterable[int], code: int) -> list[_Instruction]:
    """Return instructions that answer each call of `numbers` with the error `code`.

    The kernel tries a filter with every call's number when it is loaded, so groups of rules are
    passed over in one step: a cell loads one for each call, and this takes 0.1 ms off it.
    """
    lines: list[_Instruction] = []
    ordered = sorted(numbers)
    for start in range(0, len(ordered), _GROUP):
        group = ordered[start : start + _GROUP]
        lines.append((_JUMP_AT_LEAST, 2 * len(group), 0, group[-1] + 1))
        for number in group:
            lines += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | code)]
    return lines


def _call(number: int, body: list[_Instruction]) -> list[_Instruction]:
    """Return `body` for one call; it ends in an answer, so no other rule about it follows."""
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _argument(place: int) -> _Instruction:
    # The low half is enough: the kernel takes these arguments as 32 bits. Little-endian.
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * place)


def _any_bit(place: int, bits: int) -> list[_Instruction]:
    return [_argument(place), (_JUMP_ANY_BIT, 0, 1, bits), _DENIED, _ALLOWED]


def _one_of(place: int, values: tuple[int, ...]) -> list[_Instruction]:
    tests = [
        (_JUMP_EQUAL, len(values) - number - 1, 0 if number < len(values) - 1 else 1, value)
        for number, value in enumerate(values)
    ]
    return [_argument(place), *tests, _DENIED, _ALLOWED]


def _other_than(values: tuple[int, ...], refusal: _Instruction) -> list[_Instruction]:
    """Return the refusal of a call unless the argument that was loaded is one of some values."""
    tests = [(_JUMP_EQUAL, len(values) - number, 0, value) for number, value in enumerate(values)]
    return [*tests, refusal, _ALLOWED]


def _only_routes() -> list[_Instruction]:
    """Return the answer where the argument that was loaded is netlink's family; else go on."""
    protocol = [_argument(2), (_JUMP_EQUAL, 1, 0, _NETLINK_ROUTE), _NO_FAMILY, _ALLOWED]
    return [(_JUMP_EQUAL, 0, len(protocol), _AF_NETLINK), *protocol]


def _pair() -> list[_Instruction]:
    return [
        _argument(0),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        _NO_FAMILY,
        _argument(1),
        (_AND, 0, 0, _SOCKET_KIND_BITS),
        *(line for kind in _PAIR_KINDS for line in ((_JUMP_EQUAL, 0, 1, kind), _ALLOWED)),
        _DENIED,
    ]


def _creates_setid(place: int) -> list[_Instruction]:
    """Return the test of an `open` that makes a file; otherwise its mode means nothing."""
    return [
        _argument(place),
        (_JUMP_ANY_BIT, 0, 3, _O_CREATES),
        _argument(place + 1),
        (_JUMP_ANY_BIT, 0, 1, _SETID_BITS),
        _DENIED,
        _ALLOWED,
    ]


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
