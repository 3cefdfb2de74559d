"""The time that a skill's code has for a call; it does not pass while a person is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio


class CallClock:
    """The time limit of one call. All of its methods belong to one event loop."""

    def __init__(self, scope: anyio.CancelScope, outer: CallClock | None) -> None:
        self._scope = scope
        self._outer = outer
        self._stops = 0
        self._left = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the limit ended the call; known when its block has been left."""
        return self._scope.cancelled_caught

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let no time of this call pass, nor of one that it is part of; blocks may overlap."""
        if self._outer is not None:
            with self._outer.stopped(), self._stopped():
                yield
        else:
            with self._stopped():
                yield

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        if not self._stops:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf
        self._stops += 1
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self._scope.deadline = anyio.current_time() + self._left


_current: ContextVar[CallClock | None] = ContextVar("skillhouse call clock", default=None)


def current_clock() -> CallClock | None:
    return _current.get()


@contextmanager
def limited(seconds: float) -> Iterator[CallClock]:
    """Cancel the block after that time; it is the clock of the tasks that the block starts."""
    with anyio.move_on_after(seconds) as scope:
        with using(CallClock(scope, _current.get())) as clock:
            yield clock


@contextmanager
def using(clock: CallClock) -> Iterator[CallClock]:
    """Make it the clock of what runs in the block, for a request that arrives on another task."""
    token = _current.set(clock)
    try:
        yield clock
    finally:
        _current.reset(token)


@contextmanager
def clock_stopped() -> Iterator[None]:
    """Stop the time of the call of a skill that this runs for, if there is one."""
    clock = _current.get()
    if clock is None:
        yield
        return
    with clock.stopped():
        yield
