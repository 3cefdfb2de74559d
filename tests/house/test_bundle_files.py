"""Tests of house/config/bundle_files.py: the rules and the tier policy in a signed bundle."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import UnknownSkillError
from skillhouse.house import Skillhouse, configured, usable_config
from skillhouse.house.skill_bundle import bundle_place
from skillhouse.permission import Decision, Effect, Permission, decide
from tests.bundles import BundlePlace
from tests.house.places import write_skill

RULE = '[[rules]]\neffect = "{}"\naction = "exec"\npattern = "{}"\n'
POLICY = 'version: "1"\ntools:\n  exec:\n    tier: 1\n'


def rule(effect: str, pattern: str) -> str:
    return RULE.format(effect, pattern)


def decided(place: BundlePlace, command: str) -> Decision:
    """Return what a machine's configuration says now of a command."""
    layers = configured(place.places).layers
    return decide(layers, Permission(action="exec", resource=command))


@pytest.mark.parametrize(
    ("mode", "mine", "theirs", "command", "effect"),
    [
        # What this machine denies, no bundle allows; and the other way round.
        ("defaults", rule("deny", "rm *"), rule("allow", "rm *"), "rm x", "deny"),
        ("defaults", rule("allow", "rm *"), rule("deny", "rm *"), "rm x", "deny"),
        ("stricter", rule("allow", "rm *"), rule("deny", "rm *"), "rm x", "deny"),
        # What it asks about is asked about.
        ("defaults", rule("ask", "rm *"), rule("allow", "rm *"), "rm x", "ask"),
        ("stricter", rule("ask", "rm *"), rule("allow", "rm *"), "rm x", "ask"),
        # What it says nothing about.
        ("defaults", "", rule("allow", "git log"), "git log", "allow"),
        ("stricter", "", rule("allow", "git log"), "git log", "ask"),
        # A bundle that is only stricter asks over an allow; one of defaults is behind it.
        ("stricter", rule("allow", "rm *"), rule("ask", "rm *"), "rm x", "ask"),
        ("defaults", rule("allow", "rm *"), rule("ask", "rm *"), "rm x", "allow"),
        ("none", rule("allow", "rm *"), rule("deny", "rm *"), "rm x", "allow"),
        # So are they to the rules of a policy of the program that this machine chose.
        ("defaults", 'policy = "locked"\n', rule("allow", "python3 *"), "python3 x", "deny"),
    ],
)
def test_a_bundle_is_as_strong_as_this_machine_lets_it(
    tmp_path: Path, mode: str, mine: str, theirs: str, command: str, effect: str
) -> None:
    place = BundlePlace(tmp_path)
    more = f'source_rules = "{mode}"\n'
    place.configure(more, before=mine if mine.startswith("policy") else "")
    if not mine.startswith("policy"):
        place.configure(more + mine)
    place.push(1, rules=theirs)
    assert place.look().status == "taken"
    assert decided(place, command).effect == effect


def test_managed_rules_come_before_those_of_a_bundle_also_while_a_file_has_a_fault(
    tmp_path: Path,
) -> None:
    place = BundlePlace(tmp_path, more='source_rules = "defaults"\n')
    place.push(1, rules=rule("allow", "rm *"))
    place.look()
    with Skillhouse(configured(place.places)) as house:
        place.places.managed_file.parent.mkdir(parents=True, exist_ok=True)
        place.places.managed_file.write_text(rule("ask", "rm *"))
        place.places.user_file.write_text("[[rules]\n")
        house.config_reload.check()
        assert house.config_reload.fault
        found = decide(house.config.layers, Permission(action="exec", resource="rm x"))
    assert (found.effect, found.layer) == (Effect.ASK, "managed")


def test_decisions_name_the_bundle_and_its_digest(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    pointer = place.push(1, rules=rule("deny", "rm *"))
    place.look()
    label = f"bundle team {pointer.digest[7:19]}"
    with Skillhouse(configured(place.places)) as house:
        found = house.policy.explain(Permission(action="exec", resource="rm x"))
        assert found.decision == Decision(effect=Effect.DENY, layer=label, rule_index=0)
        assert found.reason == f"rule `exec rm *` of {label} policy"


def test_budgets_hold_where_this_machine_has_none(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1, rules="catalog_budget_tokens = 500\ntool_count = 9\n")
    place.look()
    found = configured(place.places)
    assert (found.catalog_budget_tokens, found.tool_count) == (500, 9)
    place.configure(before="tool_count = 20\n")
    found = configured(place.places)
    assert (found.catalog_budget_tokens, found.tool_count) == (500, 20)


def test_a_tier_policy_holds_where_this_machine_has_none(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1, policy=POLICY)
    place.look()

    def tier() -> Any:
        with Skillhouse(configured(place.places)) as house:
            enforcement = house.services.enforcement
            found = enforcement.policy.tools.get("exec")
            return enforcement.has_policy, None if found is None else str(found.tier)

    assert tier() == (True, "1")
    place.places.policy_file.write_text(POLICY.replace("tier: 1", "tier: 2"))
    assert tier() == (True, "2")
    place.places.policy_file.unlink()
    place.configure('source_rules = "none"\n')
    assert tier() == (False, None)


def test_a_running_process_takes_rules_and_skills_together(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1, rules=rule("deny", "one *"))
    place.look()
    seen: list[str] = []
    with Skillhouse(configured(place.places)) as house:
        assert house.index.get("pdf").directory.parent.parent == house.config.bundle.directory  # type: ignore[union-attr]
        house.config_reload.subscribe(lambda news: seen.append(news.text))
        write_skill(place.skills / "notes")
        place.push(2, rules=rule("deny", "two *"))
        place.look()
        house.config_reload.check()
        assert [one.rules[0].pattern for one in house.config.layers] == ["two *"]
        assert "remote:notes" in {one.id for one in house.index.skills}
        assert house.config.bundle is not None
        assert house.config.bundle.number == 2
    assert len(seen) == 1
    assert "rules: +1 -1" in seen[0]


def test_rules_of_one_bundle_are_never_used_with_skills_of_another(tmp_path: Path) -> None:
    """A publisher and eight readers: what a reader has is of one bundle, whole."""
    place = BundlePlace(tmp_path)
    last, ended, mixed = 12, threading.Event(), []

    def publish(number: int) -> None:
        write_skill(place.skills / "pdf", body=f"{number}\n")
        place.push(number, rules=rule("deny", f"of-{number}"))
        assert place.look().status == "taken"

    def read() -> None:
        while not ended.is_set():
            with Skillhouse(configured(place.places)) as house:
                (layer,) = house.config.layers
                number = layer.rules[0].pattern.removeprefix("of-")
                try:
                    body = Path(house.index.get("pdf").file).read_text().split()[-1]
                except (OSError, UnknownSkillError):
                    # Two bundles came since: it is gone, and not another one's.
                    continue
                if layer.trusted or number != body:
                    mixed.append((layer, body))

    publish(1)
    readers = [threading.Thread(target=read) for _ in range(3)]
    for one in readers:
        one.start()
    for number in range(2, last):
        publish(number)
    ended.set()
    for one in readers:
        one.join()
    assert mixed == []


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("how", ["cleared", "changed", "swapped"])
def test_rules_that_are_gone_from_the_cache_leave_nothing_allowed(
    tmp_path: Path, how: str, is_running: bool
) -> None:
    place = BundlePlace(tmp_path)
    place.configure(rule("allow", "ls"))
    place.push(1, rules=rule("deny", "rm *"))
    place.look()
    current = Path(os.path.realpath(bundle_place(place.config) / "current"))
    house = Skillhouse(configured(place.places))
    with house:
        if how == "cleared":
            shutil.rmtree(place.config.remote_directory)
        elif how == "changed":
            (current / "config.toml").write_text(rule("allow", "*"))
        else:
            place.push(2, rules=rule("allow", "rm *"))
            place.look()
            other = Path(os.path.realpath(bundle_place(place.config) / "current"))
            shutil.copy(current / "config.toml", other / "config.toml")
        house.config_reload.check()
        config = house.config if is_running and how == "cleared" else configured(place.places)
        found = decide(config.layers, Permission(action="exec", resource="ls"))
        assert found.effect is Effect.ASK
        assert [one.code for one in config.problems] == ["bundle-config"]
    assert [one.code for one in usable_config(place.places).faults] == ["bundle-config"]
    # And another look repairs it.
    assert place.look().status != "refused"
    assert decided(place, "ls").effect is Effect.ALLOW


@pytest.mark.parametrize("content", [b"", b"{", None])
def test_a_torn_cache_keeps_no_change_of_this_machine_from_being_used(
    tmp_path: Path, content: bytes | None
) -> None:
    place = BundlePlace(tmp_path)
    place.push(1, rules=rule("deny", "rm *"))
    place.look()
    versions = bundle_place(place.config) / "current/versions"
    with Skillhouse(configured(place.places)) as house:
        versions.unlink() if content is None else versions.write_bytes(content)
        for pattern in ("git *", "ls *"):
            place.configure(rule("deny", pattern))
            house.config_reload.check()
            wanted = Permission(action="exec", resource=pattern.replace("*", "x"))
            assert decide(house.config.layers, wanted).effect is Effect.DENY
        assert "is not in the cache" in house.config_reload.fault


def test_a_bundle_of_whom_the_configuration_names_no_more_is_not_used(tmp_path: Path) -> None:
    """As after a publisher's key was stolen: neither its skills nor what it allows."""
    place = BundlePlace(tmp_path)
    place.configure('source_rules = "defaults"\n')
    place.push(1, rules=rule("allow", "curl *"))
    place.look()
    assert decided(place, "curl x").effect is Effect.ALLOW
    written = place.places.user_file.read_text()
    place.places.user_file.write_text(written.replace("acme of", "other of"))
    place.config = configured(place.places)
    assert decided(place, "curl x").effect is Effect.ASK
    with Skillhouse(place.config) as house:
        assert [one for one in house.index.skills if one.scope == "remote"] == []
    found = place.look()
    assert found.status == "refused"
    assert "expected a bundle of `other of" in found.state.problem
    assert not place.bundle.is_here()
    place.places.user_file.write_text(written)
    place.config = configured(place.places)
    assert place.look().status == "unchanged"
    assert decided(place, "curl x").effect is Effect.ALLOW


def test_what_a_bundle_denied_does_not_end_with_the_sources_that_a_user_allows(
    tmp_path: Path,
) -> None:
    """The managed file names the bundle; the user's own says where installs may be from."""
    place = BundlePlace(tmp_path)
    place.push(1, rules=rule("deny", "rm *"))
    place.look()
    place.places.managed_file.write_text(place.places.user_file.read_text())
    sources = '[[registry.sources]]\nsource = "https://github.com/acme/*"\n'
    place.places.user_file.write_text(rule("allow", "*") + sources)
    assert decided(place, "rm x").effect is Effect.ASK
    (fault,) = usable_config(place.places).faults
    assert "`registry.sources` does not allow" in fault.message
    # A machine that never took rules from there loses none.
    shutil.rmtree(place.config.state_directory / "bundles")
    assert decided(place, "rm x").effect is Effect.ALLOW


def test_what_an_agent_may_is_asked_about_while_rules_are_gone_from_the_cache(
    tmp_path: Path,
) -> None:
    place = BundlePlace(tmp_path)
    place.configure('[[agents.default.rules]]\neffect = "allow"\naction = "*"\npattern = "*"\n')
    place.push(1, rules=rule("deny", "rm *"))
    place.look()

    def effect() -> Effect:
        with Skillhouse(configured(place.places)) as house:
            return house.policy.explain(Permission(action="exec", resource="rm x")).decision.effect

    assert effect() is Effect.DENY
    shutil.rmtree(place.config.remote_directory)
    assert effect() is Effect.ASK


def test_a_trial_writes_nothing(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1, rules=rule("deny", "rm *"))
    before = sorted(map(str, tmp_path.rglob("*")))
    found = place.bundle.trial()
    assert (found.status, found.state.number, found.state.files) == ("taken", 1, ("config.toml",))
    assert sorted(map(str, tmp_path.rglob("*"))) == before
