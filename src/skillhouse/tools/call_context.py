"""What the gate knows about a call so far: its plan, the decisions, the approval."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from skillhouse.approval import Approval, Level
from skillhouse.permission import Decision, Effect, strictest
from skillhouse.tiers import TierVerdict
from skillhouse.tools.call import EvaluatedPermission, Output, Plan, ToolCall, level_of
from skillhouse.tools.running_calls import Running
from skillhouse.tools.skill_text import one_line
from skillhouse.tools.tier_gate import Account

ON_PAGE = frozenset({"page", "companion-app"})
"""Where a tier has calls confirmed that no chat and no terminal may decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """One call on its way through the gate."""

    call: ToolCall
    plan: Plan | None = None
    """None until the call is planned."""
    evaluated: tuple[EvaluatedPermission, ...] = ()
    verdict: TierVerdict | None = None
    """What the tier policy says; None where there is none."""
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
    for found in context.evaluated:
        once = replace(found.request, may_last=False)
        if found.decision.effect is Effect.ALLOW:
            decision = Decision(effect=Effect.ASK, layer=layer)
            evaluated.append(replace(found, request=once, decision=decision, reason=why))
        else:
            evaluated.append(replace(found, request=once))
    return replace(context, evaluated=tuple(evaluated))


@dataclass(slots=True)
class CallState:
    """The state of one call, for each step and for whoever finds it cancelled."""

    context: CallContext
    """The call, with what is known about it so far."""
    account: Account
    """What it holds of cooldowns and allowances."""
    running: Running
    """Ends it when everything is stopped."""
    holding: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What it holds of the workspace until it ends."""
    intent: str = ""
    """Id of the record that it is about to run; empty before."""
    began: float = 0.0
    output: Output = Output(text="cancelled", failed=True)  # noqa: RUF009 - a frozen value.
    is_stopped: bool = False
    """Whether it ended because everything was stopped."""

    @property
    def plan(self) -> Plan:
        return self.context.known_plan

    @property
    def title(self) -> str:
        return one_line(self.plan.title or self.context.call.name)
