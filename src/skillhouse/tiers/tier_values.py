"""The values of the tier policy: a tool's entry, a call, its history, the verdict."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from skillhouse.floor.effect import Effect


class TierLevel(enum.StrEnum):
    """What a tool can do at most."""

    READ = "read"
    WRITE = "write"
    SIGN = "sign"


class Tier(enum.StrEnum):
    """How far a person is involved in a call; the smaller the number, the more."""

    NONE = "none"
    """Reads only: neither asked about nor counted."""
    THREE = "3"
    """Low risk: automatic, counted and logged."""
    TWO = "2"
    """A session key's; asked about in the chat where the policy says so."""
    ONE = "1"
    """Always asked about, in the companion app or on the transaction page."""


TIER_ORDER = (Tier.NONE, Tier.THREE, Tier.TWO, Tier.ONE)
"""Mildest first."""

LEVEL_TIERS = {TierLevel.READ: Tier.NONE, TierLevel.WRITE: Tier.THREE, TierLevel.SIGN: Tier.TWO}
"""The tier of a tool of which the policy says none (S000-91); amounts lift a signature to 1."""

ASSIGNEE_ONLY = "assignee-only"
INLINE, COMPANION_APP, NOTIFICATION, PAGE = "inline", "companion-app", "notification", "page"
CHANNELS = (INLINE, COMPANION_APP, NOTIFICATION)
"""Where a policy may let a call be confirmed; it cannot choose the page."""

TIMEOUT_SECONDS = 120
"""How long a tier's confirmation waits (the published default; S000-102)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """How often a tool may succeed; None is without a bound."""

    max_per_hour: int | None = None
    max_per_day: int | None = None
    min_interval_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """The entry of some tools in a policy; None for a key without a value."""

    tier: Tier | None = None
    require_confirmation: bool | None = None
    confirmation_channel: str | None = None
    max_amount: Mapping[str, Decimal] | None = None
    """By `usd`, `eth` and `token`: more is refused."""
    cooldown: Cooldown | None = None
    allowed_users: tuple[str, ...] | Literal["assignee-only"] | None = None
    escalate_above: Mapping[str, Decimal] | None = None
    """By `usd`, `eth` and `token`: more goes to tier 1."""
    timeout_seconds: int | None = None


FALLBACK = ToolPolicy(tier=Tier.ONE, require_confirmation=True, confirmation_channel=COMPANION_APP)
"""The policy of a tool without an entry (published, fail-closed; S000-107)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Amounts at which a tier ends, in US dollars; the numbers are the published ones."""

    tier3_max_usd: Decimal = Decimal(5)
    tier2_max_usd: Decimal = Decimal(50)
    tier2_daily_usd: Decimal = Decimal(200)
    session_key_ttl_hours: int = 24
    session_key_max_balance: Decimal = Decimal("0.05")
    """In ETH; for whoever makes session keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmergencyStop:
    """How everything is stopped by a message, and what a stop does besides."""

    enabled: bool = True
    """False: messages and triggers stop nothing; `skillhouse stop` always does."""
    commands: tuple[str, ...] = ("/stop", "/emergency", "/halt")
    channels: tuple[str, ...] = ()
    """Where the commands count; empty is everywhere."""
    action: Literal["revoke-all-session-keys", "pause-all", "shutdown"] = "revoke-all-session-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCall:
    """One call, as the tier policy sees it."""

    tool: str
    """The name on the wire, `skill__tool` for a skill's."""
    user: str
    level: TierLevel | None = None
    """None when the tool declares no level."""
    is_vouched: bool = False
    """Whether skillhouse or its operator gave the level, and not the tool's own author."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    spends: Sequence[tuple[str, Decimal]] | None = ()
    """Decoded spending as currency and amount; None when it cannot be determined."""
    session_key: str = ""
    """State of the session key that would sign: active, missing, expired, revoked; "" is none."""
    reachable: frozenset[str] = frozenset({INLINE})
    """The channels on which a person can be asked now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierState:
    """The history that matters to one call."""

    stopped: str = ""
    """Why everything is stopped; empty when it is not."""
    is_companion_lost: bool = False
    """Whether the companion app has been away too long: only reads go on."""
    denials: int = 0
    """Recent consecutive denials of this tool by this user."""
    uses_ms: tuple[int, ...] = ()
    """How long ago this tool was used with success, or may have been, in the last 24 hours."""
    spent_usd: Decimal = Decimal(0)
    """What this user spent, or may have spent, in the last 24 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierVerdict:
    """The verdict on a call."""

    effect: Effect
    tier: Tier
    """The tier of the tool in the policy."""
    effective_tier: Tier
    """The tier after escalation."""
    reason: str = ""
    """Why it was escalated or refused, as a word that programs may compare; empty when it was
    not."""
    message: str = ""
    """The reason for people."""
    source: str = ""
    """Which part of the policy matched: `tools.exec`, `wildcards *__get_*`, `fallback`, `level`."""
    channel: str = ""
    """Where the person is asked; empty unless the effect is ask."""
    timeout_seconds: int = 0
    """How long the question waits; without an answer the call is denied."""
    amount_usd: Decimal = Decimal(0)
    """What the call spends in dollars, as far as it is known."""
    reservation: str = ""
    """To be settled when the call has ended, however it did; empty when nothing is held."""
