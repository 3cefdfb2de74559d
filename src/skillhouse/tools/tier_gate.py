"""The tier policy at the gate: its verdict on a call, what it reserves, and how that is settled."""

from __future__ import annotations

import logging
from collections.abc import Callable

from skillhouse.floor import StateError
from skillhouse.permission import Effect
from skillhouse.tiers import TierEngine, TierLevel, TierOutcome, TierVerdict
from skillhouse.tiers.tier_values import INLINE, PAGE, Tier
from skillhouse.tools.call import Output, Plan, ToolCall, level_of
from skillhouse.tools.running_calls import Background, Running, RunningCalls

STOPPED = "emergency-stopped"
"""The reason of a verdict while everything is stopped."""
RESUME_HINT = "only the owner lets tools run again, at a terminal: ask the user"

logger = logging.getLogger(__name__)


class TierGate:
    """Asks the tiers about each call. Without a policy there is nothing but the stop."""

    def __init__(
        self,
        tiers: TierEngine | None = None,
        *,
        has_policy: bool = False,
        reachable: Callable[[], frozenset[str]] = lambda: frozenset({INLINE, PAGE}),
        background: Callable[[], Background | None] = lambda: None,
    ) -> None:
        """Take the tiers.

        Args:
            tiers: None decides nothing and stops nothing.
            has_policy: Whether calls are judged by the policy.
            reachable: The channels on which a person can be asked now.
            background: What a stop ends beside the calls.
        """
        self._tiers = tiers
        self._has_policy = has_policy
        self._reachable = reachable
        self._running = RunningCalls(tiers, background)

    def judge(self, call: ToolCall, plan: Plan, account: Account | None) -> TierVerdict | None:
        """Return what the policy says; what it reserves is put to the account.

        None without a policy. Without an account it is a forecast, which reserves nothing.
        """
        if self._tiers is None or not self._has_policy:
            return None
        verdict = self._tiers.judge(
            call.name,
            call.user,
            level=TierLevel(level_of(plan)),
            # All tools of this gate are our own, so their levels can be trusted.
            is_vouched=True,
            arguments=call.arguments,
            spends=plan.spends,
            session_key="active" if plan.session_key else "",
            reachable=self._reachable(),
            reserves=account is not None,
        )
        if account is not None:
            account.reservation = verdict.reservation
        return verdict

    def account(self) -> Account:
        """Return the account of a call, to be settled at its end, however it ended."""
        return Account(self._tiers)

    def running(self) -> Running:
        """Return what holds a call that a stop ends, from the question to a person on."""
        return self._running.one()

    def close(self) -> None:
        """Close the line in which a stop sees the calls of this process."""
        self._running.close()

    def stopped(self) -> TierVerdict | None:
        """Return the refusal of every call, where all is stopped or that cannot be read."""
        reason = self._tiers.stopped_reason if self._tiers else ""
        if not reason:
            return None
        return TierVerdict(
            effect=Effect.DENY,
            tier=Tier.NONE,
            effective_tier=Tier.NONE,
            reason=STOPPED,
            message=all_stopped_text(reason),
        )


class Account:
    """What one call holds of cooldowns and allowances."""

    def __init__(self, tiers: TierEngine | None) -> None:
        self._tiers = tiers
        self.reservation = ""
        self.outcome = TierOutcome.WITHDRAWN
        """What came of the call; until it begins, nothing."""

    @property
    def holds(self) -> bool:
        return bool(self.reservation)

    def begin(self) -> str:
        why = self._tiers.begin(self.reservation) if self._tiers else ""
        if not why:
            # Until more is known: a call that is cancelled may have done all of it.
            self.outcome = TierOutcome.UNKNOWN
        return why

    def ended(self, output: Output, *, signs: bool) -> None:
        if not output.failed:
            self.outcome = TierOutcome.SUCCESS
        else:
            self.outcome = TierOutcome.SIGN_FAILED if signs else TierOutcome.FAILED

    def settle(self) -> None:
        """Settle the reservation; where that fails, what was reserved goes on to count."""
        if self._tiers is None or not self.reservation:
            return
        try:
            self._tiers.settle(self.reservation, self.outcome)
        except StateError:
            # The effect may have happened: its result must not be lost for this.
            logger.exception("what a call used up could not be recorded")


def all_stopped_text(reason: str) -> str:
    """Return what a model reads about a call that comes while everything is stopped."""
    return f"everything is stopped: {reason}; {RESUME_HINT}"


def stopped_text(reason: str) -> str:
    """Return what a model reads about a call that a stop ended."""
    return f"stopped: {reason}; the call was ended, and what it did before stays; {RESUME_HINT}"
