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
    """A call that the gate refuses before a person is asked, and what it answers."""

    context: CallContext
    text: str
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the gate would answer to a call as things are now; it grants nothing."""

    effect: Effect
    """Allow runs it, ask asks a person, deny refuses it."""
    status: Status
    """The status if the question is not answered: ok, pending, denied, or error for a call that
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


def settled(context: CallContext) -> CallContext | Refusal:
    """Return how a decided call goes on: refused, allowed, or to be asked about."""
    if context.denied is not None:
        return Refusal(context=context, text=f"denied: {context.denied.reason}", status="denied")
    if context.verdict is not None and context.verdict.effect is Effect.DENY:
        return Refusal(context=context, text=f"denied: {context.verdict.message}", status="denied")
    return escalated_to_ask(context)


def forecast_of(found: CallContext | Refusal, workspace_root: str) -> Forecast:
    """Return the forecast of a planned call.

    Args:
        found: The call, decided or refused.
        workspace_root: The workspace's real path.
    """
    context = found.context if isinstance(found, Refusal) else found
    page = context.plan is not None and context.on_page
    facts = Forecast(
        effect=Effect.DENY,
        status="denied",
        reasons=(),
        judged=context.evaluated,
        level=context.level,
        on_page=page,
    )
    if isinstance(found, Refusal):
        reason = found.text.removeprefix("denied: ")
        layer = (
            context.denied.decision.layer if context.denied else "tiers" if context.verdict else ""
        )
        return replace(facts, status=found.status, reasons=(reason,), layer=layer)
    deciding = next(j for j in context.evaluated if j.decision.effect is context.effect)
    facts = replace(facts, effect=context.effect, layer=deciding.decision.layer)
    if context.effect is Effect.ALLOW:
        return replace(facts, status="ok", reasons=tuple(j.reason for j in context.evaluated))
    asked = question(context, workspace_root, None)
    return replace(facts, status="pending", reasons=asked.reasons, title=asked.title)


def planned(tool: Tool, call: ToolCall, session: Session) -> Plan:
    """Return the plan of a call; what a skill asks by itself is bound to that skill."""
    plan = tool.plan(call.arguments, session)
    if not session.origin_digest:
        return plan
    needs = (
        n if n.skill_digest else replace(n, skill_digest=session.origin_digest) for n in plan.needs
    )
    return replace(plan, needs=tuple(needs))


def need_alone(need: PermissionRequest) -> Plan:
    """Return a plan of one request, for forecasts of a tool whatever its arguments are."""

    async def run() -> Output:
        raise RefusedError("a forecast is not run")

    return Plan(needs=(need,), run=run)
