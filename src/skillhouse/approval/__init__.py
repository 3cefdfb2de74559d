"""Gets a person's answer, once, about exact content."""

from skillhouse.approval.grants import Grant, GrantStore, grant_patterns
from skillhouse.approval.request import Answer, ApprovalRequest, Channel, Unattended

__all__ = [
    "Answer",
    "ApprovalRequest",
    "Channel",
    "Grant",
    "GrantStore",
    "Unattended",
    "grant_patterns",
]
