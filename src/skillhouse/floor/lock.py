"""An advisory lock on an open file, waited for with a bound."""

from __future__ import annotations

import sys
import time

if sys.platform == "win32":  # pragma: no cover - Windows
    import msvcrt
    import os
else:
    import fcntl

LOCK_SECONDS = 10.0
"""Time before a waiter gives up: a stopped process must not hang others."""
LOCK_PAUSE_SECONDS = 0.001


def lock(handle: int, *, shared: bool = False) -> None:
    """Hold the lock of the open file, which ends with `unlock` or when it is closed.

    This blocks its thread: never call it on the thread of an event loop.

    Raises:
        TimeoutError: another process held it all the time.
        OSError: the file system has no locks.
    """
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return _try_lock(handle, shared=shared)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise TimeoutError("another process holds the lock") from None
        time.sleep(LOCK_PAUSE_SECONDS)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Take the lock of the open file unless another holder has it; return whether it is held.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        _try_lock(handle, shared=shared)
    except BlockingIOError:
        return False
    return True


if sys.platform == "win32":  # pragma: no cover - Windows
    # Locks of Windows keep others from reading, so the byte is one that no log reaches.
    _FAR = 1 << 62

    def _try_lock(handle: int, *, shared: bool) -> None:
        os.lseek(handle, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(str(error)) from error

    def unlock(handle: int) -> None:
        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:

    def _try_lock(handle: int, *, shared: bool) -> None:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
