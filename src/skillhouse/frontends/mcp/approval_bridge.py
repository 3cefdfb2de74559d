"""Makes a request's call with its caller's ids, and has its client ask for approval if needed."""

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
from skillhouse.runtime import Caller, Skillhouse
from skillhouse.tools import ToolResult

Call = Callable[[Caller, str], Awaitable[ToolResult]]
"""Makes the call; gets the caller and the id of the approval that it may use."""


class ApprovalBridge:
    """One server's calls, with the questions that they raise."""

    def __init__(self, house: Skillhouse, who: dict[str, str], *, is_persons: bool) -> None:
        """Store the dependencies.

        Args:
            house: Makes the calls.
            who: Agent, user and channel.
            is_persons: Whether the client is known to belong to the user, so that answers it sends
                are the user's.
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
        """Make a call, or return the question that its client must ask first.

        Raises:
            MCPError: the retry has a state that is not ours.
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
            result = await call(Caller(**caller), approval_id)
        finally:
            CURRENT_CLIENT.reset(token)
        if result.status == "pending" and not approval_id:
            asked = await in_thread(lambda: self.flow.question(result.approval_id, client))
            return asked or result
        return result


ID_MAX = 128
"""Characters of an id from a client."""
SESSION_HEADER = "mcp-session-id"
"""Has the conversation's id over HTTP until 2025-11-25; later revisions have none."""
UNNAMED = "mcp"
"""Name of a client without one."""
SESSIONS_MAX = 10_000
"""Sessions over HTTP with a connection; the SDK opens no more."""


class ClientConnections:
    """The connections of one server's clients: one over stdio, one per session over HTTP.

    Since 2026-07-28 HTTP has no sessions: clients with the same name are one client there.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._own = new_connection()
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def caller(self, context: ServerRequestContext[None]) -> dict[str, str]:
        """Return the name of a request's client, as it gives it, and its connection."""
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
        connection = self._sessions.pop(session, "")
        self._connections.end(connection)

    def end(self) -> None:
        while self._sessions:
            self.end_session(next(iter(self._sessions)))
        self._connections.end(self._own)


def _session_header(context: ServerRequestContext[None]) -> str:
    headers = getattr(context.request, "headers", None)
    return headers.get(SESSION_HEADER, "") if headers is not None else ""


def ids_of(context: ServerRequestContext[None], own_session: str) -> dict[str, str]:
    """Return session, message and trace of a request; `own_session` if the transport has none."""
    given = _session_header(context)
    # A session's id gives access to the session, so the log gets a digest that identifies it.
    session = hashlib.sha256(given.encode()).hexdigest()[:16] if given else own_session
    request_id = "" if context.request_id is None else str(context.request_id)
    return {
        "session_id": session,
        "message_id": printable(request_id),
        "trace": trace_of(context),
    }


def trace_of(context: ServerRequestContext[None]) -> str:
    """Return the trace of a request, from its `_meta` or else its HTTP header."""
    traceparent = (context.meta or {}).get("traceparent")
    headers = getattr(context.request, "headers", None)
    if traceparent is None and headers is not None:
        traceparent = headers.get("traceparent")
    if isinstance(traceparent, str) and tracing.is_traceparent(traceparent):
        return traceparent
    return ""


def printable(text: str) -> str:
    r"""Return an id as it can be logged.

    >>> printable("a\nb")
    'a?b'
    """
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:ID_MAX])
