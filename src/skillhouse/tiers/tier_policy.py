"""Decides by the tier policy, purely: which tier a call has, and whether it needs approval."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from skillhouse.floor.rules import Effect, matches
from skillhouse.floor.structs import field_names, replace
from skillhouse.tiers.tier_values import (
    COMPANION_APP,
    ETH,
    FALLBACK,
    INLINE,
    LEVEL_TIERS,
    TIER_ORDER,
    TIMEOUT_SECONDS,
    USD,
    Amount,
    Cooldown,
    EmergencyStop,
    Thresholds,
    Tier,
    TierCall,
    TierLevel,
    TierState,
    TierVerdict,
    ToolPolicy,
    read_amount,
)

DENIALS_MAX = 3
"""Consecutive denials after which a tool halts for that user (S000-98)."""
HOUR_MS, DAY_MS = 3_600_000, 86_400_000

_WILDCARD = "wildcards "


class TierPolicy(Struct, frozen=True, kw_only=True):
    """The content of a `policy.yml`; the defaults hold without one."""

    defaults: ToolPolicy = ToolPolicy()
    thresholds: Thresholds = Thresholds()
    emergency_stop: EmergencyStop = EmergencyStop()
    tools: Mapping[str, ToolPolicy] = MappingProxyType({})
    wildcards: tuple[tuple[str, ToolPolicy], ...] = ()
    """Patterns with `*` in their order; the first that matches counts."""
    fallback: ToolPolicy | None = None
    """For tools that nothing names; None leaves those of a known level to their level."""
    assignees: frozenset[str] = frozenset()
    """The users whom `assignee-only` means: the owner and those in the configuration."""
    tier1_channel: str = COMPANION_APP
    """Where tier 1 is confirmed: the companion app, or without one the transaction page."""
    has_companion: bool = True
    """Whether tier 1 is asked in the companion app where that can be reached, and its absence
    leaves reads only."""
    fault: str = ""
    """Why the policy file cannot be used; then everything but reads is refused."""
    warnings: tuple[str, ...] = ()
    """Parts of the file that can have no effect."""
    published: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """What a design calls our tools, by our name: an entry may have either."""

    def resolve(
        self, tool: str, level: TierLevel | None, *, is_vouched: bool
    ) -> tuple[ToolPolicy, str]:
        """Return the policy of a tool, complete except for bounds and users, and its source.

        An exact name is preferred to the first wildcard that matches, and that to the fallback;
        then defaults fill each open field (S000-88 to 90).
        """
        found, source = self._entry(tool)
        if found is None:
            found, source = self._unnamed(level, is_vouched=is_vouched)
        policy = _filled(found, self.defaults)
        of_level = Tier.ONE if level is None else LEVEL_TIERS[level]
        tier = policy.tier or of_level
        if source.startswith(_WILDCARD) and "*" in source[len(_WILDCARD) :].partition("__")[0]:
            # A skill chooses its names: `x__get_all` must not become a read by its name alone.
            tier = strictest_tier(tier, of_level)
        if level is TierLevel.SIGN and tier is Tier.NONE:
            # No amount is counted in tier none, and no signature is a read.
            tier = Tier.THREE
        return replace(policy, tier=tier), source

    def decide(self, call: TierCall, state: TierState) -> TierVerdict:
        """Return the verdict on a call; docs/decisions/0111-tier-policy.md gives the order.

        Pure: the history comes in `state`, and the caller keeps account of the call.
        """
        policy, source = self.resolve(call.tool, call.level, is_vouched=call.is_vouched)
        is_read = call.is_vouched and call.level is TierLevel.READ
        amount = read_amount(call.arguments, call.spends)
        tier = policy.tier or Tier.ONE
        if tier is Tier.NONE and not read_amount({}, call.spends).is_none:
            # Decoded spending is counted, whatever tier the policy gives.
            tier = Tier.THREE
        verdict = TierVerdict(
            effect=Effect.ALLOW,
            tier=tier,
            effective_tier=tier,
            source=source,
            amount_usd=amount.usd,
            timeout_seconds=0,
        )
        refused = (
            self._closed(call, state, is_read=is_read, tier=tier)
            or self._wrong_user(call, policy, tier)
            or _halted(call, state, tier)
            or _cooling(policy.cooldown, state)
            or _over_maximum(policy.max_amount, amount)
        )
        if refused:
            return replace(verdict, effect=Effect.DENY, reason=refused[0], message=refused[1])
        return self._tiered(call, state, policy, amount, verdict)

    def _entry(self, tool: str) -> tuple[ToolPolicy | None, str]:
        names = (tool, *self.published.get(tool, ()))
        for name in names:
            if name in self.tools:
                return self.tools[name], f"tools.{name}"
        for pattern, policy in self.wildcards:
            if any(matches(pattern, name) for name in names):
                return policy, _WILDCARD + pattern
        return None, ""

    def _unnamed(self, level: TierLevel | None, *, is_vouched: bool) -> tuple[ToolPolicy, str]:
        if is_vouched and level is TierLevel.READ:
            # Reads inside the allowed places are no effects (decision 9): no fallback is needed.
            return ToolPolicy(tier=Tier.NONE), "level"
        if is_vouched and level is not None and self.fallback is None:
            return ToolPolicy(tier=LEVEL_TIERS[level]), "level"
        fallback = self.fallback or FALLBACK
        if is_vouched and level is not None and fallback.tier is not None:
            # A tool without an entry is never milder than its level.
            tier = strictest_tier(fallback.tier, LEVEL_TIERS[level])
            fallback = replace(fallback, tier=tier)
        return fallback, "fallback"

    def _closed(
        self, call: TierCall, state: TierState, *, is_read: bool, tier: Tier
    ) -> tuple[str, str] | None:
        if state.stopped:
            message = (
                f"everything is stopped: {state.stopped}; only the owner can resume it, at a "
                "terminal: ask the user"
            )
            return "emergency-stopped", message
        if self.fault and not is_read:
            return "policy-unreadable", f"only reads go on: {self.fault}"
        if self.has_companion and state.is_companion_lost and not is_read and tier is not Tier.NONE:
            return (
                "companion-app-offline",
                "the companion app has been away for 30 minutes: only reads go on until it is back",
            )
        return None

    def _wrong_user(self, call: TierCall, policy: ToolPolicy, tier: Tier) -> tuple[str, str] | None:
        allowed = policy.allowed_users
        if isinstance(allowed, tuple):
            who, users = "whom the policy lists", frozenset(allowed)
        elif allowed is None and tier is Tier.NONE:
            # Who may read is for the scope to say, unless the policy does.
            return None
        else:
            who, users = "that it is assigned to", self.assignees
        if call.user in users:
            return None
        return "user-not-allowed", f"`{call.tool}` is for users {who}, got `{call.user}`"

    def _tiered(
        self,
        call: TierCall,
        state: TierState,
        policy: ToolPolicy,
        amount: Amount,
        verdict: TierVerdict,
    ) -> TierVerdict:
        limits, tier, reason = self.thresholds, verdict.tier, ""
        if tier is Tier.NONE:
            return verdict
        if tier is Tier.THREE and amount.usd > limits.tier3_max_usd:
            tier, reason = Tier.TWO, "tier3-max-exceeded"
        if tier is not Tier.ONE:
            above = self._above(call, state, policy, amount, tier)
            if above:
                tier, reason = Tier.ONE, above
        verdict = replace(
            verdict, effective_tier=tier, reason=reason, message=_MESSAGES.get(reason, "")
        )
        if tier is not Tier.ONE and not policy.require_confirmation:
            return verdict
        # INVARIANT: tier 1 always asks, and never in the chat (S000-99, 100).
        channel = policy.confirmation_channel or INLINE
        if tier is Tier.ONE:
            is_reached = self.has_companion and COMPANION_APP in call.reachable
            channel = COMPANION_APP if is_reached else self.tier1_channel
        timeout = policy.timeout_seconds or TIMEOUT_SECONDS
        if channel not in call.reachable:
            reason = "companion-app-unreachable" if channel == COMPANION_APP else "nobody-reachable"
            message = f"this needs approval by `{channel}`, which cannot be reached now"
            return replace(verdict, effect=Effect.DENY, reason=reason, message=message)
        return replace(
            verdict,
            effect=Effect.ASK,
            channel=channel,
            timeout_seconds=timeout,
            message=verdict.message or f"`{verdict.source}` of the tier policy asks",
        )

    def _above(
        self, call: TierCall, state: TierState, policy: ToolPolicy, amount: Amount, tier: Tier
    ) -> str:
        """Return why a call of tier 3 or 2 belongs to tier 1, or "".

        At a bound a call stays; only above it does it move. The bounds that are published for
        tier 2 hold in tier 3 too, or many small amounts would pass where one large does not.
        """
        limits, bounds = self.thresholds, policy.escalate_above or {}
        if amount.unknown:
            return "amount-unknown"
        if tier is Tier.TWO and amount.usd > limits.tier2_max_usd:
            return "tier2-max-exceeded"
        if USD in bounds and amount.usd > bounds[USD]:
            return "escalate-above-threshold"
        for currency, value, is_decoded in amount.others:
            bound = bounds.get(ETH if currency == ETH else "token")
            if bound is not None and value > bound:
                return "escalate-above-threshold"
            # A label in the arguments is the model's word; `token` does not say which token.
            if bound is None or currency != ETH or not is_decoded:
                return "currency-unknown"
        if amount.usd and state.spent_usd + amount.usd > limits.tier2_daily_usd:
            return "daily-limit-exceeded"
        if call.level is TierLevel.SIGN and call.session_key != "active":
            return "session-key-unavailable"
        return ""


def strictest_tier(*tiers: Tier) -> Tier:
    """Return the tier in which a person has most to do.

    >>> strictest_tier(Tier.NONE, Tier.TWO)
    <Tier.TWO: '2'>
    """
    return max(tiers, key=TIER_ORDER.index)


_MESSAGES = {
    "tier3-max-exceeded": "the amount is more than tier 3 may spend",
    "tier2-max-exceeded": "the amount is more than tier 2 may spend",
    "escalate-above-threshold": "the amount is more than the tool may spend without approval",
    "daily-limit-exceeded": "with this, more than a day's allowance would be spent",
    "amount-unknown": "it is not known what this spends",
    "currency-unknown": "it spends another currency, whose worth in dollars is not known",
    "session-key-unavailable": "no session key is active that could sign by itself",
}


def _halted(call: TierCall, state: TierState, tier: Tier) -> tuple[str, str] | None:
    """Refuse a tool after too many denials by its user; reads never halt."""
    if tier is Tier.NONE or state.denials < DENIALS_MAX:
        return None
    message = (
        f"`{call.tool}` was denied {state.denials} times in a row and waits; "
        "it goes on by itself in a while, or when the owner resumes it: ask the user"
    )
    return "consecutive-denials-halt", message


def _cooling(cooldown: Cooldown | None, state: TierState) -> tuple[str, str] | None:
    """Refuse what comes too often; the messages are the published ones."""
    if cooldown is None:
        return None
    hour, day, gap = cooldown.max_per_hour, cooldown.max_per_day, cooldown.min_interval_ms
    if hour is not None and sum(ago < HOUR_MS for ago in state.uses_ms) >= hour:
        return "cooldown-hour", f"Hourly limit exceeded ({hour} per hour)"
    if day is not None and sum(ago < DAY_MS for ago in state.uses_ms) >= day:
        return "cooldown-day", f"Daily limit exceeded ({day} per day)"
    last = min(state.uses_ms, default=DAY_MS)
    if gap is not None and last < gap:
        return "cooldown-interval", f"Please wait {-(-(gap - last) // 1000)}s before retrying"
    return None


def _over_maximum(maximum: Mapping[str, Decimal] | None, amount: Amount) -> tuple[str, str] | None:
    """Refuse what is over a tool's maximum, or cannot be held against it."""
    if not maximum or amount.is_none:
        return None
    limit = maximum.get(USD)
    if limit is not None and amount.usd > limit:
        return "amount-exceeds-limit", f"Amount exceeds tool limit (max: ${limit})"
    for currency, value, is_decoded in amount.others:
        bound = maximum.get(ETH if currency == ETH else "token")
        if bound is not None and value > bound:
            return "amount-exceeds-limit", f"Amount exceeds tool limit (max: {bound} {currency})"
        if bound is None or currency != ETH or not is_decoded:
            return (
                "amount-exceeds-limit",
                f"the tool has a maximum, and an amount in `{currency}` cannot be held against it",
            )
    if amount.unknown or (amount.usd and limit is None):
        why = amount.unknown or "it has none in dollars"
        return "amount-exceeds-limit", f"the tool has a maximum, and the amount is not known: {why}"
    return None


def _filled(policy: ToolPolicy, defaults: ToolPolicy) -> ToolPolicy:
    found: dict[str, Any] = {
        name: getattr(defaults, name)
        for name in field_names(policy)
        if getattr(policy, name) is None
    }
    return replace(policy, **found)
