"""The values of the tier policy: amounts, a tool's entry, a call, its history, the verdict."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct, field

from skillhouse.floor.regex import regex
from skillhouse.floor.rules import Effect


class TierLevel(enum.StrEnum):
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


class Cooldown(Struct, frozen=True, kw_only=True):
    """How often a tool may succeed; None is without a bound."""

    max_per_hour: int | None = None
    max_per_day: int | None = None
    min_interval_ms: int | None = None


class ToolPolicy(Struct, frozen=True, kw_only=True):
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


class Thresholds(Struct, frozen=True, kw_only=True):
    """Amounts at which a tier ends, in US dollars; the numbers are the published ones."""

    tier3_max_usd: Decimal = Decimal(5)
    tier2_max_usd: Decimal = Decimal(50)
    tier2_daily_usd: Decimal = Decimal(200)
    session_key_ttl_hours: int = 24
    session_key_max_balance: Decimal = Decimal("0.05")
    """In ETH; for whoever makes session keys."""


class EmergencyStop(Struct, frozen=True, kw_only=True):
    """How everything is stopped by a message, and what a stop does besides."""

    enabled: bool = True
    """False: messages and triggers stop nothing; `skillhouse stop` always does."""
    commands: tuple[str, ...] = ("/stop", "/emergency", "/halt")
    channels: tuple[str, ...] = ()
    """Where the commands count; empty is everywhere."""
    action: Literal["revoke-all-session-keys", "pause-all", "shutdown"] = "revoke-all-session-keys"


class TierCall(Struct, frozen=True, kw_only=True):
    """A call, as far as tiers judge it."""

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


class TierState(Struct, frozen=True, kw_only=True):
    """What earlier calls left, as far as tiers judge by it."""

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


class TierVerdict(Struct, frozen=True, kw_only=True):
    """What the tiers say of one call."""

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


USD, ETH = "usd", "eth"

AMOUNT_MAX = Decimal(10) ** 30
"""No valid amount is larger."""
NODES_MAX = 1_000
"""Lists and mappings of the arguments that are searched; more is an unknown amount."""
DEPTH_MAX = 16

_USD_KEYS = frozenset({"amountusd", "valueusd"})
"""`amountUsd`, `amount_usd`, `valueUsd`, `value_usd` (published), and other ways to write them."""
_BITS_MAX = 128
_TEXT = regex(
    r"(?P<mark>\$|[A-Za-z]{2,10})?[ ]*(?P<number>[0-9]{1,31}(?:\.[0-9]{1,30})?)"
    r"[ ]*(?P<unit>\$|[A-Za-z]{2,10})?"
)
_FREE = frozenset({"message"})
"""Currencies of the signer that are no money: a message counts one."""
_ETH_CHAINS = frozenset({"eip155:1", "eip155:10", "eip155:8453", "eip155:42161"})
"""Chains whose own coin is ether, as the signer names them (CAIP-2)."""


class Amount(Struct, frozen=True, kw_only=True):
    """What a call spends."""

    usd: Decimal = Decimal(0)
    others: tuple[tuple[str, Decimal, bool], ...] = ()
    """Other currencies: label, amount, and whether skillhouse decoded it. Their worth in dollars
    is not known."""
    unknown: str = ""
    """Why the amount is not known; empty when it is."""

    @property
    def is_none(self) -> bool:
        return not (self.usd or self.others or self.unknown)


class _UnknownAmountError(Exception):
    """An amount cannot be read; private to this file."""


def read_amount(
    arguments: Mapping[str, Any], spends: Sequence[tuple[str, Decimal]] | None = ()
) -> Amount:
    """Return what a call spends by its arguments and by its decoded transaction.

    Of several amounts beside each other the largest counts; those of nested objects are added.
    Text is read as a number. Nothing is guessed: `1,000`, a negative number, `NaN` or digits of
    another script make the amount unknown, which is never the same as none.

    >>> read_amount({"amount": "50.00", "amountUsd": 3}).usd
    Decimal('50.00')
    >>> read_amount({"amount": 50, "currency": "ETH"}).others
    (('eth', Decimal('50'), False),)
    >>> read_amount({"amount": "1e400"}).unknown
    'expected an amount such as 12.50 in `amount`'
    """
    try:
        sums = _AmountReader().sums(arguments, 0)
    except _UnknownAmountError as error:
        return Amount(unknown=str(error))
    if spends is None:
        return Amount(usd=sums.get(USD, Decimal(0)), unknown="what it spends cannot be determined")
    usd = sums.pop(USD, Decimal(0))
    others = [(currency, amount, False) for currency, amount in sorted(sums.items())]
    decoded: dict[str, Decimal] = {}
    for currency, amount in spends:
        label = currency.strip().lower()
        if label in _FREE or not amount:
            continue
        if not amount.is_finite() or amount < 0:
            return Amount(usd=usd, unknown=f"expected an amount of `{label}` that is not negative")
        label = ETH if label in _ETH_CHAINS else label
        decoded[label] = decoded.get(label, Decimal(0)) + amount
    usd = max(usd, decoded.pop(USD, Decimal(0)))
    others += [(currency, amount, True) for currency, amount in sorted(decoded.items())]
    return Amount(usd=usd, others=tuple(others))


class _AmountReader:
    def __init__(self) -> None:
        self._nodes = 0

    def sums(self, value: Any, depth: int) -> dict[str, Decimal]:
        if not isinstance(value, Mapping | list | tuple):
            return {}
        self._nodes += 1
        if self._nodes > NODES_MAX or depth >= DEPTH_MAX:
            raise _UnknownAmountError("the arguments are too large to look for amounts in them")
        found = _own(value) if isinstance(value, Mapping) else {}
        for item in value.values() if isinstance(value, Mapping) else value:
            for currency, amount in self.sums(item, depth + 1).items():
                found[currency] = found.get(currency, Decimal(0)) + amount
        return found


def _own(fields: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the largest amount of each currency among the fields of one object."""
    found: dict[str, Decimal] = {}
    currencies = [value for key, value in fields.items() if _folded(key) == "currency"]
    for key, value in fields.items():
        name = _folded(key)
        if value is None or name not in (*_USD_KEYS, "amount"):
            continue
        number, unit = _number(key, value)
        # Several labels: each may be the one that the tool goes by.
        labels = [_label(label) for label in currencies if label is not None]
        if name in _USD_KEYS:
            labels = [USD]
        if unit or not labels:
            labels.append(unit or USD)
        for label in labels:
            found[label] = max(found.get(label, Decimal(0)), number)
    return {currency: amount for currency, amount in found.items() if amount}


def _folded(key: object) -> str:
    return str(key).lower().replace("_", "").replace("-", "")


def _label(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[ ]*[A-Za-z]{2,10}[ ]*", value):
        raise _UnknownAmountError("expected a currency such as USD in `currency`")
    return value.strip().lower()


def _number(key: str, value: object) -> tuple[Decimal, str]:
    """Return a number, and the currency that its text names or ""."""
    unit = ""
    if isinstance(value, bool):
        number = None
    elif isinstance(value, int):
        # Turning more digits into a decimal would cost more than looking at them is worth.
        number = Decimal(value) if value.bit_length() <= _BITS_MAX else None
    elif isinstance(value, float | Decimal):
        number = Decimal(repr(value)) if isinstance(value, float) else value
    else:
        number, unit = _from_text(value)
    if number is None or not number.is_finite() or not 0 <= number <= AMOUNT_MAX:
        raise _UnknownAmountError(f"expected an amount such as 12.50 in `{key}`")
    return number, unit


def _from_text(value: object) -> tuple[Decimal | None, str]:
    found = _TEXT.fullmatch(value.strip(" ")) if isinstance(value, str) else None
    if found is None:
        return None, ""
    named = {
        USD if name == "$" else name.lower()
        for name in (found["mark"], found["unit"])
        if name is not None
    }
    if len(named) > 1:
        return None, ""
    return Decimal(found["number"]), named.pop() if named else ""
