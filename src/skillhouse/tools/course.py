"""How far one call has come through the gate."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from skillhouse.tools.call import Output, Plan
from skillhouse.tools.call_context import CallContext
from skillhouse.tools.running_calls import Running
from skillhouse.tools.skill_text import one_line
from skillhouse.tools.tier_gate import Account


@dataclass(slots=True)
class Course:
    """The state of one call, for each step and for whoever finds it cancelled."""

    case: CallContext
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
        """The call worked out; only asked for once it is."""
        return self.case.known_plan

    @property
    def title(self) -> str:
        """What it does, in one line."""
        return one_line(self.plan.title or self.case.call.name)
