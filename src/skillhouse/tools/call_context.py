"""What the door knows about a call so far: what it needs, what was decided, who said yes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skillhouse.permission import Decision, Effect, strictest

if TYPE_CHECKING:
    from skillhouse.approval import Approval, Level
    from skillhouse.tiers import TierVerdict
    from skillhouse.tools.call import Plan, ToolCall
    from skillhouse.tools.permission_request import EvaluatedPermission

ON_PAGE = frozenset({"page", "companion-app"})
"""Where a tier has calls confirmed that no chat and no terminal may decide."""

_LEVELS: tuple[Level, ...] = ("read", "write", "sign")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """One call on its way through the door."""

    call: ToolCall
    plan: Plan | None = None
    """None while the call is not worked out."""
    judged: tuple[EvaluatedPermission, ...] = ()
    verdict: TierVerdict | None = None
    """What the tier policy says; None where there is none."""
    approval: Approval | None = None

    @property
    def known_plan(self) -> Plan:
        """The plan of a call that is worked out."""
        assert self.plan is not None  # noqa: S101 - only such calls get here.
        return self.plan

    @property
    def effect(self) -> Effect:
        """The strictest of what was decided."""
        return strictest(j.decision.effect for j in self.judged)

    @property
    def level(self) -> Level:
        """The most that the plan does."""
        return level_of(self.plan) if self.plan else "read"

    @property
    def on_page(self) -> bool:
        """Whether the transaction page or a paired device decides it, and nothing else does."""
        asked = self.verdict is not None and self.verdict.channel in ON_PAGE
        return asked or bool(self.plan and self.plan.page)

    @property
    def denied(self) -> EvaluatedPermission | None:
        """The first denied need."""
        return next((j for j in self.judged if j.decision.effect is Effect.DENY), None)


def level_of(plan: Plan) -> Level:
    """Return the strongest level of a plan's needs."""
    return max((need.effective_level for need in plan.needs), key=_LEVELS.index)


def escalated_to_ask(case: CallContext) -> CallContext:
    """Return the case with what is allowed asked about, where its page or its tier wants a person.

    Such a yes holds once: a rule or a lasting yes would do away with the question.
    """
    by_tier = case.verdict is not None and case.verdict.effect is Effect.ASK
    if not by_tier and not (case.plan and case.plan.page):
        return case
    if case.verdict is not None and by_tier:
        tier = case.verdict.effective_tier
        layer, why = "tiers", case.verdict.message or f"calls of tier {tier} are confirmed here"
    else:
        layer, why = "transaction page", "this is decided on the transaction page only"
    judged = []
    for found in case.judged:
        once = replace(found.need, may_last=False)
        if found.decision.effect is Effect.ALLOW:
            decision = Decision(effect=Effect.ASK, layer=layer)
            judged.append(replace(found, need=once, decision=decision, reason=why))
        else:
            judged.append(replace(found, need=once))
    return replace(case, judged=tuple(judged))
