"""What the events of the API say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillhouse.frontends.answers.json_form import JsonAnswer, copied

if TYPE_CHECKING:
    from skillhouse.audit import AuditEntry


class ProgressAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How far a call is."""

    request: str
    tool: str
    progress: float
    total: float | None
    message: str | None


class CallEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    tool: str
    status: str
    agent: str
    user: str
    ts: str
    request: str


class IndexEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Ids of the skills that came, went or changed."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    findings: int


def call_event(entry: AuditEntry) -> CallEventAnswer:
    record = entry.record
    return copied(CallEventAnswer, record, status=entry.status)
