"""Attacks on the tier policy and the write gate (reference/seeds.md, 1.5, and some of our own).

Each first succeeds against a policy of the kind that the published design has, then meets ours.
"""

from __future__ import annotations

import fnmatch
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillhouse.floor import ConfigError
from skillhouse.permission import Effect
from skillhouse.tiers import ResumeError, Tier, TierLevel, TierOutcome, load_tier_policy
from tests.signer.places import FakeClock
from tests.tiers.engine import Desk, policy_of

MINUTE_MS = 60_000
HOUR_MS, DAY_MS = 60 * MINUTE_MS, 24 * 60 * MINUTE_MS
REFUEL, SWAP = "gas__refuel", "dex-swap__swap"


class NaivePolicy:
    """Decides as the published code: numbers only, state in memory, fixed windows, wall clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.spent = Decimal(0)
        self.windows: dict[str, list[int]] = defaultdict(list)
        self.denials = 0
        self.meanwhile = threading.Barrier(1)

    @staticmethod
    def amount(arguments: dict[str, Any]) -> float | None:
        for key in ("amountUsd", "amount_usd", "amount", "valueUsd", "value_usd"):
            value = arguments.get(key)
            if isinstance(value, int | float) and arguments.get("currency", "USD") == "USD":
                return value
        return None

    def asks(self, arguments: dict[str, Any], limit: float = 50) -> bool:
        amount = self.amount(arguments)
        return amount is not None and amount > limit

    def use(self, tool: str, per_hour: int) -> bool:
        now = self.clock.now.wall_ms
        used = [at for at in self.windows[tool] if at > now - HOUR_MS]
        if len(used) >= per_hour:
            return False
        self.meanwhile.wait()
        self.windows[tool].append(now)
        return True

    def decide_after_denials(self) -> str:
        """Decide any call, of tier none too: the halt comes first, and is itself a denial."""
        if self.denials < 3:
            return "allow"
        self.denials += 1
        return "deny"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.req("S000-111", "S000-112")
@pytest.mark.parametrize(
    "arguments",
    [
        {"amount": "5000"},
        {"amount": "5000.00 USD"},
        {"amount": "5,000"},
        {"amount": "5e3"},
        {"amount": "٥٠٠٠"},
        {"amount": "５０００"},
        {"amount": -5000},
        {"amount": "-5000"},
        {"amount": float("nan")},
        {"amount": "1e400"},
        {"amount": [5000]},
        {"amount": {"value": 5000}},
        {"amount": 5000, "currency": "usd"},
        {"amount": 5000, "currency": "USDT"},
        {"amount": 5000, "currency": "ETH"},
        {"amount": 5000, "currency": ["USD"]},
        {"amountUsd": 1, "amount": 5000},
        {"amountUsd": 1, "amount_usd": 1, "valueUsd": 5000},
        {"AmountUSD": 5000},
        {"payments": [{"amount": 30}, {"amount": 30}]},
        {"payment": {"amount": 5000}},
    ],
)
def test_an_amount_in_another_form_hides_nothing(desk: Desk, arguments: dict[str, Any]) -> None:
    assert not NaivePolicy(desk.clock).asks(arguments)
    verdict = desk.judge(SWAP, arguments=arguments)
    assert (verdict.effect, verdict.effective_tier) == (Effect.ASK, Tier.ONE)
    # And a tool with a maximum refuses it, asked or not.
    assert desk.judge("transfer__send", arguments=arguments).effect is Effect.DENY


def test_many_small_amounts_pass_no_more_than_a_large_one(desk: Desk) -> None:
    # The published daily limit is looked at in tier 2 only, and 5 dollars stay in tier 3.
    naive = NaivePolicy(desk.clock)
    assert not any(naive.asks({"amount": 5}, limit=5) for _ in range(1_000))
    policy = policy_of("version: '1'\ntools: {tip: {tier: 3}}\n")
    desk.tiers = Desk(desk.path.parent, policy).tiers
    verdicts = []
    for _ in range(41):
        verdict = desk.judge("tip", arguments={"amount": 5})
        desk.tiers.settle(verdict.reservation, TierOutcome.SUCCESS)
        verdicts.append(verdict.reason)
    assert verdicts == [""] * 40 + ["daily-limit-exceeded"]


def test_calls_at_once_cannot_share_the_last_place_of_a_cooldown(desk: Desk) -> None:
    naive = NaivePolicy(desk.clock)
    naive.meanwhile = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: naive.use("exec", 1), range(2))) == [True, True]
    desk.judge(REFUEL)
    start = threading.Barrier(3)

    def work(_: int) -> Effect:
        other = Desk(desk.path.parent)
        start.wait()
        effect = other.judge(REFUEL).effect
        other.tiers.close()
        return effect

    with ThreadPoolExecutor(3) as pool:
        effects = sorted(pool.map(work, range(3)))
    assert effects == [Effect.ALLOW] + [Effect.DENY] * 2


def test_calls_at_once_cannot_each_spend_the_rest_of_the_day(desk: Desk) -> None:
    # All are judged before any of them is settled.
    verdicts = [desk.judge(SWAP, arguments={"amount": 40}) for _ in range(8)]
    assert [verdict.reason for verdict in verdicts] == [""] * 5 + ["daily-limit-exceeded"] * 3


def test_a_restart_forgets_nothing(desk: Desk) -> None:
    naive = NaivePolicy(desk.clock)
    assert [naive.use(REFUEL, 2) for _ in range(3)] == [True, True, False]
    assert NaivePolicy(desk.clock).use(REFUEL, 2)
    for _ in range(2):
        desk.tiers.settle(desk.judge(REFUEL).reservation, TierOutcome.SUCCESS)
    desk.tiers.close()
    desk.tiers = desk.opened()
    assert desk.judge(REFUEL).reason == "cooldown-hour"


@pytest.mark.parametrize("off_ms", [-DAY_MS, DAY_MS, 400 * DAY_MS])
def test_setting_the_clock_moves_no_window(desk: Desk, off_ms: int) -> None:
    naive = NaivePolicy(desk.clock)
    assert [naive.use(REFUEL, 2) for _ in range(3)] == [True, True, False]
    for _ in range(2):
        desk.tiers.settle(desk.judge(REFUEL).reservation, TierOutcome.SUCCESS)
    desk.clock.is_set(off_ms)
    assert naive.use(REFUEL, 2) is (off_ms > 0)
    assert desk.judge(REFUEL).reason == "cooldown-hour"
    desk.clock.passes(HOUR_MS)
    assert desk.judge(REFUEL).effect is Effect.ALLOW


def test_a_clock_set_back_over_a_reboot_opens_nothing_and_locks_nothing(desk: Desk) -> None:
    for _ in range(2):
        desk.tiers.settle(desk.judge(REFUEL).reservation, TierOutcome.SUCCESS)
    desk.clock.reboots(-30 * DAY_MS)
    assert desk.judge(REFUEL).reason == "cooldown-hour"
    desk.clock.passes(HOUR_MS)
    assert desk.judge(REFUEL).effect is Effect.ALLOW


@pytest.mark.slow
@pytest.mark.req("S000-98")
def test_a_hostile_model_cannot_lock_its_owner_out(desk: Desk) -> None:
    naive = NaivePolicy(desk.clock)
    naive.denials = 3
    assert {naive.decide_after_denials() for _ in range(100)} == {"deny"}
    # The model asks for what its owner denies, again and again, and after the halt goes on asking.
    for _ in range(50):
        verdict = desk.judge("exec")
        desk.tiers.settle(verdict.reservation, TierOutcome.DENIED)
    assert desk.judge("exec").reason == "consecutive-denials-halt"
    # Reads and other tools go on, other users' too, and silence is not a no.
    assert desk.judge("read", level=TierLevel.READ).effect is Effect.ALLOW
    assert desk.judge("list_files").effect is Effect.ALLOW
    assert desk.judge(SWAP).effect is Effect.ALLOW
    desk.clock.passes(15 * MINUTE_MS)
    for _ in range(50):
        verdict = desk.judge("exec")
        desk.tiers.settle(verdict.reservation, TierOutcome.TIMEOUT)
        assert verdict.effect is Effect.ASK
    # Refusals by a cooldown do not halt.
    for _ in range(10):
        desk.judge(REFUEL)
    assert desk.judge(REFUEL).reason == "cooldown-hour"


def test_a_model_and_a_chat_cannot_resume(desk: Desk) -> None:
    desk.tiers.stop("mika", "a test")
    for by in ("mika", "model", "automatic"):
        for channel in ("chat", "library", "mcp", "inline", "Terminal", ""):
            with pytest.raises(ResumeError):
                desk.tiers.resume(by, channel)
    assert desk.tiers.is_stopped


def test_a_yes_that_comes_after_a_stop_runs_nothing(desk: Desk) -> None:
    waiting = desk.judge("exec")
    assert waiting.effect is Effect.ASK
    desk.opened().stop("mika", "I saw what it wants")
    assert "everything is stopped" in desk.tiers.begin(waiting.reservation)
    desk.tiers.resume("mika", "terminal")
    assert "withdrawn" in desk.tiers.begin(waiting.reservation)


@pytest.mark.parametrize(
    "name", ["thief__get_all_funds", "x__get_", "__get_", "a__send__get_money"]
)
def test_a_name_makes_no_tool_a_read(desk: Desk, name: str) -> None:
    # The published wildcard `*__get_*` has tier none, and a skill chooses its tools' names.
    assert fnmatch.fnmatchcase(name, "*__get_*")
    wide = policy_of("version: '1'\nwildcards: [{pattern: 't*__*', tier: none}]\n")
    named = policy_of("version: '1'\nwildcards: [{pattern: 'thief__*', tier: none}]\n")
    for policy, tier in ((wide, Tier.THREE), (named, Tier.NONE)):
        found, _ = policy.resolve("thief__get_all_funds", TierLevel.WRITE, is_vouched=False)
        assert found.tier is tier
    assert desk.judge(name, level=TierLevel.WRITE, is_vouched=False).tier is Tier.THREE
    assert desk.judge(name, level=TierLevel.SIGN, is_vouched=False).tier is Tier.TWO
    assert desk.judge(name, level=None, is_vouched=False).tier is Tier.ONE
    assert desk.judge(name, level=TierLevel.READ, is_vouched=False).tier is Tier.NONE


@pytest.mark.parametrize("name", ["exec ", "EXEC", "ехес", "exec\n", "exec\u200b", "list_files*"])
def test_a_name_that_only_looks_like_a_tools_gets_the_fallback(desk: Desk, name: str) -> None:
    verdict = desk.judge(name, level=TierLevel.READ, is_vouched=False)
    assert (verdict.source, verdict.effective_tier) == ("fallback", Tier.ONE)


@pytest.mark.parametrize("pattern", ["!exec", "{a,b}", "+(a)", "[a-z]*", "?", "**", "a/*", "ех*"])
def test_wildcards_that_are_not_understood_are_refused_and_not_taken_literally(
    pattern: str,
) -> None:
    with pytest.raises(ConfigError, match="single `\\*`"):
        policy_of(f"version: '1'\nwildcards:\n  - {{pattern: '{pattern}', tier: 1}}\n")


BOMB = "version: '1'\na0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "version: '1'\ntools:\n  exec: {tier: 1}\n  exec: {tier: none}\n",
        "version: '1'\nfallback: {tier: 1}\nfallback: {tier: none}\n",
        "version: '1'\ntools: {exec: {<<: {tier: none}}}\n",
        "version: '1'\ntools: {exec: {tier: 0}}\n",
        "version: '1'\ntools: {exec: {tier: ~}}\n",
        "version: '1'\n" + "tools: {a: " * 2_000,
        "version: '1'\ntools: !!python/object/apply:os.system [id]\n",
    ],
)
def test_a_policy_file_that_plays_tricks_closes_the_house(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.yml"
    path.write_text(text)
    policy = load_tier_policy(path, assignees={"mika"})
    assert policy.fault
    desk = Desk(tmp_path, policy)
    assert desk.judge("exec").reason == "policy-unreadable"
    assert desk.judge("exec", level=None, is_vouched=False).effect is Effect.DENY
    assert desk.judge("read", level=TierLevel.READ).effect is Effect.ALLOW


def test_a_common_reader_takes_the_second_of_two_equal_keys() -> None:
    text = "version: '1'\nfallback: {tier: 1}\nfallback: {tier: none}\n"
    common = yaml.safe_load(text)  # noqa: TID251 - this is what is attacked.
    assert common["fallback"] == {"tier": "none"}
    with pytest.raises(ConfigError, match="twice"):
        policy_of(text)


def test_a_settlement_that_is_made_up_changes_nothing(desk: Desk) -> None:
    verdict = desk.judge(SWAP, arguments={"amount": 40})
    desk.tiers.settle(verdict.reservation, TierOutcome.SUCCESS, Decimal(-1_000))
    for token in ("", "%", "' OR 1=1 --", "0" * 32):
        assert not desk.tiers.settle(token, TierOutcome.WITHDRAWN)
    left = [desk.judge(SWAP, arguments={"amount": 40}).reason for _ in range(5)]
    assert left == ["", "", "", "", "daily-limit-exceeded"]
