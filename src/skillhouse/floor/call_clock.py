"""The time that a skill's code has for a call; it does not pass while a person is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType

import anyio

_current: ContextVar[CallClock | None] = ContextVar("skillhouse call clock", default=None)


class CallClock:
    """The time limit of one call: a block that is cancelled when its time is over.

    It is the clock of the tasks that the block starts. All of it belongs to one event loop.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._outer = _current.get()
        self._stops = 0
        self._left = 0.0

    def __enter__(self) -> CallClock:
        self._scope = anyio.move_on_after(self._seconds)
        self._scope.__enter__()
        self._token: Token[CallClock | None] = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        _current.reset(self._token)
        return self._scope.__exit__(kind, error, trace)

    @property
    def is_over(self) -> bool:
        """Whether the limit ended the call; known when its block has been left."""
        return self._scope.cancelled_caught

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let no time of this call pass, nor of one that it is part of; blocks may overlap."""
        if self._outer is None:
            with self._stopped():
                yield
        else:
            with self._outer.stopped(), self._stopped():
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


def current_clock() -> CallClock | None:
    return _current.get()


@contextmanager
def using(clock: CallClock) -> Iterator[None]:
    """Make it the clock of what runs in the block, for a request that arrives on another task."""
    token = _current.set(clock)
    try:
        yield
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
