"""Tests of tiers/tier_file.py."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.permission import Effect
from skillhouse.tiers import (
    Tier,
    TierCall,
    TierLevel,
    TierState,
    load_tier_policy,
    read_tier_policy,
)
from skillhouse.tiers.tier_values import (
    Cooldown,
    EmergencyStop,
    Thresholds,
    ToolPolicy,
)
from tests.tiers.engine import PUBLISHED, policy_of


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy_of(text)
    return caught.value


@pytest.mark.req("S000-87")
def test_a_policy_is_read_as_published() -> None:
    policy = policy_of()
    assert policy.defaults == ToolPolicy(timeout_seconds=120)
    assert policy.thresholds == Thresholds()
    assert policy.emergency_stop == EmergencyStop(channels=("telegram",))
    assert policy.tools["exec"] == ToolPolicy(
        tier=Tier.TWO,
        require_confirmation=True,
        confirmation_channel="inline",
        cooldown=Cooldown(max_per_hour=20, min_interval_ms=2500),
    )
    assert policy.tools["transfer__send"].max_amount == {"usd": Decimal(20)}
    assert [pattern for pattern, _ in policy.wildcards] == [
        "*__get_*",
        "*__approve_*",
        "*__approve_small",
    ]
    assert policy.fallback == ToolPolicy(
        tier=Tier.ONE, require_confirmation=True, confirmation_channel="companion-app"
    )
    assert policy.warnings == (
        "wildcard `*__approve_small` never counts: `*__approve_*` comes first and covers it",
    )


@pytest.mark.req("S000-87")
@pytest.mark.parametrize("line", ['version: "2"', "version: 1.0", "version: one", "tools: {}"])
def test_a_policy_of_another_version_or_of_none_is_refused(line: str) -> None:
    assert 'expected version "1"' in str(refusal(line))


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("tolls: {}", "tolls", "line 2, `tolls`: unknown key `tolls`"),
        ("tools:\n  exec:\n    teir: 2", "tools.exec.teir", "line 4, `tools.exec.teir`: unknown"),
        ("tools:\n  exec: {tier: 4}", "tools.exec.tier", "expected one of none, 3, 2, 1, got '4'"),
        ("tools:\n  a*: {tier: 1}", "tools.a*", "names with `*` go to `wildcards`"),
        ("tools:\n  еxec: {tier: 1}", "tools.еxec", "expected a tool's name of A-Z"),
        ("tools: [exec]", "tools", "expected at most 1000 lines"),
        ("tools:\n  exec: none", "tools.exec", "expected `key: value` lines, got 'none'"),
        (
            "tools:\n  a: {tier: none, requireConfirmation: true}",
            "tools.a",
            "expected tier 3, 2 or 1 with requireConfirmation",
        ),
        (
            "tools:\n  a: {tier: 2, requireConfirmation: yes}",
            "tools.a.requireConfirmation",
            "expected one of true, false, got 'yes'",
        ),
        (
            "tools:\n  a: {tier: 2, maxAmount: {usd: -1}}",
            "tools.a.maxAmount.usd",
            "expected an amount above 0 such as 12.50, got '-1'",
        ),
        ("tools:\n  a: {tier: 2, maxAmount: {}}", "tools.a.maxAmount", "at least one of usd"),
        (
            "tools:\n  a: {tier: 2, maxAmount: {usd: 1e9}}",
            "tools.a.maxAmount.usd",
            "expected an amount",
        ),
        (
            "tools:\n  a: {tier: 2, cooldown: {maxPerHour: 0}}",
            "tools.a.cooldown.maxPerHour",
            "expected a whole number from 1 to 100000, got '0'",
        ),
        (
            "tools:\n  a: {tier: 2, confirmationChannel: sms}",
            "tools.a.confirmationChannel",
            "expected one of inline, companion-app, notification",
        ),
        ("tools:\n  a: {tier: 2, allowedUsers: all}", "tools.a.allowedUsers", "expected `assig"),
        ("tools:\n  a: {tier: 2, timeout: 99999}", "tools.a.timeout", "from 1 to 3600"),
        ("wildcards: {}", "wildcards", "expected a list of at most 200 policies, got a mapping"),
        ("wildcards:\n  - tier: 1", "wildcards.0", "expected a `pattern` and a policy"),
        ("wildcards:\n  - {pattern: '{a,b}', tier: 1}", "wildcards.0 {a,b}", "braces, `!`, `?`"),
        ("wildcards:\n  - {pattern: '!a', tier: 1}", "wildcards.0 !a", "are not read"),
        ("wildcards:\n  - {pattern: 'a/**', tier: 1}", "wildcards.0 a/**", "are not read"),
        ("fallback: {requireConfirmation: true}", "fallback", "expected a tier"),
        ("emergencyStop: {action: restart}", "emergencyStop.action", "expected one of revoke-all"),
        ("emergencyStop: {commands: /stop}", "emergencyStop.commands", "expected a list"),
        ("tools:\n  a: {tier: 1, allowedUsers: ['']}", "tools.a.allowedUsers", "expected a text"),
        ("thresholds: {tier2MaxUsd: fifty}", "thresholds.tier2MaxUsd", "expected an amount"),
    ],
)
def test_a_fault_is_told_with_file_key_and_line(text: str, key: str, message: str) -> None:
    error = refusal(f"version: '1'\n{text}\n")
    assert (error.key, error.path) == (key, Path("policy.yml"))
    assert message in str(error)


def test_an_unknown_key_names_the_nearest() -> None:
    assert refusal("version: '1'\nwildcard: []\n").suggestion == "wildcards"


def test_a_line_is_that_of_the_key_within_its_own_tool() -> None:
    text = "version: '1'\ntools:\n  a: {tier: 1}\n  b: {tier: 1}\n  c: {tier: 9}\n"
    assert str(refusal(text)).startswith("line 5, `tools.c.tier`")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version: '1'\ntools: {a: &x {tier: 1}}\n", "line 2: anchor `x`"),
        (b"version: '1'\ntools: !!python/object:x {}\n", "line 2: tag"),
        (b"version: '1'\ntools:\n  a: {tier: 1}\n  a: {tier: none}\n", "line 4: key 'a' twice"),
        (b"a: " + b"[" * 5_000, "nested deeper than 16"),
        (b"version: '1'\nx: \xff\n", "line 2: byte 0xff is not UTF-8"),
        (b"- a\n", "expected `key: value` lines"),
        (b"version: '1'\n---\nversion: '1'\n", "second document"),
        (b"x" * 70_000, "expected at most 65536 bytes"),
        (b"", "expected `key: value` lines"),
    ],
)
def test_what_is_no_plain_mapping_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_tier_policy(data, Path("policy.yml"))
    assert message in str(caught.value)


def test_a_policy_file_that_cannot_be_used_leaves_reads_only(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("version: '1'\ntools: {exec: {tier: noen}}\n")
    policy = load_tier_policy(path, assignees={"mika"})
    assert "`tools.exec.tier`" in policy.fault
    write = policy.decide(
        TierCall(tool="write", user="mika", level=TierLevel.WRITE, is_vouched=True), TierState()
    )
    assert (write.effect, write.reason) == (Effect.DENY, "policy-unreadable")
    claimed = TierCall(tool="x__look", user="mika", level=TierLevel.READ)
    assert policy.decide(claimed, TierState()).effect is Effect.DENY
    read = TierCall(tool="read", user="mika", level=TierLevel.READ, is_vouched=True)
    assert policy.decide(read, TierState()).effect is Effect.ALLOW


@pytest.mark.parametrize("kind", ["directory", "dangling"])
def test_what_stands_in_the_place_of_a_policy_file_is_a_fault(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "policy.yml"
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "gone")
    words = {"directory": "cannot be used", "dangling": "a link to nothing"}
    assert words[kind] in load_tier_policy(path, assignees=()).fault


def test_no_policy_file_is_no_fault(tmp_path: Path) -> None:
    policy = load_tier_policy(tmp_path / "policy.yml", assignees={"mika"}, tier1_channel="page")
    assert (policy.fault, policy.tier1_channel) == ("", "page")


def test_an_amount_that_another_makes_pointless_is_warned_of() -> None:
    policy = policy_of(
        "version: '1'\ntools:\n  a: {tier: 2, maxAmount: {usd: 50}, escalateAbove: {usd: 50}}\n"
    )
    assert policy.warnings == (
        "`tools.a`: nothing above maxAmount 50 is done, so escalateAbove 50 never asks anybody",
    )


def test_windows_lines_and_a_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_bytes(b"\xef\xbb\xbf" + PUBLISHED.replace("\n", "\r\n").encode())
    assert load_tier_policy(path, assignees={"mika"}) == policy_of()
