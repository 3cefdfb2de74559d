"""Tests of tiers/tier_values.py."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.tiers.tier_values import NODES_MAX, Amount, read_amount


@pytest.mark.req("S000-111")
@pytest.mark.parametrize(
    ("arguments", "usd"),
    [
        ({}, "0"),
        ({"amountUsd": 50}, "50"),
        ({"amount_usd": "50"}, "50"),
        ({"valueUsd": 5.01}, "5.01"),
        ({"value_usd": " 5.01 "}, "5.01"),
        ({"amount": "$ 12.50"}, "12.50"),
        ({"amount": "12.50 USD"}, "12.50"),
        ({"amount": 7, "currency": " usd "}, "7"),
        ({"amount": 7, "currency": None}, "7"),
        ({"amount": None, "text": "a note", "count": 3}, "0"),
        ({"AMOUNT-USD": "3", "amountUSD": 4}, "4"),
        ({"payments": [{"amount": 3}, {"amount": "4", "note": "b"}]}, "7"),
    ],
)
def test_amounts_are_read_as_published_and_as_text(arguments: dict[str, Any], usd: str) -> None:
    assert read_amount(arguments) == Amount(usd=Decimal(usd))


@pytest.mark.req("S000-112")
@pytest.mark.parametrize(
    "arguments",
    [
        {"amount": 5, "currency": "EUR"},
        {"amount": "5 EUR"},
        {"amount": "EUR 5", "currency": "EUR"},
    ],
)
def test_another_currency_is_not_taken_for_dollars(arguments: dict[str, Any]) -> None:
    assert read_amount(arguments) == Amount(others=(("eur", Decimal(5), False),))


@pytest.mark.parametrize(
    "value",
    [
        "1,000",
        "1e3",
        "-5",
        "NaN",
        "٥٠",
        "５０",
        "",
        "five",
        "0x10",
        "9" * 40,
        "5\n",
        "USD 5 EUR",
        -5,
        float("nan"),
        float("inf"),
        10**40,
        True,
        [5],
        {"value": 5},
        Decimal("NaN"),
    ],
)
@pytest.mark.parametrize("key", ["amount", "amountUsd"])
def test_what_is_no_plain_amount_is_unknown_and_not_none(key: str, value: object) -> None:
    assert read_amount({key: value}).unknown == f"expected an amount such as 12.50 in `{key}`"


@pytest.mark.parametrize("currency", ["", "U S D", "ＵＳＤ", 5, ["USD"], "TOOLONGANAME"])
def test_a_currency_that_cannot_be_read_makes_the_amount_unknown(currency: object) -> None:
    assert read_amount({"amount": 5, "currency": currency}).unknown


def test_arguments_that_are_too_large_to_look_through_are_an_unknown_amount() -> None:
    deep: list[Any] = []
    for _ in range(50):
        deep = [deep]
    assert read_amount({"a": deep}).unknown
    assert read_amount({"a": [[]] * NODES_MAX}).unknown


def test_what_the_house_decoded_counts_beside_the_arguments() -> None:
    spends = [
        ("message", Decimal(1)),
        ("USD", Decimal(4)),
        ("eip155:8453", Decimal("0.01")),
        ("eip155:137", Decimal(0)),
    ]
    assert read_amount({"amount": 3}, spends) == Amount(
        usd=Decimal(4), others=(("eth", Decimal("0.01"), True),)
    )
    assert read_amount({"amount": 3}, None).unknown == "what it spends cannot be determined"
    assert read_amount({}, [("usd", Decimal(-1))]).unknown
    assert read_amount({}, [("message", Decimal(1))]).is_none


@given(
    arguments=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["amount", "x"]), inner),
    )
)
def test_nothing_in_the_arguments_breaks_the_reader_or_makes_an_amount_negative(
    arguments: Any,
) -> None:
    amount = read_amount({"a": arguments})
    assert amount.usd >= 0
    assert all(value > 0 for _, value, _ in amount.others)
