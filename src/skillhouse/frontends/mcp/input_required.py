"""Questions that come back with a retry (protocol 2026-07-28), also to a later server.

A server may not send requests there. A call that needs a yes ends as `input_required` with the
question and a sealed state; the client asks its person and repeats the call with both.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from skillhouse.approval import Answer, ApprovalBroker, ApprovalError, canonical
from skillhouse.floor import DecodeError, StateError, shaped
from skillhouse.frontends.mcp.eliciting import Client, answer_of, channel_of
from skillhouse.frontends.mcp.state_key import KeptCodec
from skillhouse.runtime import Skillhouse

AUDIENCE = "skillhouse"
QUESTION = "approval"
"""What the one question of a round is called."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """What a client keeps between two rounds; it can neither read nor change it."""

    approval: str
    nonce: str
    """That of the question: an answer proves with it that this very one was shown."""
    content: str
    """Digest of the exact call."""


class DeniedError(Exception):
    """The person said no to a question that somebody else had said yes to."""


class InputRequiredFlow:
    """The questions of one server's calls, and the answers that come with retries."""

    def __init__(self, house: Skillhouse, who: dict[str, str]) -> None:
        """Take the house, and agent, user and channel of this server's calls."""
        self._house = house
        self._who = who
        self._codec = KeptCodec(house.config.state_directory)

    def boundary(self) -> RequestStateBoundary:
        """Return what seals each state that leaves, and opens and checks each that comes back.

        A state is bound to the method, the tool and its arguments, to agent and user, and to an
        end; another one ends the request with -32602 before anything of ours runs.
        """
        principal = canonical(self._who)

        def bound(_: ServerRequestContext[Any, Any]) -> str:
            return principal

        security = RequestStateSecurity(
            codec=self._codec,
            ttl=float(self._house.config.approvals.expires_seconds),
            bind_principal=bound,
            audience=AUDIENCE,
        )
        return RequestStateBoundary(security, default_audience=AUDIENCE)

    def question(self, approval_id: str | None, client: Client) -> types.InputRequiredResult | None:
        """Return the round that asks an open question; None when the client cannot be asked."""
        if approval_id is None or client.send is not None or not (client.form or client.url):
            return None
        approvals = self._house.approvals
        request = approvals.get(approval_id).request
        wanted = channel_of(approvals).question(request, client)
        if wanted is None:
            return None
        try:
            self._codec.prepare()
        except StateError as error:
            logger.warning("calls stay pending: %s", error)
            return None
        state = FlowState(
            approval=request.id, nonce=request.nonce, content=str(request.content_digest)
        )
        return types.InputRequiredResult(
            input_requests={QUESTION: types.ElicitRequest(params=wanted)},
            request_state=json.dumps(asdict(state)),
        )

    def answered(self, params: types.InputResponseRequestParams, caller: Mapping[str, str]) -> str:
        """Take the answer that a retry brings, and return the approval that its call is to use.

        Empty for a call that is no retry. An answer that does not count changes nothing: what
        becomes of the call is what the approval says.

        Args:
            params: Those of the request.
            caller: Has the client that calls and its connection.

        Raises:
            MCPError: the state is not of a question of this server.
            DeniedError: the person said no, after somebody else said yes.
        """
        if params.request_state is None:
            # Responses without our own state are to no question of ours.
            return ""
        approvals = self._house.approvals
        state = self._checked(params.request_state, approvals, caller)
        given = (params.input_responses or {}).get(QUESTION)
        answer = answer_of(given) if isinstance(given, types.ElicitResult) else None
        if answer is not None:
            self._take(approvals, state, answer)
        elif isinstance(given, types.ElicitResult) and given.action != "accept":
            channel_of(approvals).passed(state.approval)
        return state.approval

    def _take(self, approvals: ApprovalBroker, state: FlowState, answer: Answer) -> None:
        try:
            approvals.answer(
                state.approval,
                answer,
                by=self._who["user"],
                channel=self._who["channel"],
                nonce=state.nonce,
            )
        except ApprovalError as error:
            logger.info("an answer did not count: %s", error)
            if answer is Answer.NO:
                reason = f"a no to {state.approval} on {self._who['channel']}: {error}"
                self._house.services.enforcement.noted(
                    "late-no", user=self._who["user"], reason=reason
                )
                raise DeniedError(str(error)) from error

    def _checked(
        self, text: str, approvals: ApprovalBroker, caller: Mapping[str, str]
    ) -> FlowState:
        """Return the state, which the boundary has opened, if the question is this client's."""
        try:
            state = shaped(json.loads(text), FlowState)
            request = approvals.get(state.approval).request
        except (ValueError, DecodeError, ApprovalError) as error:
            raise _unknown() from error
        ours = {"agent": request.agent, "user": request.user, "channel": request.channel}
        if (request.id, request.content_digest) != (state.approval, state.content):
            raise _unknown()
        own = approvals.connections.own(request, caller["client"], caller["connection"])
        if ours != self._who or not own:
            raise _unknown()
        return state


def _unknown() -> MCPError:
    # The words of the boundary, so that a caller cannot tell one refusal from another.
    return MCPError(
        types.INVALID_PARAMS,
        "Invalid or expired requestState",
        {"reason": "invalid_request_state"},
    )
