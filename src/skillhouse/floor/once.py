"""A value that is made once per object, however many threads ask for it at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

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
