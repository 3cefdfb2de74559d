"""The limits of a cell, the tokens by which its calls request anything, and how many may wait."""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import anyio

from skillhouse.extensions.cells.rpc import STALE_CAPABILITY, NotBegunError
from skillhouse.floor.call_clock import CallClock, current_clock, using
from skillhouse.sandbox import Limits
from skillhouse.sandbox.code_call import (
    RESOURCE_LIMIT,
    UNAVAILABLE,
    HostCalls,
    OutputPart,
    RpcError,
)
from skillhouse.sandbox.profile import MIB

CELL_OUTPUT_BYTES = 262_144
"""Output of a cell with all its calls, which ends at it."""
CELL_LIMITS = Limits(
    memory_bytes=512 * MIB,
    processes=96,
    output_bytes=CELL_OUTPUT_BYTES,
    file_bytes=512 * MIB,
    tmp_bytes=512 * MIB,
    ends_at_output=True,
)
"""Of a cell with all its calls; the memory is the design's `mem_limit: 512m` (S002-90)."""
CALLS_PER_CELL = 8
"""Concurrent calls of one cell; more of them wait."""
TAIL_BYTES = 8_192
"""How much of a call's output is kept, from its end."""

ASKED_MOST = 10_000
"""Requests of one call from another process, as messages of one in a cell here."""
EXECUTE = "tool.execute"


class NoHost:
    """The host of code that is only loaded or probed: it refuses every request."""

    network = None

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise _no_call()

    sign = fetch

    async def read_file(self, path: str) -> str:
        raise _no_call()

    def log(self, text: str) -> None:
        """Drop the line."""

    def output(self, part: OutputPart) -> None:
        """Drop it."""

    def progress(self, fraction: float, text: str) -> None:
        """Drop the report."""


def _no_call() -> RpcError:
    return RpcError(UNAVAILABLE, "expected a call of a tool for this")


class Capabilities:
    """The tokens of running calls; requests with any other token are refused."""

    def __init__(self) -> None:
        self._tokens: dict[str, HostCalls] = {}
        self._clocks: dict[str, CallClock | None] = {}
        self._asked: dict[str, set[anyio.CancelScope]] = {}
        self._counts: dict[str, int] = {}

    @contextlib.contextmanager
    def of(self, host: HostCalls) -> Iterator[str]:
        """Yield the token of one call, valid until the call has ended."""
        token = secrets.token_hex(16)
        self._tokens[token] = host
        self._clocks[token] = current_clock()
        self._counts[token] = 0
        try:
            yield token
        finally:
            del self._tokens[token], self._clocks[token], self._counts[token]
            for scope in self._asked.pop(token, ()):
                scope.cancel()

    @contextlib.contextmanager
    def asking(self, token: object) -> Iterator[HostCalls]:
        """Yield what the token's call may request, and cancel the request when that call ends.

        A request from another process could otherwise take effect, or wait for a person, after
        its call has ended: then it is STALE_CAPABILITY.
        """
        host = self.host(token)
        self._counts[str(token)] += 1
        if self._counts[str(token)] > ASKED_MOST:
            raise RpcError(RESOURCE_LIMIT, f"expected at most {ASKED_MOST} requests of one call")
        scope = anyio.CancelScope()
        held = self._asked.setdefault(str(token), set())
        held.add(scope)
        try:
            clock = self._clocks[str(token)]
            with scope, using(clock) if clock else contextlib.nullcontext():
                yield host
                return
        finally:
            held.discard(scope)
        raise _stale()

    def host(self, token: object, *, expected: str | None = None) -> HostCalls:
        """Return what the token's call may request; "stale" for another or an ended one.

        Args:
            expected: The token of the requesting call, where its channel identifies it.
        """
        host_calls = self._tokens.get(token) if isinstance(token, str) else None
        mine = expected is None or hmac.compare_digest(str(token).encode(), expected.encode())
        if host_calls is None or not mine:
            raise _stale()
        return host_calls


def _stale() -> RpcError:
    message = "the capability is not of this call, or its call has ended"
    return RpcError(STALE_CAPABILITY, message, reason="stale_capability")


def timeout_text(seconds: float) -> str:
    """Return the published message for a call that took too long (S002-75).

    >>> timeout_text(30.0)
    'Skill execution timeout (30000ms)'
    """
    return f"Skill execution timeout ({round(seconds * 1_000)}ms)"


QUEUE_MAX = 500
"""Calls that may wait for one cell, so that one skill cannot fill the core with calls."""


class CallQueue:
    """Bounds the waiting and running calls of each cell."""

    def __init__(self, *, most: int = QUEUE_MAX) -> None:
        self._most = most
        self._calls: Counter[Hashable] = Counter()

    @contextlib.contextmanager
    def place(self, key: Hashable, skill: str) -> Iterator[None]:
        """Hold a place for one call; UNAVAILABLE when the queue is full."""
        if self._calls[key] >= CALLS_PER_CELL + self._most:
            message = (
                f"{self._most} calls of `{skill}` wait already: repeat it when some have ended"
            )
            raise NotBegunError(UNAVAILABLE, message, reason="too_many_calls")
        self._calls[key] += 1
        try:
            yield
        finally:
            self._calls[key] -= 1
            if not self._calls[key]:
                del self._calls[key]
