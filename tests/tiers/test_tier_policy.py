"""Tests of tiers/tier_policy.py: the decision alone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.permission import STRICTNESS, Effect
from skillhouse.tiers import Tier, TierCall, TierLevel, TierPolicy, TierState, TierVerdict
from skillhouse.tiers.tier_policy import DENIALS_MAX
from skillhouse.tiers.tier_values import TIER_ORDER, ToolPolicy
from tests.tiers.engine import EVERYWHERE, policy_of

HOUSE = frozenset({"mika"})


def decided(
    tool: str,
    policy: TierPolicy | None = None,
    state: TierState | None = None,
    **values: Any,
) -> TierVerdict:
    """Decide a call of mika's."""
    given: dict[str, Any] = {
        "level": TierLevel.WRITE,
        "is_vouched": True,
        "reachable": EVERYWHERE,
    } | values
    call = TierCall(tool=tool, user=given.pop("user", "mika"), **given)
    return (policy or policy_of()).decide(call, state or TierState())


def short(verdict: TierVerdict) -> tuple[str, str, str]:
    return verdict.effect.value, verdict.effective_tier.value, verdict.reason


@pytest.mark.req("S000-88", "S000-89")
@pytest.mark.parametrize(
    ("tool", "tier", "source"),
    [
        ("approve__set_allowance", Tier.ONE, "tools.approve__set_allowance"),
        ("x__approve_small", Tier.ONE, "wildcards *__approve_*"),
        ("nobody__knows", Tier.ONE, "fallback"),
        ("exec", Tier.TWO, "tools.exec"),
        ("exec2", Tier.ONE, "fallback"),
    ],
)
def test_an_exact_name_beats_the_first_wildcard_and_that_the_fallback(
    tool: str, tier: Tier, source: str
) -> None:
    verdict = decided(tool)
    assert (verdict.tier, verdict.source) == (tier, source)


def test_an_exact_name_beats_a_wildcard_that_is_stricter() -> None:
    text = "version: '1'\ntools: {a__b: {tier: 3}}\nwildcards: [{pattern: 'a__*', tier: 1}]\n"
    assert decided("a__b", policy_of(text)).tier is Tier.THREE
    assert decided("a__c", policy_of(text)).tier is Tier.ONE


@pytest.mark.req("S000-90")
def test_defaults_fill_each_open_field() -> None:
    policy = policy_of(
        "version: '1'\ndefaults: {timeout: 30, confirmationChannel: notification, tier: 2}\n"
        "tools:\n  a: {requireConfirmation: true}\n  b: {tier: 2, timeout: 5, "
        "requireConfirmation: true, confirmationChannel: inline}\n"
    )
    a, b = decided("a", policy), decided("b", policy)
    assert (a.tier, a.channel, a.timeout_seconds) == (Tier.TWO, "notification", 30)
    assert (b.tier, b.channel, b.timeout_seconds) == (Tier.TWO, "inline", 5)


@pytest.mark.req("S000-91")
def test_levels_give_tiers_where_no_policy_speaks() -> None:
    policy = TierPolicy(assignees=HOUSE)
    assert short(decided("read", policy, level=TierLevel.READ)) == ("allow", "none", "")
    assert short(decided("write", policy)) == ("allow", "3", "")
    sign: dict[str, Any] = {"level": TierLevel.SIGN, "session_key": "active"}
    assert short(decided("sign", policy, **sign)) == ("allow", "2", "")
    large = decided("sign", policy, **sign, spends=[("usd", Decimal(51))])
    assert short(large) == ("ask", "1", "tier2-max-exceeded")
    assert short(decided("sign", policy, **sign, spends=None)) == ("ask", "1", "amount-unknown")


@pytest.mark.req("S000-92")
@pytest.mark.parametrize("level", list(TierLevel))
def test_what_the_policy_names_is_preferred_to_the_level(level: TierLevel) -> None:
    text = "version: '1'\ntools:\n  a: {tier: 1}\n  b: {tier: 3}\n"
    assert decided("a", policy_of(text), level=level).tier is Tier.ONE
    assert decided("b", policy_of(text), level=level).tier is Tier.THREE


def test_no_policy_makes_a_signature_a_read() -> None:
    policy = policy_of("version: '1'\ntools: {sign: {tier: none}}\n")
    assert decided("sign", policy, level=TierLevel.SIGN).tier is Tier.THREE
    spends = [("usd", Decimal(6))]
    paying = decided("list_files", level=TierLevel.READ, spends=spends)
    assert (paying.tier, paying.effective_tier) == (Tier.THREE, Tier.TWO)


@pytest.mark.req("S000-93")
def test_tier_3_ends_above_its_amount() -> None:
    at, above = (decided("gas__refuel", arguments={"amount": a}) for a in ("5.00", "5.01"))
    assert short(at) == ("allow", "3", "")
    assert short(above) == ("allow", "2", "tier3-max-exceeded")
    assert short(decided("gas__refuel", arguments={"amount": 51}))[1:] == (
        "1",
        "tier2-max-exceeded",
    )


@pytest.mark.req("S000-94")
def test_tier_2_escalates_above_its_bound_only() -> None:
    at, above = (decided("dex-swap__swap", arguments={"amountUsd": a}) for a in ("40", "40.01"))
    assert short(at) == ("allow", "2", "")
    assert short(above) == ("ask", "1", "escalate-above-threshold")


@pytest.mark.req("S000-95")
def test_tier_2_escalates_above_its_amount() -> None:
    policy = policy_of("version: '1'\ntools: {pay: {tier: 2}}\n")
    at, above = (decided("pay", policy, arguments={"amountUsd": a}) for a in (50, "50.01"))
    assert short(at) == ("allow", "2", "")
    assert short(above) == ("ask", "1", "tier2-max-exceeded")


@pytest.mark.req("S000-96")
@pytest.mark.parametrize("tool", ["gas__refuel", "dex-swap__swap"])
def test_more_than_a_days_allowance_escalates(tool: str) -> None:
    spent = TierState(spent_usd=Decimal("195.00"))
    assert short(decided(tool, state=spent, arguments={"amount": 5}))[0] == "allow"
    over = decided(tool, state=spent, arguments={"amount": "5.00", "amountUsd": "5.001"})
    assert short(over) == ("ask", "1", "daily-limit-exceeded")


@pytest.mark.req("S000-97")
@pytest.mark.parametrize("state", ["missing", "expired", "revoked", "", "ACTIVE"])
def test_without_a_live_session_key_a_signature_is_confirmed(state: str) -> None:
    policy = TierPolicy(assignees=HOUSE)
    verdict = decided("sign", policy, level=TierLevel.SIGN, session_key=state)
    assert short(verdict) == ("ask", "1", "session-key-unavailable")


@pytest.mark.req("S000-98")
def test_noes_halt_a_tool_but_never_a_read() -> None:
    few, many = TierState(denials=DENIALS_MAX - 1), TierState(denials=DENIALS_MAX)
    assert short(decided("exec", state=few))[0] == "ask"
    assert short(decided("exec", state=many)) == ("deny", "2", "consecutive-denials-halt")
    assert short(decided("list_files", state=many)) == ("allow", "none", "")


@pytest.mark.req("S000-99", "S000-100")
def test_tier_1_always_asks_in_the_companion_app_and_tier_2_where_the_policy_says() -> None:
    one, two = decided("approve__set_allowance"), decided("exec")
    assert (one.effect, one.channel, one.timeout_seconds) == (Effect.ASK, "companion-app", 120)
    assert (two.effect, two.channel, two.timeout_seconds) == (Effect.ASK, "inline", 120)
    text = "version: '1'\ntools: {a: {tier: 1, confirmationChannel: inline}}\n"
    assert decided("a", policy_of(text)).channel == "companion-app"
    page = policy_of(text, tier1_channel="page")
    assert decided("a", page, reachable=frozenset({"page"})).channel == "page"


@pytest.mark.req("S000-101")
def test_a_companion_app_out_of_reach_is_a_no() -> None:
    inline = frozenset({"inline"})
    verdict = decided("approve__set_allowance", reachable=inline)
    assert short(verdict) == ("deny", "1", "companion-app-unreachable")
    assert short(decided("exec", reachable=frozenset())) == ("deny", "2", "nobody-reachable")


@pytest.mark.req("S000-104")
def test_cooldowns_refuse_in_the_published_words() -> None:
    hour = TierState(uses_ms=(3_599_999, 10))
    assert decided("gas__refuel", state=hour).message == "Hourly limit exceeded (2 per hour)"
    day = TierState(uses_ms=(86_399_999, 3_600_000, 3_600_000))
    assert decided("gas__refuel", state=day).message == "Daily limit exceeded (3 per day)"
    gap = TierState(uses_ms=(80_000_000, 400))
    assert decided("exec", state=gap).message == "Please wait 3s before retrying"
    assert decided("exec", state=TierState(uses_ms=(2_500,))).effect is Effect.ASK
    over = TierState(uses_ms=(3_600_000, 86_400_000, 86_400_000))
    assert decided("gas__refuel", state=over).effect is Effect.ALLOW


@pytest.mark.req("S000-106")
def test_users_who_are_not_listed_are_refused() -> None:
    policy = policy_of(
        "version: '1'\ntools:\n  a: {tier: 3, allowedUsers: [noa]}\n  b: {tier: 3}\n"
        "  c: {tier: none, allowedUsers: [noa]}\n  d: {tier: 3, allowedUsers: []}\n"
        "  e: {tier: none, allowedUsers: assignee-only}\n"
    )
    allowed = {
        (tool, user): decided(tool, policy, user=user).reason
        for tool in "abcde"
        for user in ("mika", "noa")
    }
    no = "user-not-allowed"
    assert allowed == {
        ("a", "mika"): no,
        ("a", "noa"): "",
        ("b", "mika"): "",
        ("b", "noa"): no,
        ("c", "mika"): no,
        ("c", "noa"): "",
        ("d", "mika"): no,
        ("d", "noa"): no,
        ("e", "mika"): "",
        ("e", "noa"): no,
    }


@pytest.mark.req("S000-107")
def test_a_tool_that_nobody_configured_falls_back_to_tier_1() -> None:
    for policy in (policy_of(), TierPolicy(assignees=HOUSE)):
        verdict = decided("new__tool", policy, level=None, is_vouched=False)
        assert short(verdict) == ("ask", "1", "")
        assert (verdict.channel, verdict.source) == ("companion-app", "fallback")


def test_a_fallback_is_never_milder_than_the_level_and_leaves_the_houses_reads_alone() -> None:
    policy = policy_of("version: '1'\nfallback: {tier: none}\n")
    assert decided("write", policy).tier is Tier.THREE
    assert decided("read", level=TierLevel.READ).tier is Tier.NONE


def test_while_stopped_reads_are_refused_too() -> None:
    stopped = TierState(stopped="a test (by mika)")
    for tool, level in (("read", TierLevel.READ), ("exec", TierLevel.WRITE)):
        verdict = decided(tool, state=stopped, level=level)
        assert (verdict.effect, verdict.reason) == (Effect.DENY, "emergency-stopped")


def test_with_the_companion_app_lost_only_reads_go_on() -> None:
    lost = TierState(is_companion_lost=True)
    assert decided("gas__refuel", state=lost).reason == "companion-app-offline"
    assert decided("list_files", state=lost).effect is Effect.ALLOW
    assert decided("read", state=lost, level=TierLevel.READ).effect is Effect.ALLOW


def test_a_maximum_refuses_what_is_over_it_or_cannot_be_held_against_it() -> None:
    at = decided("transfer__send", arguments={"amount": 20})
    assert short(at) == ("allow", "2", "")
    for amount in ({"amount": "20.01"}, {"amount": 1, "currency": "BTC"}, {"amount": "1,0"}):
        verdict = decided("transfer__send", arguments=amount)
        assert short(verdict) == ("deny", "2", "amount-exceeds-limit"), amount
    assert decided("transfer__send", arguments={"amount": 21}).message == (
        "Amount exceeds tool limit (max: $20)"
    )


@pytest.mark.parametrize(
    ("spends", "expected"),
    [
        ([("eip155:8453", Decimal("0.01"))], ("allow", "2", "")),
        ([("eip155:8453", Decimal("0.011"))], ("ask", "1", "escalate-above-threshold")),
        ([("eip155:8453", Decimal("0.051"))], ("deny", "2", "amount-exceeds-limit")),
        ([("eip155:137", Decimal("0.01"))], ("deny", "2", "amount-exceeds-limit")),
    ],
)
def test_ether_that_the_house_decoded_has_bounds_of_its_own(
    spends: list[tuple[str, Decimal]], expected: tuple[str, str, str]
) -> None:
    policy = policy_of(
        "version: '1'\ntools: {sign: {tier: 2, escalateAbove: {eth: 0.01}, "
        "maxAmount: {eth: 0.05}}}\n"
    )
    verdict = decided("sign", policy, level=TierLevel.SIGN, session_key="active", spends=spends)
    assert short(verdict) == expected


AMOUNTS = st.decimals(min_value=0, max_value=600, places=2)
POLICIES = st.builds(
    ToolPolicy,
    tier=st.sampled_from(list(Tier)) | st.none(),
    require_confirmation=st.booleans() | st.none(),
    max_amount=st.none() | st.builds(lambda a: {"usd": a}, AMOUNTS),
    escalate_above=st.none() | st.builds(lambda a: {"usd": a}, AMOUNTS),
)


@given(
    tool=POLICIES,
    level=st.sampled_from(list(TierLevel)) | st.none(),
    amounts=st.tuples(AMOUNTS, AMOUNTS),
    spent=AMOUNTS,
)
def test_a_larger_amount_is_never_treated_more_mildly(
    tool: ToolPolicy, level: TierLevel | None, amounts: tuple[Decimal, Decimal], spent: Decimal
) -> None:
    policy = TierPolicy(tools={"a": tool}, assignees=HOUSE)
    verdicts = [
        decided(
            "a",
            policy,
            TierState(spent_usd=spent),
            level=level,
            session_key="active",
            arguments={"amount": str(amount)},
        )
        for amount in sorted(amounts)
    ]
    strict = [STRICTNESS.index(verdict.effect) for verdict in verdicts]
    assert strict == sorted(strict)
    for verdict in verdicts:
        order = TIER_ORDER.index
        assert order(verdict.effective_tier) >= order(verdict.tier)
        if verdict.effective_tier is Tier.ONE:
            assert verdict.effect is not Effect.ALLOW
