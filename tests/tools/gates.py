"""Gates of a test's own tools, without a house."""

from __future__ import annotations

from skillhouse.approval import ApprovalBroker
from skillhouse.audit import AuditLog
from skillhouse.tools import (
    Asker,
    Gate,
    PermissionJudge,
    Recorder,
    RedeemedApprovals,
    Tool,
    ToolSet,
)
from skillhouse.tools.tool import Decide


def gate_to(
    tool: Tool,
    *more: Tool,
    decide: Decide,
    approvals: ApprovalBroker,
    audit: AuditLog,
    workspace_root: str,
    redeemed: RedeemedApprovals | None = None,
) -> Gate:
    """Return a gate that decides by `decide` and records in `audit`."""
    recorder = Recorder(audit, workspace_root)
    return Gate(
        ToolSet([tool, *more]),
        judge=PermissionJudge(decide, workspace_root),
        asker=Asker(lambda: approvals, recorder, workspace_root, redeemed),
        recorder=recorder,
    )
