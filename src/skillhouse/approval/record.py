"""A question as it is kept, with what became of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from skillhouse.approval.request import ApprovalError, ApprovalRequest


class ApprovalState(enum.StrEnum):
    """Where a question stands; it only moves down this list."""

    OPEN = "open"
    APPROVED = "approved"
    """A person said yes, and the call has not run yet."""
    USED = "used"
    """The yes was taken by a call."""
    DENIED = "denied"
    EXPIRED = "expired"
    """Nobody answered in time, or nobody used the yes in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One question and its answer."""

    request: ApprovalRequest
    state: ApprovalState
    answer: str = ""
    """once, session, project, always or no; empty before."""
    by: str = ""
    channel: str = ""
    """Where it was answered."""
    message: str = ""
    closed_ms: int = 0
    """When it was answered or expired; 0 before."""
    device: str = ""
    """Id of the paired device that answered; empty when none did."""
    device_name: str = ""

    @property
    def id(self) -> str:
        """The question's id."""
        return self.request.id


def closed(found: Approval) -> tuple[str, str]:
    """Return the code of a question that is not open any more, and what became of it, in words."""
    said = f": {found.message}" if found.message else ""
    if found.state is ApprovalState.EXPIRED:
        return "expired", found.message or "nobody answered in time, or the answer was not used"
    if found.state is ApprovalState.USED:
        return "used", f"approval `{found.id}` was used already"
    if found.state is ApprovalState.DENIED:
        return ("answered", f"refused{said}") if found.by else ("denied", found.message)
    if found.state is ApprovalState.OPEN:
        return "open", f"approval `{found.id}` waits for an answer"
    return "answered", f"approval `{found.id}` was answered already"


def another_client(found: Approval) -> ApprovalError:
    """Return the error of a client that comes with another one's approval."""
    return ApprovalError("another-client", f"approval `{found.id}` belongs to another client")
