"""The ids of a request, for the log and for what belongs to one conversation."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from mcp.server.context import ServerRequestContext

ID_MAX = 128
"""Characters of an id that a client gave."""
SESSION_HEADER = "mcp-session-id"
"""Names the conversation over HTTP until 2025-11-25; later revisions have none."""
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context, "traceparent Header Field Values"."""


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
        "trace": trace_of((context.meta or {}).get("traceparent")),
    }


def trace_of(parent: Any) -> str:
    """Return the trace that a request is a part of; empty when it names none.

    >>> trace_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    '0af7651916cd43dd8448eb211c80319c'
    """
    found = _TRACE_PARENT.fullmatch(parent) if isinstance(parent, str) else None
    return found[1] if found and found[1].strip("0") else ""


def printable(text: str) -> str:
    r"""Return an id as it can stand in a log.

    >>> printable("a\nb")
    'a?b'
    """
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:ID_MAX])
