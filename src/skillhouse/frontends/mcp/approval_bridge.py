"""Lets a request's call through the house, and asks its client's person where that is needed."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import mcp_types as types
from mcp.server.context import ServerRequestContext

from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.eliciting import CLIENT, Client, channel_of, client_of
from skillhouse.frontends.mcp.input_required import DeniedError, InputRequiredFlow
from skillhouse.frontends.mcp.request_ids import ClientConnections, ids_of
from skillhouse.runtime import Caller, Skillhouse
from skillhouse.tools import ToolResult

Call = Callable[[Caller, str], Awaitable[ToolResult]]
"""Makes the call; gets the caller and the id of the approval that it may use."""


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
        self.rounds = InputRequiredFlow(house, who)
        self.connections = ClientConnections(house.approvals.connections)

    async def through(
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
        client = client_of(context, caller["session_id"]) if self._answers_count else Client()
        approval_id = ""
        if self._answers_count:
            try:
                approval_id = await in_thread(lambda: self.rounds.answered(params, caller))
            except DeniedError as error:
                return ToolResult(content=f"not approved: refused; {error}", status="denied")
        if client.send is not None and (client.form or client.url):
            channel_of(self._house.approvals)
        token = CLIENT.set(client)
        try:
            result = await call(Caller(**caller), approval_id)
        finally:
            CLIENT.reset(token)
        if result.status == "pending" and not approval_id:
            asked = await in_thread(lambda: self.rounds.question(result.approval_id, client))
            return asked or result
        return result
