"""Waits for the answer to the question of a call, and makes the call again."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.approval import ApprovalBroker
    from skillhouse.tools import ToolResult
    from skillhouse.tools.call import T


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
