"""The ids of a request, for the log and for what belongs to one conversation."""

from __future__ import annotations

import hashlib

from mcp.server.context import ServerRequestContext

from skillhouse.floor import tracing

ID_MAX = 128
"""Characters of an id that a client gave."""
SESSION_HEADER = "mcp-session-id"
"""Names the conversation over HTTP until 2025-11-25; later revisions have none."""


def ids_of(context: ServerRequestContext[None], own_session: str) -> dict[str, str]:
    """Return session, message and trace of a request.

    Args:
        context: Whose request it is.
        own_session: The conversation where the transport names none: that of the process.
    """
    headers = getattr(context.request, "headers", None)
    given = headers.get(SESSION_HEADER, "") if headers is not None else ""
    # A session's id opens the session, so the log gets what only tells it from others.
    session = hashlib.sha256(given.encode()).hexdigest()[:16] if given else own_session
    request_id = "" if context.request_id is None else str(context.request_id)
    return {
        "session_id": session,
        "message_id": printable(request_id),
        "trace": trace_of(context),
    }


def trace_of(context: ServerRequestContext[None]) -> str:
    """Return the trace that a request is a part of: its `_meta` says so, or its HTTP header."""
    told = (context.meta or {}).get("traceparent")
    headers = getattr(context.request, "headers", None)
    if told is None and headers is not None:
        told = headers.get("traceparent")
    return told if isinstance(told, str) and tracing.is_traceparent(told) else ""


def printable(text: str) -> str:
    r"""Return an id as it can stand in a log.

    >>> printable("a\nb")
    'a?b'
    """
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:ID_MAX])
