"""Puts a directory in another's place at once, where the system can."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

_EXCHANGE = 2
_AT_FDCWD = -100
_UNKNOWN = (errno.ENOSYS, errno.EINVAL)


def exchange(first: Path, second: Path) -> bool:
    """Let two directories swap names in one step; False where the system cannot, or one is gone.

    At no moment is one of the two names missing.
    """
    call = _renameat2()
    if call is None:
        return False
    done = call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE)
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(first))


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return None
    call.restype = ctypes.c_int
    call.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    )
    found: Callable[..., int] = call
    return found
