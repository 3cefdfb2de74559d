"""Policies, calls and clocks for the tests of the tier policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from skillhouse.tiers import TierEngine, TierLevel, TierPolicy, TierVerdict, read_tier_policy
from tests.signer.places import FakeClock

PUBLISHED = """\
version: "1"
defaults:
  timeout: 120
thresholds:
  tier2MaxUsd: 50
  tier2DailyUsd: 200
  tier3MaxUsd: 5
  sessionKeyTtlHours: 24
  sessionKeyMaxBalance: "0.05"
emergencyStop:
  enabled: true
  commands: [/stop, /emergency, /halt]
  channels: [telegram]
  action: revoke-all-session-keys
tools:
  gas__refuel:
    tier: 3
    cooldown: {maxPerHour: 2, maxPerDay: 3}
  dex-swap__swap:
    tier: 2
    escalateAbove: {usd: 40}
  approve__set_allowance: {tier: 1, requireConfirmation: false}
  exec:
    tier: 2
    requireConfirmation: true
    confirmationChannel: inline
    cooldown:
      maxPerHour: 20
      minIntervalMs: 2500
  transfer__send:
    tier: 2
    maxAmount:
      usd: 20
  list_files: {tier: none}
wildcards:
  - pattern: "*__get_*"
    tier: none
  - pattern: "*__approve_*"
    tier: 1
  - {pattern: "*__approve_small", tier: 3}
fallback:
  tier: 1
  requireConfirmation: true
  confirmationChannel: companion-app
"""
"""A policy of the published form, with its numbers."""

EVERYWHERE = frozenset({"inline", "companion-app", "notification"})


def policy_of(text: str = PUBLISHED, **house: Any) -> TierPolicy:
    """Return the policy that a text holds, of a house that works for mika."""
    house.setdefault("assignees", frozenset({"mika"}))
    return read_tier_policy(text.encode(), Path("policy.yml"), **house)


class Desk:
    """Tiers on a state of their own, with a clock that tests set."""

    def __init__(self, base: Path, policy: TierPolicy | None = None, **steps: Any) -> None:
        self.path = base / "state.sqlite3"
        self.policy = policy or policy_of()
        self.clock = FakeClock()
        self.steps = steps
        self.tiers = self.opened()

    def opened(self) -> TierEngine:
        """Return tiers as another process, or a later one, has them."""
        return TierEngine(self.policy, self.path, clock=self.clock, **self.steps)

    def judge(
        self,
        tool: str,
        user: str = "mika",
        *,
        level: TierLevel | None = TierLevel.WRITE,
        arguments: Mapping[str, Any] | None = None,
        spends: Sequence[tuple[str, Decimal]] | None = (),
        **values: Any,
    ) -> TierVerdict:
        """Judge a call with both ways to a person open."""
        values.setdefault("reachable", EVERYWHERE)
        values.setdefault("is_vouched", True)
        return self.tiers.judge(
            tool, user, level=level, arguments=arguments or {}, spends=spends, **values
        )
