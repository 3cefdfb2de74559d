"""Keys without their secrets, the terms under which they sign, and what a transaction spends."""

from __future__ import annotations

import enum
import re
from decimal import Decimal

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.registry.passwords import SignerError
from skillhouse_signer.transaction import ADDRESS_BYTES, Transaction

MESSAGE = "message"
"""The currency of messages: each costs one."""
NATIVE_DECIMALS = 18
"""The EVM counts a chain's own coin in 10^-18 (Yellow Paper, section 2.1)."""
UNLIMITED = 1 << 255
"""Allowances from here on are taken for unlimited: wallets use 2^256 - 1 or 2^255."""

COINS = {
    1: "ETH",
    10: "ETH (OP Mainnet)",
    56: "BNB",
    100: "xDAI",
    137: "POL",
    8453: "ETH (Base)",
    42161: "ETH (Arbitrum One)",
    11155111: "ETH (Sepolia, a test chain)",
}
"""Names of chains' own coins (ethereum-lists/chains)."""

_WORD = 32
_SELECTORS = {
    bytes.fromhex("a9059cbb"): ("transfer", ("address", "amount")),
    bytes.fromhex("23b872dd"): ("transferFrom", ("address", "address", "amount")),
    bytes.fromhex("095ea7b3"): ("approve", ("address", "amount")),
}
"""The calls of ERC-20 that move tokens or allow another account to move them."""

_CURRENCY = regex(r"message|eip155:[1-9][0-9]{0,19}(/erc20:0x[0-9a-f]{40})?")


class Spend(Struct, frozen=True, kw_only=True):
    """An amount that leaves, or may leave, the key's account."""

    currency: str
    """`message`, `eip155:CHAIN` for a chain's own coin, `eip155:CHAIN/erc20:ADDRESS` (CAIP-2,
    CAIP-19).
    """
    amount: int
    """In the smallest unit."""
    recipient: str
    """Address, `fee`, or "" for a new contract."""


class TransactionEffect(Struct, frozen=True, kw_only=True):
    """What a transaction does, as far as its bytes show."""

    call: str
    """transfer, transferFrom, approve, send, create, or unknown."""
    spends: tuple[Spend, ...]
    is_countable: bool
    """Whether nothing else can leave the account: false for calls whose meaning is unknown."""
    contract: str = ""
    """The contract that is called; empty for a plain payment."""

    @property
    def recipients(self) -> tuple[str, ...]:
        """Everyone who gets something or may take something."""
        return tuple(dict.fromkeys(s.recipient for s in self.spends if s.recipient != "fee"))

    def totals(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for spend in self.spends:
            sums[spend.currency] = sums.get(spend.currency, 0) + spend.amount
        return sums


def movement_of(transaction: Transaction) -> TransactionEffect:
    """Return what a transaction moves; the fee counts with the greatest amount it can have."""
    coin = coin_of(transaction.chain_id)
    target = address_text(transaction.to) if transaction.to is not None else ""
    spends = [Spend(currency=coin, amount=transaction.fee_bound, recipient="fee")]
    if transaction.value or not transaction.data:
        spends.append(Spend(currency=coin, amount=transaction.value, recipient=target))
    if transaction.to is None:
        return TransactionEffect(call="create", spends=tuple(spends), is_countable=False)
    if not transaction.data:
        return TransactionEffect(call="send", spends=tuple(spends), is_countable=True)
    call, values = _arguments(transaction.data)
    if not values:
        return TransactionEffect(
            call="unknown", spends=tuple(spends), is_countable=False, contract=target
        )
    # The last address gets or may take the tokens; transferFrom is counted whoever it takes from.
    spends.append(
        Spend(
            currency=f"{coin}/erc20:{target}",
            amount=int.from_bytes(values[-1]),
            recipient=address_text(values[-2][-ADDRESS_BYTES:]),
        )
    )
    return TransactionEffect(call=call, spends=tuple(spends), is_countable=True, contract=target)


def message_movement() -> TransactionEffect:
    spend = Spend(currency=MESSAGE, amount=1, recipient="fee")
    return TransactionEffect(call="message", spends=(spend,), is_countable=True)


def coin_of(chain_id: int) -> str:
    return f"eip155:{chain_id}"


def address_text(address: bytes) -> str:
    return "0x" + address.hex()


def amount_text(currency: str, amount: int) -> str:
    """Return an amount for a person; a token's decimals are not known from a transaction.

    >>> amount_text("eip155:1", 1_500_000_000_000_000_000)
    '1.5 ETH'
    >>> amount_text("eip155:1/erc20:0x" + "ab" * 20, 7)
    '7 base units of token 0xabababababababababababababababababababab on chain 1'
    """
    if currency == MESSAGE:
        return f"{amount} messages"
    chain, _, token = currency.removeprefix("eip155:").partition("/erc20:")
    if token:
        number = "UNLIMITED" if amount >= UNLIMITED else f"{amount} base units"
        return f"{number} of token {token} on chain {chain}"
    return f"{whole(amount)} {COINS.get(int(chain), f'of the coin of chain {chain}')}"


def whole(amount: int) -> str:
    """Return an amount of 10^-18 units as an exact decimal number.

    >>> whole(10)
    '0.00000000000000001'
    """
    # Not `Decimal.scaleb`, which rounds to the context's precision.
    units, rest = divmod(amount, 10**NATIVE_DECIMALS)
    return f"{units}.{rest:0{NATIVE_DECIMALS}}".rstrip("0").rstrip(".")


def smallest(currency: str, text: str) -> int:
    """Return a person's amount in the smallest unit: coins as decimals, tokens as base units.

    "limit" refuses what is no such number, or finer than the smallest unit.

    >>> smallest("eip155:1", "0.05")
    50000000000000000
    """
    if not re.fullmatch(r"[0-9]{1,78}(\.[0-9]{1,18})?", text):
        raise SignerError("limit", f"expected an amount such as 0.05, got: {text}")
    decimals = NATIVE_DECIMALS if "/" not in currency and currency != MESSAGE else 0
    units, _, rest = text.partition(".")
    if len(rest) > decimals:
        raise SignerError("limit", f"`{currency}` is counted in whole base units, got: {text}")
    return int(units + rest.ljust(decimals, "0"))


def checked_currency(text: str) -> str:
    """Return a currency in its one form, with a lowercase address; "limit" refuses others."""
    currency = text.strip().lower()
    if not _CURRENCY.fullmatch(currency):
        raise SignerError(
            "limit",
            "expected `eip155:CHAIN`, `eip155:CHAIN/erc20:0xADDRESS` or `message` "
            f"as a currency, got: {text}",
        )
    return currency


def decimal_amount(currency: str, amount: int) -> Decimal:
    """Return an amount in whole coins, or in base units of a token, exactly."""
    return Decimal(whole(amount) if "/" not in currency and currency != MESSAGE else amount)


def _arguments(data: bytes) -> tuple[str, tuple[bytes, ...]]:
    """Return a known call and its words; none when the bytes are not exactly such a call."""
    call, kinds = _SELECTORS.get(data[:4], ("unknown", ()))
    words = tuple(data[at : at + _WORD] for at in range(4, len(data), _WORD))
    if len(data) != 4 + _WORD * len(kinds):
        return "unknown", ()
    for kind, word in zip(kinds, words, strict=True):
        # Dirty upper bytes: a contract may refuse them or read them otherwise.
        if kind == "address" and any(word[: _WORD - ADDRESS_BYTES]):
            return "unknown", ()
    return call, words


NAME = regex(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
"""Names of keys: no blank, so that a resource of the policy stays one word per part."""


class KeyKind(enum.StrEnum):
    """What a key signs."""

    ED25519 = "ed25519"
    """Messages (RFC 8032)."""
    SECP256K1 = "secp256k1"
    """Messages (EIP-191) and EVM transactions."""


class Limit(Struct, frozen=True, kw_only=True):
    """How much of one currency a key may spend; in the smallest unit."""

    currency: str
    per_transaction: int
    per_day: int
    """In any 24 hours."""


class Terms(Struct, frozen=True, kw_only=True):
    """What a key may do. They are sealed with the key, so that a change needs the password."""

    limits: tuple[Limit, ...] = ()
    """A key with limits signs only what they name and what can be counted."""
    recipients: tuple[str, ...] = ()
    """Addresses that may get something; empty is any."""
    contracts: tuple[str, ...] = ()
    """Contracts that may be called; empty is any whose currency has a limit."""


class KeyInfo(Struct, frozen=True, kw_only=True):
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


class KeyRecords(Struct, frozen=True, kw_only=True):
    """The keys of one keystore, in the order they came."""

    store_id: str
    """Random; the counters and the OS keyring know the keystore by it."""
    keys: tuple[KeyInfo, ...] = ()

    def get(self, name: str) -> KeyInfo:
        """Return a key by name; "unknown-key" names those that there are."""
        for key in self.keys:
            if key.name == name:
                return key
        known = ", ".join(f"`{key.name}`" for key in self.keys) or "none: ask the user to make one"
        raise SignerError("unknown-key", f"no key `{name}`; there are {known}")


def checked_name(name: str) -> str:
    """Return a name that fits; "name-taken" refuses one that does not."""
    if not NAME.fullmatch(name):
        raise SignerError(
            "name-taken",
            f"expected a name of 1 to 32 lowercase letters, digits and hyphens, got: {name[:64]}",
        )
    return name


def limit_from(text: str) -> Limit:
    """Return a limit from `CURRENCY=EACH/DAY`, which may not allow more at once than in a day.

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
    """Return an address in its one form, lowercase; "recipient" refuses what is none."""
    address = text.strip().lower()
    if not re.fullmatch(r"0x[0-9a-f]{40}", address):
        raise SignerError("recipient", f"expected 0x and 40 hex digits as an address, got: {text}")
    return address


def terms_from(
    limits: tuple[str, ...], recipients: tuple[str, ...] = (), contracts: tuple[str, ...] = ()
) -> Terms:
    """Return terms from a person's words, one limit a currency; SignerError for any other form."""
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
