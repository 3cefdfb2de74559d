"""Asks the person at an MCP client, by elicitation, as far as the client can.

Whether such an answer counts is the operator's word (`approvals.elicitation`), and what it may
decide is the broker's: docs/decisions/0141-answers-of-mcp-clients.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from skillhouse.approval import Answer, ApprovalBroker, ApprovalRequest
from skillhouse.frontends.mcp.listing import sendable
from skillhouse.frontends.presentation.text import question_lines

DECISION = "decision"
"""The one field of the form."""
DENY, ALLOW = "deny", "allow once"
"""Its values. A no stands first, since a client may choose what comes first; there is no lasting
yes here, which needs the whole list of answers that the page and the command line show."""
SCHEMA = {
    "type": "object",
    "properties": {
        DECISION: {
            "type": "string",
            "title": "Decision",
            "description": "about this very call, once",
            "enum": [DENY, ALLOW],
        }
    },
    "required": [DECISION],
}
PAGE_SHARE = 0.9
"""Part of its wait in which a call waits for the page that was opened. It then stays pending: the
person may still be reading."""
PASSED_MAX = 1_000
"""Questions that are remembered as passed over."""

Elicitation = types.ElicitRequestFormParams | types.ElicitRequestURLParams
Send = Callable[[Elicitation], Awaitable[types.ElicitResult]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client of one request, as far as its person can be asked."""

    form: bool = False
    """Whether it shows a form."""
    url: bool = False
    """Whether it opens an address."""
    send: Send | None = None
    """Asks during the call; None since 2026-07-28, where the answer comes with a retry."""
    session_id: str = ""
    """The conversation; a question of another one is not for this client."""


CLIENT: ContextVar[Client] = ContextVar("mcp client")
"""The client whose call is under way; a channel of a house does not learn it otherwise."""


def client_of(context: ServerRequestContext[None], session_id: str) -> Client:
    """Return how the client of a request can be asked, by the capabilities that it declared."""
    session = context.session
    declared = session.client_capabilities
    found = declared.elicitation if declared is not None else None
    if found is None:
        return Client()
    # Before there were modes, `{}` was a form (2025-06-18).
    form, url = found.form is not None or found.url is None, found.url is not None
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return Client(form=form, url=url, session_id=session_id)

    async def send(wanted: Elicitation) -> types.ElicitResult:
        # Over HTTP the question belongs to the stream of its call.
        if isinstance(wanted, types.ElicitRequestURLParams):
            return await session.elicit_url(
                wanted.message, wanted.url, wanted.elicitation_id or "", context.request_id
            )
        return await session.elicit_form(
            wanted.message, wanted.requested_schema, context.request_id
        )

    return Client(form=form, url=url, send=send, session_id=session_id)


def elicitation(request: ApprovalRequest, client: Client, page: str) -> Elicitation | None:
    """Return how a client is to ask a question; None when it cannot.

    Args:
        request: The question. What only the page decides is never asked with a form.
        client: Who is to ask.
        page: Address of the page where questions are decided; empty where none is known. It opens
            with the person's own key, which is not in the address.
    """
    text = sendable("\n".join(question_lines(request)))
    if client.form and not request.out_of_band_only:
        return types.ElicitRequestFormParams(message=text, requested_schema=SCHEMA)
    if client.url and page:
        return types.ElicitRequestURLParams(
            message=f"{text}\n\nThis is decided on the skillhouse page.",
            url=f"{page}/approvals/{request.id}",
            # A part of the protocol until 2025-11-25.
            elicitation_id=request.id if client.send is not None else None,
        )
    return None


def answer_of(result: types.ElicitResult) -> Answer | None:
    """Return what a person said with the form; None when nobody said anything.

    A client that nobody watches declines or cancels by itself (ecosystem.md, fact 5), so neither
    is a person's no: nothing is done, and the question stays open for the page and the command
    line.
    """
    if result.action != "accept":
        return None
    if result.content == {DECISION: ALLOW}:
        return Answer.ONCE
    return Answer.NO if result.content == {DECISION: DENY} else None


class ElicitationChannel:
    """Asks at the client of the call, while the call waits."""

    def __init__(self, approvals: ApprovalBroker) -> None:
        """Take the broker whose channel this is."""
        self._approvals = approvals
        self._passed: deque[str] = deque(maxlen=PASSED_MAX)

    def question(self, request: ApprovalRequest, client: Client) -> Elicitation | None:
        """Return how to ask a question that this client's person has not passed over before."""
        if request.id in self._passed:
            return None
        return elicitation(request, client, self._approvals.page)

    def passed(self, request_id: str) -> None:
        """Note that nobody answered there: the same question is not shown again."""
        self._passed.append(request_id)

    async def ask(self, request: ApprovalRequest) -> Answer | None:
        """Ask, where the client of this call can be asked."""
        client = CLIENT.get(None)
        if client is None or client.send is None or client.session_id != request.session_id:
            # A task that outlives a call keeps what that call was made with.
            return None
        wanted = self.question(request, client)
        if wanted is None:
            return None
        try:
            result = await client.send(wanted)
        except (MCPError, ValidationError) as error:
            logger.info("the client did not ask its user: %s", error)
            self.passed(request.id)
            return None
        if result.action != "accept":
            self.passed(request.id)
        elif isinstance(wanted, types.ElicitRequestURLParams):
            wait = request.wait_seconds or self._approvals.settings.wait_seconds
            # An answer on the page ends this.
            await anyio.sleep(wait * PAGE_SHARE)
            return None
        return answer_of(result)


def channel_of(approvals: ApprovalBroker) -> ElicitationChannel:
    """Return the house's one channel of this kind, which is among its channels from now on."""
    for channel in approvals.channels:
        if isinstance(channel, ElicitationChannel):
            return channel
    made = ElicitationChannel(approvals)
    approvals.channels.append(made)
    return made
