"""Lets a request's call through the house, and asks its client's person where that is needed."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import mcp_types as types
from mcp.server.context import ServerRequestContext

from skillhouse.approval import Connections, new_connection
from skillhouse.floor import tracing
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.elicitation import (
    CURRENT_CLIENT,
    ElicitationClient,
    elicitation_channel,
    elicitation_client,
)
from skillhouse.frontends.mcp.input_required import DeniedError, InputRequiredFlow
from skillhouse.runtime import Skillhouse
from skillhouse.tools import ToolResult

Call = Callable[[dict[str, str]], Awaitable[ToolResult]]
"""Makes the call; gets agent, user, channel, the client and its connection, the request's ids and
the approval it may use."""


class ApprovalBridge:
    """One server's calls, with the questions that they raise."""

    def __init__(self, house: Skillhouse, who: dict[str, str], *, is_persons: bool) -> None:
        """Take who calls.

        Args:
            house: Makes the calls.
            who: Agent, user and channel.
            is_persons: Whether a client is known to be its person's own, so that what it brings is
                that person's word.
        """
        self._house = house
        self._who = who
        self._answers_count = is_persons and house.config.approvals.elicitation
        self._session = secrets.token_hex(8)
        self.flow = InputRequiredFlow(house, who)
        self.connections = ClientConnections(house.approvals.connections)

    async def call_with_approval(
        self,
        context: ServerRequestContext[None],
        params: types.InputResponseRequestParams,
        call: Call,
    ) -> ToolResult | types.InputRequiredResult:
        """Make a call, or return the question that its client is to ask first.

        Raises:
            MCPError: the retry brings a state that is not ours.
        """
        caller = {
            **self._who,
            **self.connections.caller(context),
            **ids_of(context, self._session),
        }
        client = (
            elicitation_client(context, caller["session_id"])
            if self._answers_count
            else ElicitationClient()
        )
        approval_id = ""
        if self._answers_count:
            try:
                approval_id = await in_thread(lambda: self.flow.answered(params, caller))
            except DeniedError as error:
                return ToolResult(content=f"not approved: refused; {error}", status="denied")
        if client.send is not None and (client.form or client.url):
            elicitation_channel(self._house.approvals)
        token = CURRENT_CLIENT.set(client)
        try:
            result = await call({**caller, "approval_id": approval_id})
        finally:
            CURRENT_CLIENT.reset(token)
        if result.status == "pending" and not approval_id:
            asked = await in_thread(lambda: self.flow.question(result.approval_id, client))
            return asked or result
        return result


ID_MAX = 128
"""Characters of an id that a client gave."""
SESSION_HEADER = "mcp-session-id"
"""Names the conversation over HTTP until 2025-11-25; later revisions have none."""
UNNAMED = "mcp"
"""Name of a client that gives none."""
SESSIONS_MAX = 10_000
"""Sessions over HTTP whose connections are known; the SDK opens no more."""


class ClientConnections:
    """The connections of one server's clients: its own over stdio, one a session over HTTP.

    Since 2026-07-28 HTTP has no sessions: clients of one name are one client there.
    """

    def __init__(self, connections: Connections) -> None:
        """Take where connections are held and end."""
        self._connections = connections
        self._own = new_connection()
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def caller(self, context: ServerRequestContext[None]) -> dict[str, str]:
        """Return the name that a request's client gives itself, and its connection."""
        session = _session_header(context)
        if session and session not in self._sessions:
            self._sessions[session] = new_connection()
            if len(self._sessions) > SESSIONS_MAX:
                self.end_session(next(iter(self._sessions)))
        params = context.session.client_params
        name = printable(params.client_info.name) if params is not None else ""
        return {
            "client": name or UNNAMED,
            "connection": self._sessions[session] if session else self._own,
        }

    def end_session(self, session: str) -> None:
        """Let the connection of a session over HTTP end, which is over."""
        connection = self._sessions.pop(session, "")
        self._connections.end(connection)

    def end(self) -> None:
        """Let every connection end."""
        while self._sessions:
            self.end_session(next(iter(self._sessions)))
        self._connections.end(self._own)


def _session_header(context: ServerRequestContext[None]) -> str:
    headers = getattr(context.request, "headers", None)
    return headers.get(SESSION_HEADER, "") if headers is not None else ""


def ids_of(context: ServerRequestContext[None], own_session: str) -> dict[str, str]:
    """Return session, message and trace of a request.

    Args:
        context: Whose request it is.
        own_session: The conversation where the transport names none: that of the process.
    """
    given = _session_header(context)
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
