"""What the gate knows about a call so far: its plan, the decisions, the approval."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

from msgspec import Struct, field

from skillhouse.approval import Approval, Level
from skillhouse.floor.structs import replace
from skillhouse.permission import CommandVerdict, Decision, Effect, strictest
from skillhouse.skill.hidden import one_line
from skillhouse.tiers import TierVerdict
from skillhouse.tools.call import (
    EvaluatedPermission,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    Status,
    ToolCall,
    level_of,
)
from skillhouse.tools.tier_gate import Account, Running
from skillhouse.tools.tool import Session, Tool

ON_PAGE = frozenset({"page", "companion-app"})
"""Where a tier has calls confirmed that no chat and no terminal may decide."""


class CallContext(Struct, frozen=True, kw_only=True):
    """One call on its way through the gate."""

    call: ToolCall
    plan: Plan | None = None
    evaluated: tuple[EvaluatedPermission, ...] = ()
    verdict: TierVerdict | None = None
    """None without a tier policy."""
    approval: Approval | None = None

    @property
    def known_plan(self) -> Plan:
        assert self.plan is not None  # noqa: S101 - only such calls get here.
        return self.plan

    @property
    def effect(self) -> Effect:
        return strictest(j.decision.effect for j in self.evaluated)

    @property
    def level(self) -> Level:
        return level_of(self.plan) if self.plan else "read"

    @property
    def on_page(self) -> bool:
        """Whether the transaction page or a paired device decides it, and nothing else does."""
        asked = self.verdict is not None and self.verdict.channel in ON_PAGE
        return asked or bool(self.plan and self.plan.page)

    @property
    def denied(self) -> EvaluatedPermission | None:
        return next((j for j in self.evaluated if j.decision.effect is Effect.DENY), None)


def escalated_to_ask(context: CallContext) -> CallContext:
    """Return the context with what is allowed asked about, where its page or tier wants a person.

    Such an approval holds once: a rule or a standing approval would do away with the question.
    """
    by_tier = context.verdict is not None and context.verdict.effect is Effect.ASK
    if not by_tier and not (context.plan and context.plan.page):
        return context
    if context.verdict is not None and by_tier:
        tier = context.verdict.effective_tier
        layer, why = "tiers", context.verdict.message or f"calls of tier {tier} are confirmed here"
    else:
        layer, why = "transaction page", "this is decided on the transaction page only"
    evaluated = []
    for judged in context.evaluated:
        once = replace(judged, request=replace(judged.request, may_last=False))
        if judged.decision.effect is Effect.ALLOW:
            decision = Decision(effect=Effect.ASK, layer=layer)
            once = replace(once, decision=decision, reason=why)
        evaluated.append(once)
    return replace(context, evaluated=tuple(evaluated))


class Refusal(Struct, frozen=True, kw_only=True):
    """A call that the gate refuses before a person is asked, and what it answers."""

    context: CallContext
    text: str
    status: Status


class Forecast(Struct, frozen=True, kw_only=True):
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
    level: Level = "read"
    on_page: bool = False
    title: str = ""
    """What a person would be asked, but for files that cannot be bound."""
    command: CommandVerdict | None = None
    """How its command line was judged; None where the call is refused before, or is none."""


def refused_or_escalated(context: CallContext) -> CallContext | Refusal:
    """Return how a decided call goes on: refused, allowed, or to be asked about."""
    if context.denied is not None:
        return Refusal(context=context, text=f"denied: {context.denied.reason}", status="denied")
    if context.verdict is not None and context.verdict.effect is Effect.DENY:
        return Refusal(context=context, text=f"denied: {context.verdict.message}", status="denied")
    return escalated_to_ask(context)


def planned(tool: Tool, call: ToolCall, session: Session) -> Plan:
    """Return the plan of a call; what a skill asks by itself is bound to that skill."""
    plan = tool.plan(call.arguments, replace(session, call_id=call.call_id))
    if not session.origin_digest:
        return plan
    needs = (
        n if n.skill_digest else replace(n, skill_digest=session.origin_digest) for n in plan.needs
    )
    return replace(plan, needs=tuple(needs))


def plan_of_request(need: PermissionRequest) -> Plan:
    """Return a plan for forecasts of a tool whatever its arguments are."""

    async def run() -> Output:
        raise RefusedError("a forecast is not run")

    return Plan(needs=(need,), run=run)


class CallState(Struct):
    """The state of one call, for each step and for whoever finds it cancelled."""

    context: CallContext
    account: Account
    running: Running
    holding: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What it holds of the workspace until it ends."""
    intent: str = ""
    """Id of the record that it is about to run; empty before."""
    came: float = field(default_factory=time.monotonic)
    began: float = 0.0
    output: Output = Output(text="cancelled", failed=True)
    is_stopped: bool = False

    @property
    def plan(self) -> Plan:
        return self.context.known_plan

    @property
    def title(self) -> str:
        return one_line(self.plan.title or self.context.call.name)
