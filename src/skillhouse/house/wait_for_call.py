"""What a program waits for: that a `Skillhouse` is open, and that a call's question is answered."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from anyio import CancelScope

from skillhouse.floor.threads import in_thread

if TYPE_CHECKING:
    from skillhouse.approval import ApprovalBroker
    from skillhouse.tools import ToolResult
    from skillhouse.tools.call import T


class Closable(Protocol):
    """What `opened` opens: it may be bound to the event loop."""

    async def release_loop(self) -> None: ...
    def close(self) -> None: ...


H = TypeVar("H", bound=Closable)


@asynccontextmanager
async def opened(make: Callable[[], H]) -> AsyncIterator[H]:
    """Make it on another thread, and close it there at the end, also of a cancelled block."""
    house = await in_thread(make)
    try:
        yield house
    finally:
        with CancelScope(shield=True):
            await house.release_loop()
            await in_thread(house.close)


async def answered_call(
    approvals: ApprovalBroker,
    result: ToolResult[T],
    again: Callable[[], Awaitable[ToolResult[T]]],
    seconds: float,
) -> ToolResult[T]:
    """Return a result, and for one that is pending that of the call once it is answered.

    Where what a call depends on changed meanwhile, it has another question, which is waited for in
    what is left of the time. Without an answer the result is pending and its question stays open.
    """
    ends = time.monotonic() + seconds
    while result.status == "pending" and result.approval_id:
        left = ends - time.monotonic()
        if left <= 0 or not await approvals.answered(result.approval_id, wait_seconds=left):
            break
        result = await again()
    return result
