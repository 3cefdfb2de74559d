"""Tests of permission/decision.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.permission import (
    Decision,
    Effect,
    Layer,
    MatchedRule,
    Permission,
    Rule,
    decide,
    explain,
)

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "decisions.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]

STRICTNESS = (Effect.ALLOW, Effect.ASK, Effect.DENY)


def layer_of(given_layer: dict[str, Any]) -> Layer:
    rules = tuple(
        Rule(effect=Effect(rule["effect"]), action=rule["action"], pattern=rule["pattern"])
        for rule in given_layer["rules"]
    )
    return Layer(
        name=given_layer["name"],
        rules=rules,
        trusted=given_layer["trusted"],
        match=given_layer["match"],
    )


@pytest.mark.req("S001-59", "S001-62")
@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}: {case['clause']}" for case in CASES])
def test_a_decision_is_that_of_the_vector(case: dict[str, Any]) -> None:
    found = decide(
        [layer_of(layer) for layer in case["given"]["layers"]],
        Permission(**case["given"]["request"]),
        default=Effect(case["given"]["default"]),
    )
    expected = case["expect"]
    assert found == Decision(
        effect=Effect(expected["effect"]),
        layer=expected["layer"],
        rule_index=expected["rule_index"],
    )


# Few words, so that rules often match.
PATTERNS = st.sampled_from(("*", "git *", "git push", "rm *", "?it*", "pdf", ""))
ACTIONS = st.sampled_from(("exec", "skill", "*", "e*"))
EFFECTS = st.sampled_from(STRICTNESS)
RULES = st.builds(Rule, effect=EFFECTS, action=ACTIONS, pattern=PATTERNS)
WANTED = st.builds(
    Permission,
    action=st.sampled_from(("exec", "skill")),
    resource=st.sampled_from(("git push", "git status", "rm -rf /", "pdf", "")),
)


def layers(*, trusted: st.SearchStrategy[bool]) -> st.SearchStrategy[Layer]:
    return st.builds(
        Layer,
        name=st.sampled_from(("managed", "user", "project", "agent", "grants")),
        rules=st.lists(RULES, max_size=4).map(tuple),
        trusted=trusted,
        match=st.sampled_from(("last", "first")),
    )


POLICIES = st.lists(layers(trusted=st.booleans()), max_size=4)


def strictness(decision: Decision) -> int:
    return STRICTNESS.index(decision.effect)


def with_layer(before: Sequence[Layer], extra: Layer, at: int) -> list[Layer]:
    return [*before[:at], extra, *before[at:]]


@given(
    policy=POLICIES,
    extra=layers(trusted=st.just(False)),
    at=st.integers(0, 4),
    wanted=WANTED,
    default=EFFECTS,
)
def test_an_untrusted_layer_never_loosens_a_decision(
    policy: list[Layer], extra: Layer, at: int, wanted: Permission, default: Effect
) -> None:
    before = decide(policy, wanted, default=default)
    after = decide(with_layer(policy, extra, at), wanted, default=default)
    assert strictness(after) >= strictness(before)


@given(policy=POLICIES, wanted=WANTED, default=EFFECTS)
def test_all_untrusted_layers_together_never_loosen_a_decision(
    policy: list[Layer], wanted: Permission, default: Effect
) -> None:
    trusted_only = decide([layer for layer in policy if layer.trusted], wanted, default=default)
    assert strictness(decide(policy, wanted, default=default)) >= strictness(trusted_only)


@pytest.mark.req("S001-70")
@given(policy=POLICIES, extra=layers(trusted=st.booleans()), wanted=WANTED, default=EFFECTS)
def test_deny_in_any_layer_is_final(
    policy: list[Layer], extra: Layer, wanted: Permission, default: Effect
) -> None:
    alone = [decide([layer], wanted, default=Effect.ASK) for layer in policy]
    if any(found.effect is Effect.DENY for found in alone):
        # A grant is a layer like any other, and the nearest one.
        assert decide([*policy, extra], wanted, default=default).effect is Effect.DENY


@given(policy=POLICIES, extra=layers(trusted=st.just(True)), wanted=WANTED, default=EFFECTS)
def test_the_nearest_trusted_layer_that_speaks_decides_when_none_denies(
    policy: list[Layer], extra: Layer, wanted: Permission, default: Effect
) -> None:
    alone = [decide([layer], wanted) for layer in [*policy, extra]]
    if alone[-1].rule_index is not None and all(d.effect is not Effect.DENY for d in alone):
        assert decide([*policy, extra], wanted, default=default) == alone[-1]


@given(policy=POLICIES, wanted=WANTED, default=EFFECTS)
def test_a_layer_without_a_matching_rule_changes_nothing(
    policy: list[Layer], wanted: Permission, default: Effect
) -> None:
    other = Rule(effect=Effect.DENY, action="write", pattern="*")
    silent = Layer(name="silent", rules=(other,))
    before = decide(policy, wanted, default=default)
    for at in range(len(policy) + 1):
        assert decide(with_layer(policy, silent, at), wanted, default=default) == before


@given(policy=POLICIES, wanted=WANTED, default=EFFECTS)
def test_the_decision_names_the_rule_that_gave_it(
    policy: list[Layer], wanted: Permission, default: Effect
) -> None:
    found = decide(policy, wanted, default=default)
    if found.rule_index is None:
        assert found == Decision(effect=default, layer="default")
    else:
        assert found.effect in {
            layer.rules[found.rule_index].effect
            for layer in policy
            if layer.name == found.layer and found.rule_index < len(layer.rules)
        }


@pytest.mark.parametrize("match", ["last", "first"])
def test_a_default_of_deny_is_not_loosened_by_an_untrusted_ask(match: Any) -> None:
    ask = Rule(effect=Effect.ASK, action="*", pattern="*")
    untrusted = Layer(name="project", rules=(ask,), trusted=False, match=match)
    wanted = Permission(action="exec", resource="ls")
    found = decide([untrusted], wanted, default=Effect.DENY)
    assert found == Decision(effect=Effect.DENY, layer="default")


def test_an_explanation_lists_every_rule_that_matched_and_marks_what_counted() -> None:
    ask_all = Rule(effect=Effect.ASK, action="exec", pattern="*", reason="look first")
    git = Rule(effect=Effect.ALLOW, action="exec", pattern="git *")
    other = Rule(effect=Effect.DENY, action="write", pattern="*")
    policy = [
        Layer(name="managed", rules=(other, ask_all)),
        Layer(name="project", rules=(ask_all, git), trusted=False),
        Layer(name="grants", rules=(ask_all, git)),
    ]
    wanted = Permission(action="exec", resource="git status")
    decision, matched = explain(policy, wanted)
    assert decision == Decision(effect=Effect.ALLOW, layer="grants", rule_index=1)
    assert matched == (
        MatchedRule(layer="managed", rule_index=1, rule=ask_all, is_verdict=True, decided=False),
        MatchedRule(layer="project", rule_index=0, rule=ask_all, is_verdict=True, decided=False),
        MatchedRule(layer="grants", rule_index=0, rule=ask_all, is_verdict=False, decided=False),
        MatchedRule(layer="grants", rule_index=1, rule=git, is_verdict=True, decided=True),
    )


@given(policy=POLICIES, wanted=WANTED, default=EFFECTS)
def test_an_explanation_has_the_decision_and_marks_its_rule(
    policy: list[Layer], wanted: Permission, default: Effect
) -> None:
    decision, matched = explain(policy, wanted, default=default)
    assert decision == decide(policy, wanted, default=default)
    marked = [found for found in matched if found.decided]
    assert bool(marked) == (decision.rule_index is not None)
    assert all(found.is_verdict and found.rule.effect is decision.effect for found in marked)


@pytest.mark.parametrize("name", ["block\n", " block", "a\u00a0block", "block"])
def test_a_name_that_is_shown_as_a_denied_one_is_denied(name: str) -> None:
    shown = " ".join(name.split())
    rules = {
        effect: (Layer(name="user", rules=(Rule(effect=effect, action="skill", pattern=shown),)),)
        for effect in (Effect.ALLOW, Effect.DENY)
    }
    wanted = Permission(action="skill", resource=name)
    assert decide(rules[Effect.DENY], wanted).effect is Effect.DENY
    # No rule that allows a name lets another one through.
    assert decide(rules[Effect.ALLOW], wanted).effect is (
        Effect.ALLOW if name == shown else Effect.ASK
    )
    raw = Rule(effect=Effect.DENY, action="skill", pattern=name)
    assert decide([Layer(name="user", rules=(raw,))], wanted).effect is Effect.DENY
