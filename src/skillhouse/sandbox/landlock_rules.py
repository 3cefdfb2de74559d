"""What the scripts that confine their own process share: Landlock, filters and capabilities.

Loaded by path where a script runs by `python -I -S`, so with the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # The same on all architectures.
RULE_PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = 1, 2, 4, 8, 16, 32
MAKE_DIR, MAKE_REGULAR, MAKE_FIFO, MAKE_LINK, REFER, TRUNCATE = 128, 256, 1024, 4096, 8192, 16384
ALL_TCP, ALL_SCOPES = 3, 3
"""TCP, to bind and to connect; abstract sockets and signals. All are denied without a rule."""
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
READ = EXECUTE | READ_FILE | READ_DIR

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 15, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL, SECCOMP_MODE_FILTER, CAPABILITY_VERSION = 4, 2, 0x20080522
LAST_CAPABILITY = 63
NAME = b"skillhouse-run"
"""Of a process that confined itself: an emergency stop finds it by that (launcher.py)."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def abi() -> int:
    """Return the kernel's version of Landlock, 0 for none."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, 0, 1)))


def made_ruleset(files: int, tcp: int, scopes: int, *, size: int = 24) -> int:
    """Return a ruleset that handles these rights; `size` is what the kernel's version knows."""
    attributes = struct.pack("QQQ", files, tcp, scopes)
    return checked(libc.syscall(CREATE_RULESET, attributes, size, 0), "landlock")


def allow_beneath(ruleset: int, place: int, rights: int) -> None:
    rule = struct.pack("=Qi", rights, place)
    checked(libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0), "landlock")


def enforce(ruleset: int) -> None:
    checked(libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def load_filter(data: bytes) -> None:
    buffer = ctypes.create_string_buffer(data, len(data))
    program = struct.pack("HxxxxxxQ", len(data) // 8, ctypes.addressof(buffer))
    checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")


def drop_capabilities() -> None:
    for number in range(LAST_CAPABILITY + 1):
        # Fails for those that the kernel does not have, and where we had none to begin with.
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    checked(libc.capset(header, bytes(24)), "capset")
