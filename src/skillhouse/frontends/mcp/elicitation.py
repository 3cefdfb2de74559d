"""Asks the user of an MCP client by elicitation, if the client supports it.

The operator decides whether such answers count (`approvals.elicitation`), and the broker what they
may decide: docs/decisions/0141-answers-of-mcp-clients.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import ValidationError

from skillhouse.approval import Answer, ApprovalBroker, ApprovalRequest, rows_of
from skillhouse.floor.paths import sendable
from skillhouse.presentation.question import (
    ANSWER_WORDS,
    ONLY_PLACE,
    PAGE_PLACE,
    answered_at,
    question_lines,
    question_of,
)

DECISION = "decision"
DENY, ALLOW = ANSWER_WORDS[Answer.NO], f"allow {ANSWER_WORDS[Answer.ONCE]}"
"""The values of the form's field. Denial comes first, since a client may preselect the first; there
is no standing approval here, which needs the answers of the page and the command line."""
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
"""Share of its wait for which a call waits after the page was opened. It then stays pending, since
the user may still be reading."""
UNANSWERED_MAX = 1_000

Elicitation = types.ElicitRequestFormParams | types.ElicitRequestURLParams
Send = Callable[[Elicitation], Awaitable[types.ElicitResult]]

logger = logging.getLogger(__name__)


class ElicitationClient(Struct, frozen=True, kw_only=True):
    """How the client of one request can ask its user."""

    form: bool = False
    url: bool = False
    """Whether it opens an address."""
    send: Send | None = None
    """Asks during the call; None since 2026-07-28, when the answer comes with a retry."""
    session_id: str = ""
    """The conversation; this client gets no question of another one."""


CURRENT_CLIENT: ContextVar[ElicitationClient] = ContextVar("mcp client")
"""The client of the current call; channels do not get it as an argument."""


def elicitation_client(context: ServerRequestContext[None], session_id: str) -> ElicitationClient:
    """Return how the client of a request can ask, by its declared capabilities."""
    session = context.session
    declared = session.client_capabilities
    support = declared.elicitation if declared is not None else None
    if support is None:
        return ElicitationClient()
    # Before there were modes, `{}` was a form (2025-06-18).
    form, url = support.form is not None or support.url is None, support.url is not None
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return ElicitationClient(form=form, url=url, session_id=session_id)

    async def send(wanted: Elicitation) -> types.ElicitResult:
        # Over HTTP the question belongs to the stream of its call.
        if isinstance(wanted, types.ElicitRequestURLParams):
            return await session.elicit_url(
                wanted.message, wanted.url, wanted.elicitation_id or "", context.request_id
            )
        return await session.elicit_form(
            wanted.message, wanted.requested_schema, context.request_id
        )

    return ElicitationClient(form=form, url=url, send=send, session_id=session_id)


def elicitation_for(
    request: ApprovalRequest, client: ElicitationClient, page: str
) -> Elicitation | None:
    """Return the elicitation for a question; None if the client cannot ask it.

    A question that only the page may decide is never asked with a form. `page` is the address of
    the page of approvals, without its key; empty if unknown.
    """
    question = question_of(request)
    rows = (row for line in question_lines(question) for row in rows_of(line))
    text = sendable("\n".join(rows))
    if client.form and not question.is_for_page:
        return types.ElicitRequestFormParams(message=text, requested_schema=SCHEMA)
    if client.url and page:
        place = ONLY_PLACE if question.is_for_page else PAGE_PLACE
        return types.ElicitRequestURLParams(
            message=f"{text}\n\nThis is decided on {place}.",
            url=answered_at(question, page),
            # A part of the protocol until 2025-11-25.
            elicitation_id=request.id if client.send is not None else None,
        )
    return None


def answer_of(result: types.ElicitResult) -> Answer | None:
    """Return the user's answer in the form; None if there is none.

    Unattended clients decline or cancel by themselves, so neither counts as
    the user's denial: nothing is done, and the question stays open for the page and the command
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
        self._approvals = approvals
        self._unanswered: deque[str] = deque(maxlen=UNANSWERED_MAX)

    def question(self, request: ApprovalRequest, client: ElicitationClient) -> Elicitation | None:
        """Return how to ask; None if the client cannot, or left the question unanswered before."""
        if request.id in self._unanswered:
            return None
        return elicitation_for(request, client, self._approvals.page)

    def mark_unanswered(self, request_id: str) -> None:
        self._unanswered.append(request_id)

    async def ask(self, request: ApprovalRequest) -> Answer | None:
        client = CURRENT_CLIENT.get(None)
        if client is None or client.send is None or client.session_id != request.session_id:
            # A task that outlives its call keeps that call's context variables.
            return None
        wanted = self.question(request, client)
        if wanted is None:
            return None
        try:
            result = await client.send(wanted)
        except (MCPError, ValidationError) as error:
            logger.info("the client did not ask its user: %s", error)
            self.mark_unanswered(request.id)
            return None
        if result.action != "accept":
            self.mark_unanswered(request.id)
        elif isinstance(wanted, types.ElicitRequestURLParams):
            wait = request.wait_seconds or self._approvals.settings.wait_seconds
            # An answer on the page ends this.
            await anyio.sleep(wait * PAGE_SHARE)
            return None
        return answer_of(result)


def elicitation_channel(approvals: ApprovalBroker) -> ElicitationChannel:
    """Return the broker's one channel of this kind, which is added if there is none."""
    for channel in approvals.channels:
        if isinstance(channel, ElicitationChannel):
            return channel
    made = ElicitationChannel(approvals)
    approvals.channels.append(made)
    return made
