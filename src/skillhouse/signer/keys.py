"""The public part of a key: its identity and the terms under which it signs."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from skillhouse.signer.movement import amount_text, checked_currency, smallest
from skillhouse.signer.signer_errors import SignerError

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
"""Names of keys: no blank, so that a resource of the policy stays one word per part."""


class KeyKind(enum.StrEnum):
    """What a key signs."""

    ED25519 = "ed25519"
    """Messages (RFC 8032)."""
    SECP256K1 = "secp256k1"
    """Messages (EIP-191) and EVM transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much of one currency a key may spend; in the smallest unit."""

    currency: str
    per_transaction: int
    per_day: int
    """In any 24 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a key may do. They are sealed with the key, so that a change needs the password."""

    limits: tuple[Limit, ...] = ()
    """A key with limits signs only what they name and what can be counted."""
    recipients: tuple[str, ...] = ()
    """Addresses that may get something; empty is any."""
    contracts: tuple[str, ...] = ()
    """Contracts that may be called; empty is any whose currency has a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo:
    """One key, without its secret."""

    id: str
    """`ed25519:` and the public key in hex, or `0x` and the address: who the key is."""
    name: str
    kind: KeyKind
    public_key: str
    """Hex; 32 bytes, or 33 (compressed)."""
    created_ms: int
    terms: Terms = Terms()
    account: str = ""
    """Where its spending is counted; a rotated session key goes on with its predecessor's."""
    session_seconds: int = 0
    """Life of a session key from `created_ms` on; 0 for a key that does not end."""

    @property
    def is_session(self) -> bool:
        """Whether the key lives for a session only and may sign without a person's approval."""
        return self.session_seconds > 0

    @property
    def expires_ms(self) -> int:
        return self.created_ms + self.session_seconds * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """The keys of one keystore, in the order they came."""

    store_id: str
    """Random; the counters and the OS keyring know the keystore by it."""
    keys: tuple[KeyInfo, ...] = ()

    def get(self, name: str) -> KeyInfo:
        """Return a key by name.

        Raises:
            SignerError: "unknown-key", naming those that there are.
        """
        for key in self.keys:
            if key.name == name:
                return key
        known = ", ".join(f"`{key.name}`" for key in self.keys) or "none: ask the user to make one"
        raise SignerError("unknown-key", f"no key `{name}`; there are {known}")


def checked_name(name: str) -> str:
    """Return a name that fits.

    Raises:
        SignerError: "name-taken": it does not.
    """
    if not NAME.fullmatch(name):
        raise SignerError(
            "name-taken",
            f"expected a name of 1 to 32 lowercase letters, digits and hyphens, got: {name[:64]}",
        )
    return name


def limit_from(text: str) -> Limit:
    """Return a limit from `CURRENCY=EACH/DAY`.

    Raises:
        SignerError: "limit": it has another form, or allows more at once than in a day.

    >>> limit_from("eip155:1=0.05/0.2").per_day
    200000000000000000
    """
    currency, _, amounts = text.rpartition("=")
    each, _, day = amounts.partition("/")
    if not currency or not day:
        raise SignerError("limit", f"expected CURRENCY=EACH/DAY as a limit, got: {text}")
    currency = checked_currency(currency)
    limit = Limit(
        currency=currency,
        per_transaction=smallest(currency, each),
        per_day=smallest(currency, day),
    )
    if limit.per_transaction > limit.per_day:
        raise SignerError("limit", f"more at once than in a day: {text}")
    return limit


def address_from(text: str) -> str:
    """Return an address in its one form: lowercase.

    Raises:
        SignerError: "recipient": it is none.
    """
    address = text.strip().lower()
    if not re.fullmatch(r"0x[0-9a-f]{40}", address):
        raise SignerError("recipient", f"expected 0x and 40 hex digits as an address, got: {text}")
    return address


def terms_from(
    limits: tuple[str, ...], recipients: tuple[str, ...] = (), contracts: tuple[str, ...] = ()
) -> Terms:
    """Return terms from a person's words; each currency has one limit.

    Raises:
        SignerError: a limit or an address has no such form.
    """
    parsed_limits = tuple(limit_from(text) for text in limits)
    names = [limit.currency for limit in parsed_limits]
    for name in names:
        if names.count(name) > 1:
            raise SignerError("limit", f"expected one limit for `{name}`, got several")
    return Terms(
        limits=parsed_limits,
        recipients=tuple(address_from(text) for text in recipients),
        contracts=tuple(address_from(text) for text in contracts),
    )


def limit_text(limit: Limit) -> str:
    """Return a limit in a person's words."""
    each = amount_text(limit.currency, limit.per_transaction)
    return f"{each} at once, {amount_text(limit.currency, limit.per_day)} in 24 hours"
