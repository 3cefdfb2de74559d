"""The recipients and amounts of a transaction, from its bytes alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from skillhouse.signer.signer_errors import SignerError
from skillhouse.signer.transaction import ADDRESS_BYTES, Transaction

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

_CURRENCY = re.compile(r"message|eip155:[1-9][0-9]{0,19}(/erc20:0x[0-9a-f]{40})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount that leaves, or may leave, the key's account."""

    currency: str
    """`message`, `eip155:CHAIN` for a chain's own coin, `eip155:CHAIN/erc20:ADDRESS` (CAIP-2,
    CAIP-19)."""
    amount: int
    """In the smallest unit."""
    recipient: str
    """Address, `fee`, or "" for a new contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
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


def movement_of(transaction: Transaction) -> Movement:
    """Return what a transaction moves; the fee counts with the greatest amount it can have."""
    coin = coin_of(transaction.chain_id)
    target = address_text(transaction.to) if transaction.to is not None else ""
    spends = [Spend(currency=coin, amount=transaction.fee_bound, recipient="fee")]
    if transaction.value or not transaction.data:
        spends.append(Spend(currency=coin, amount=transaction.value, recipient=target))
    if transaction.to is None:
        return Movement(call="create", spends=tuple(spends), is_countable=False)
    if not transaction.data:
        return Movement(call="send", spends=tuple(spends), is_countable=True)
    call, values = _arguments(transaction.data)
    if not values:
        return Movement(call="unknown", spends=tuple(spends), is_countable=False, contract=target)
    # The last address gets or may take the tokens; transferFrom is counted whoever it takes from.
    spends.append(
        Spend(
            currency=f"{coin}/erc20:{target}",
            amount=int.from_bytes(values[-1]),
            recipient=address_text(values[-2][-ADDRESS_BYTES:]),
        )
    )
    return Movement(call=call, spends=tuple(spends), is_countable=True, contract=target)


def message_movement() -> Movement:
    spend = Spend(currency=MESSAGE, amount=1, recipient="fee")
    return Movement(call="message", spends=(spend,), is_countable=True)


def coin_of(chain_id: int) -> str:
    """Return the currency of a chain's own coin.

    >>> coin_of(1)
    'eip155:1'
    """
    return f"eip155:{chain_id}"


def address_text(address: bytes) -> str:
    """Return an address as 0x and 40 lowercase hex digits."""
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

    >>> whole(10), whole(2 * 10**18)
    ('0.00000000000000001', '2')
    """
    # Not `Decimal.scaleb`, which rounds to the context's precision.
    units, rest = divmod(amount, 10**NATIVE_DECIMALS)
    return f"{units}.{rest:0{NATIVE_DECIMALS}}".rstrip("0").rstrip(".")


def smallest(currency: str, text: str) -> int:
    """Return a person's amount in the smallest unit: coins as decimals, tokens as base units.

    Raises:
        SignerError: "limit": no such number, or finer than the smallest unit.

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
    """Return a currency in its one form, with a lowercase address.

    Raises:
        SignerError: "limit": it has no such form.
    """
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
