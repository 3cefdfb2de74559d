"""The amount that a call declares to spend: read strictly, because a model writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

USD, ETH = "usd", "eth"

AMOUNT_MAX = Decimal(10) ** 30
"""No valid amount is larger."""
NODES_MAX = 1_000
"""Lists and mappings of the arguments that are searched; more is an unknown amount."""
DEPTH_MAX = 16

_USD_KEYS = frozenset({"amountusd", "valueusd"})
"""`amountUsd`, `amount_usd`, `valueUsd`, `value_usd` (published), and other ways to write them."""
_BITS_MAX = 128
_TEXT = re.compile(
    r"(?P<mark>\$|[A-Za-z]{2,10})?[ ]*(?P<number>[0-9]{1,31}(?:\.[0-9]{1,30})?)"
    r"[ ]*(?P<unit>\$|[A-Za-z]{2,10})?"
)
_FREE = frozenset({"message"})
"""Currencies of the signer that are no money: a message counts one."""
_ETH_CHAINS = frozenset({"eip155:1", "eip155:10", "eip155:8453", "eip155:42161"})
"""Chains whose own coin is ether, as the signer names them (CAIP-2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
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
    """Looks through arguments, within bounds."""

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
