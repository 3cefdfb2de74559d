"""Tests of signer/keys.py: what a transaction spends, and limits."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor.structs import replace
from skillhouse.frontends.cli.signing_keys import KINDS
from skillhouse_signer import (
    KeyKind,
    Limit,
    SignerError,
    Spend,
    Transaction,
    TransactionEffect,
    amount_text,
    decimal_amount,
    limit_text,
    movement_of,
    terms_from,
)
from skillhouse_signer.keys import smallest, whole
from tests.signer.places import ALICE, BOB, ETH, FEE, TOKEN, payment, token_call

COIN, TOKENS = "eip155:1", f"eip155:1/erc20:{TOKEN}"
FEES = Spend(currency=COIN, amount=FEE, recipient="fee")


def test_a_payment_is_its_value_and_the_greatest_fee() -> None:
    assert movement_of(payment(ETH)) == TransactionEffect(
        call="send",
        spends=(FEES, Spend(currency=COIN, amount=ETH, recipient=ALICE)),
        is_countable=True,
    )
    assert movement_of(payment(ETH)).totals() == {COIN: ETH + FEE}


@pytest.mark.parametrize(
    ("transaction", "call", "recipient"),
    [
        (token_call("a9059cbb", BOB, 5), "transfer", BOB),
        (token_call("23b872dd", ALICE, BOB, 5), "transferFrom", BOB),
        (token_call("095ea7b3", BOB, 5), "approve", BOB),
    ],
)
def test_a_call_of_a_token_shows_who_gets_how_much(
    transaction: Transaction, call: str, recipient: str
) -> None:
    assert movement_of(transaction) == TransactionEffect(
        call=call,
        spends=(FEES, Spend(currency=TOKENS, amount=5, recipient=recipient)),
        is_countable=True,
        contract=TOKEN,
    )


def test_value_that_goes_along_with_a_call_is_counted_too() -> None:
    found = movement_of(token_call("a9059cbb", BOB, 5, value=7))
    assert found.totals() == {COIN: FEE + 7, TOKENS: 5}
    assert found.recipients == (TOKEN, BOB)


TRANSFER = token_call("a9059cbb", BOB, 5)


@pytest.mark.parametrize(
    "transaction",
    [
        token_call("d0e30db0"),
        token_call("a9059cbb", BOB),
        token_call("a9059cbb", BOB, 5, 6),
        payment(0, TOKEN, data=TRANSFER.data + b"\0"),
        payment(0, TOKEN, data=TRANSFER.data[:-1]),
        payment(0, TOKEN, data=b"\xa9\x05\x9c"),
        token_call("a9059cbb", "0x1" + BOB[2:], 5),
    ],
    ids=["other", "short", "long", "one more byte", "one byte less", "no selector", "dirty"],
)
def test_any_other_call_is_unknown(transaction: Transaction) -> None:
    found = movement_of(transaction)
    assert (found.call, found.is_countable, found.contract) == ("unknown", False, TOKEN)


def test_a_new_contract_cannot_be_counted() -> None:
    found = movement_of(replace(payment(3, data=b"\x60"), to=None))
    assert (found.call, found.is_countable, found.recipients) == ("create", False, ("",))


@given(amount=st.integers(0, 2**256 - 1))
def test_an_amount_is_shown_exactly(amount: int) -> None:
    assert smallest(COIN, whole(amount)) == amount
    assert decimal_amount(COIN, amount) == Decimal(whole(amount))


def test_an_unlimited_allowance_says_so() -> None:
    assert amount_text(TOKENS, 2**256 - 1) == f"UNLIMITED of token {TOKEN} on chain 1"
    assert amount_text("eip155:777", 5 * ETH) == "5 of the coin of chain 777"


def test_limits_come_from_a_persons_words() -> None:
    terms = terms_from((f"{COIN}=0.05/1", f"EIP155:1/erc20:{TOKEN.upper().replace('X', 'x')}=5/9"))
    assert terms.limits == (
        Limit(currency=COIN, per_transaction=ETH // 20, per_day=ETH),
        Limit(currency=TOKENS, per_transaction=5, per_day=9),
    )
    assert limit_text(terms.limits[0]) == "0.05 ETH at once, 1 ETH in 24 hours"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (("0.5/1",), "expected CURRENCY=EACH/DAY"),
        (("eip155:1=0.5",), "expected CURRENCY=EACH/DAY"),
        (("ETH=0.5/1",), "as a currency"),
        (("eip155:0=0.5/1",), "as a currency"),
        (("eip155:1=2/1",), "more at once than in a day"),
        (("eip155:1=-1/1",), "expected an amount"),
        (("eip155:1=1e3/1e4",), "expected an amount"),
        (("eip155:1=0.0000000000000000001/1",), "expected an amount"),
        ((f"{TOKENS}=0.5/1",), "whole base units"),
        (("message=1/2", "message=2/3"), "one limit for `message`"),
    ],
)
def test_a_limit_that_is_unclear_is_refused(limits: tuple[str, ...], reason: str) -> None:
    with pytest.raises(SignerError, match=reason):
        terms_from(limits)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(SignerError, match="40 hex digits"):
        terms_from((), ("mika.eth",))


def test_the_command_line_offers_the_kinds_of_the_signer() -> None:
    assert [str(kind) for kind in KeyKind] == list(KINDS)
