"""How many calls may stand before one cell: those beyond the bound are refused at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from skillhouse.cells.cell import CALLS_PER_CELL
from skillhouse.cells.rpc import UNAVAILABLE, RpcError

QUEUE_MAX = 500
"""Calls that may wait for their turn in one cell: one skill must not fill the core with calls."""


class CallQueue:
    """Counts the calls of each cell, from their coming to their end."""

    def __init__(self, *, most: int = QUEUE_MAX) -> None:
        """Let at most `most` calls wait beside those that a cell runs at one time."""
        self._most = most
        self._calls: Counter[Hashable] = Counter()

    @contextmanager
    def place(self, key: Hashable, skill: str) -> Iterator[None]:
        """Hold a place for one call.

        Raises:
            RpcError: UNAVAILABLE, as many calls wait as may.
        """
        if self._calls[key] >= CALLS_PER_CELL + self._most:
            message = (
                f"{self._most} calls of `{skill}` wait already: repeat it when some have ended"
            )
            raise RpcError(UNAVAILABLE, message, reason="too_many_calls")
        self._calls[key] += 1
        try:
            yield
        finally:
            self._calls[key] -= 1
            if not self._calls[key]:
                del self._calls[key]
