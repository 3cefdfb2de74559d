"""Questions and brokers for the tests of approvals, with a clock that is set by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skillhouse.approval import (
    Answer,
    ApprovalBroker,
    ApprovalRequest,
    ApprovalSettings,
    Asked,
    Pattern,
    canonical,
    content_digest,
)
from tests.harness import Clock


def broker_at(
    path: Path, *channels: Any, clock: Clock | None = None, **settings: Any
) -> ApprovalBroker:
    return ApprovalBroker(
        path,
        channels=channels,
        settings=ApprovalSettings(**settings),
        clock=clock or Clock(),
    )


def question(resource: str = "/w/a.txt", **values: Any) -> ApprovalRequest:
    """Return the question about one write."""
    content = canonical(
        {"tool": "write", "path": resource, **{k: str(v) for k, v in values.items()}}
    )
    pattern = resource.rpartition("/")[0] + "/"
    defaults: dict[str, Any] = {
        "tool": "write",
        "agent": "default",
        "user": "local",
        "channel": "library",
        "title": f"write: {resource}",
        "found": (),
        "sent": (("path", resource),),
        "reasons": ("writing is asked about",),
        "content": content,
        "content_digest": content_digest(content),
        "always": (f"write {pattern} (files directly in it)",),
        "place": "/w",
        "asked": (Asked(action="write", resource=resource),),
        "patterns": (Pattern(action="write", pattern=pattern),),
    }
    return ApprovalRequest(**{**defaults, **values})


def said(broker: ApprovalBroker, approval_id: str, answer: Answer = Answer.ONCE, **values: Any):
    """Answer as the owner does on the command line."""
    found = broker.get(approval_id)
    given = {"by": "local", "channel": "cli", "nonce": found.request.nonce, **values}
    return broker.answer(approval_id, answer, **given)


def begun(broker: ApprovalBroker, approval_id: str, **who: str) -> None:
    """Redeem an approval for its call and begin it, as a gate does."""
    request = broker.get(approval_id).request
    used = broker.redeem(approval_id, request.content_digest, request.session, **who)
    broker.store_rules(used, **who)
