"""A part that is made when it is first needed, and can be asked whether it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
