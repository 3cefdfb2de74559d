"""A question as it is kept, with what became of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from skillhouse.approval.request import ApprovalRequest


class State(enum.StrEnum):
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
    state: State
    answer: str = ""
    """once, session, project, always or no; empty before."""
    by: str = ""
    channel: str = ""
    """Where it was answered."""
    message: str = ""
    closed_ms: int = 0
    """When it was answered or expired; 0 before."""

    @property
    def id(self) -> str:
        """The question's id."""
        return self.request.id
