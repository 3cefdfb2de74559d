"""Whose answer counts, and where."""

from __future__ import annotations

from skillhouse.approval.grants import OWNER
from skillhouse.approval.request import LASTING, NOBODY, Answer, ApprovalRequest, Reply

OWNER_CHANNELS = frozenset({"terminal", "cli", "page", "device"})
"""Ways to answer that are behind the house's own access control: the terminal it runs in, the
command line over its state, the page with its token, and a device that was paired."""

SIGN_CHANNELS = frozenset({"page", "device"})
"""Where a call that signs or is of tier 1 is decided: on the transaction page, or on a paired
device."""


def rejection(request: ApprovalRequest, reply: Reply) -> str:
    """Return why this answer does not count, or nothing when it does.

    On a channel of the owner, the owner and the user whom the call is for may answer; on any other,
    such as a chat, only that user on that very channel (S000-78, S000-79).
    """
    if reply.channel == NOBODY:
        return "" if reply.answer is Answer.NO else "nobody can say yes"
    if request.out_of_band_only and reply.channel not in SIGN_CHANNELS:
        return "such a call is decided on the transaction page or a paired device only"
    if reply.channel in OWNER_CHANNELS:
        if reply.by in (OWNER, request.user):
            return ""
        return "only the owner of this house or the user of the call may answer"
    if reply.channel != request.channel:
        return "this is not the channel that the call came from"
    if reply.by != request.user:
        return "only the user of the call may answer"
    return ""


def allowed_answers(request: ApprovalRequest) -> tuple[Answer, ...]:
    """Return the answers that the question has; one for the page is never allowed for good."""
    if request.patterns and not request.out_of_band_only:
        return tuple(Answer)
    return tuple(answer for answer in Answer if answer not in LASTING)
