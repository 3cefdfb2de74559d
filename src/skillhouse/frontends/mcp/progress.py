"""Tells a client how far its call is, where it asked for that."""

from __future__ import annotations

from mcp.server.context import ServerRequestContext
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params

from skillhouse.frontends.mcp.listing import sendable
from skillhouse.tools import Progress, ProgressHandler


def listener_of(context: ServerRequestContext[None]) -> ProgressHandler | None:
    """Return what sends `notifications/progress`; None where the request has no token.

    The gate sees to it that each word is more than the last, and that they are not too many.
    """
    if progress_token_from_params(context.params) is None:
        return None
    session = context.session

    async def told(now: Progress) -> None:
        message = sendable(now.message) or None
        await session.report_progress(now.progress, now.total, message)

    return told
