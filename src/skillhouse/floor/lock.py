"""Locks: an advisory one on an open file, and one for each value that is made once.

`once` makes a value of an object, `Lazy` one that several objects share.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

if sys.platform == "win32":  # pragma: no cover - Windows
    import msvcrt
else:
    import fcntl

LOCK_SECONDS = 10.0
"""Time before a waiter gives up: a stopped process must not hang others."""
LOCK_PAUSE_SECONDS = 0.001


def lock(handle: int, *, shared: bool = False) -> None:
    """Hold the lock of the open file, which ends with `unlock` or when it is closed.

    This blocks its thread, for `LOCK_SECONDS` until `TimeoutError`: never call it on the thread
    of an event loop.
    """
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return _try_lock(handle, shared=shared)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise TimeoutError("another process holds the lock") from None
        time.sleep(LOCK_PAUSE_SECONDS)


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made where there is none and is no link, as `lock` does."""
    safe = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | safe, 0o600)
    try:
        lock(handle)
        yield
    finally:
        os.close(handle)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Take the lock of the open file unless another holder has it; return whether it is held."""
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


T = TypeVar("T")

_LOCKS = "_locks_of_once"


class once(Generic[T]):  # noqa: N801 - a decorator, as `property` is.
    """Do as `functools.cached_property`, which makes a value twice when two threads ask at once.

    Each value has a lock of its own, so that making one may ask for others of the same object.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__
        self._name = make.__name__

    @overload
    def __get__(self, owner: None, kind: type) -> once[T]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> T: ...

    def __get__(self, owner: object | None, kind: type) -> once[T] | T:
        if owner is None:
            return self
        # The value itself is found before this is, as there is no `__set__`.
        values = owner.__dict__
        locks: dict[str, threading.RLock] = values.setdefault(_LOCKS, {})
        with locks.setdefault(self._name, threading.RLock()):
            if self._name not in values:
                values[self._name] = self._make(owner)
            value: T = values[self._name]
            return value


class Lazy(Generic[T]):
    """One value, made once however many threads ask for it.

    What two compositions share is one `Lazy`: the later one has the value whether it was made
    before the reload or is made after it.

    >>> part = Lazy(lambda: "made now")
    >>> part.made, part.get(), part.made
    (False, 'made now', True)
    """

    __slots__ = ("_lock", "_make", "_value", "made")

    _value: T

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        # Reentrant, so that a part that asks for itself fails by recursion and does not hang.
        self._lock = threading.RLock()
        self.made = False

    def get(self) -> T:
        """Return the value; what making it raises is raised, and the next call tries again."""
        if not self.made:
            with self._lock:
                if self._make is not None:
                    self.put(self._make())
        return self._value

    def put(self, value: T) -> None:
        """Use this value instead of making one."""
        self._value = value
        self.made = True
        # What makes it may hold much that is needed no more.
        self._make = None
