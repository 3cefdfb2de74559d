"""What the gate would answer to a call, without making it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from skillhouse.approval import Level
from skillhouse.permission import Effect
from skillhouse.tools.call import (
    EvaluatedPermission,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    Status,
    ToolCall,
)
from skillhouse.tools.call_context import CallContext, escalated_to_ask
from skillhouse.tools.question import question
from skillhouse.tools.session import Session
from skillhouse.tools.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call that the gate refuses before anybody is asked, and what it answers."""

    case: CallContext
    text: str
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the gate would answer to a call as things are now; it grants nothing."""

    effect: Effect
    """Allow runs it, ask asks a person, deny refuses it."""
    status: Status
    """What the call ends with if nobody answers: ok, pending, denied, or error for a call that
    makes no sense. A call that is allowed can still fail."""
    reasons: tuple[str, ...]
    """Why, the one that decides first."""
    layer: str = ""
    """The layer that decides: of a rule, `default`, `write gate`, `tiers`; empty for a call that is
    refused before rules are asked."""
    judged: tuple[EvaluatedPermission, ...] = ()
    """Each permission that it needs, with the layer and rule that decides it; empty for a call
    that is refused before that."""
    level: Level = "read"
    on_page: bool = False
    """Whether only the transaction page or a paired device decides it."""
    title: str = ""
    """What a person would be asked, but for files that cannot be bound; empty without a
    question."""


def settled(case: CallContext) -> CallContext | Refusal:
    """Return a judged call as it goes on: refused, allowed, or to be asked about."""
    if case.denied is not None:
        return Refusal(case=case, text=f"denied: {case.denied.reason}", status="denied")
    if case.verdict is not None and case.verdict.effect is Effect.DENY:
        return Refusal(case=case, text=f"denied: {case.verdict.message}", status="denied")
    return escalated_to_ask(case)


def forecast_of(found: CallContext | Refusal, workspace_root: str) -> Forecast:
    """Return a call that was worked out as a forecast.

    Args:
        found: The call, judged or refused.
        workspace_root: The workspace's real path.
    """
    case = found.case if isinstance(found, Refusal) else found
    page = case.plan is not None and case.on_page
    facts = Forecast(
        effect=Effect.DENY,
        status="denied",
        reasons=(),
        judged=case.judged,
        level=case.level,
        on_page=page,
    )
    if isinstance(found, Refusal):
        reason = found.text.removeprefix("denied: ")
        layer = case.denied.decision.layer if case.denied else "tiers" if case.verdict else ""
        return replace(facts, status=found.status, reasons=(reason,), layer=layer)
    deciding = next(j for j in case.judged if j.decision.effect is case.effect)
    facts = replace(facts, effect=case.effect, layer=deciding.decision.layer)
    if case.effect is Effect.ALLOW:
        return replace(facts, status="ok", reasons=tuple(j.reason for j in case.judged))
    asked = question(case, workspace_root, None)
    return replace(facts, status="pending", reasons=asked.reasons, title=asked.title)


def planned(tool: Tool, call: ToolCall, session: Session) -> Plan:
    """Return the call worked out; what a skill asks by itself is bound to that skill."""
    plan = tool.plan(call.arguments, session)
    if not session.origin_digest:
        return plan
    needs = (
        n if n.skill_digest else replace(n, skill_digest=session.origin_digest) for n in plan.needs
    )
    return replace(plan, needs=tuple(needs))


def need_alone(need: PermissionRequest) -> Plan:
    """Return a plan of one need, for forecasts of a tool whatever its arguments are."""

    async def run() -> Output:
        raise RefusedError("a forecast is not run")

    return Plan(needs=(need,), run=run)
