"""Tests of permission/lint.py."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.permission import (
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Permission,
    Rule,
    RuleFinding,
    beyond,
    covers,
    decide,
    judge_line,
    lint_rules,
    matches,
)

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY


def rule(effect: Effect, pattern: str, action: str = "exec") -> Rule:
    return Rule(effect=effect, action=action, pattern=pattern)


def unbound(effect: Effect, pattern: str) -> Rule:
    return Rule(effect=effect, action="exec", pattern=pattern, unbound=True)


def codes(
    *rules: Rule, match: Literal["last", "first"] = "last", trusted: bool = True
) -> list[str]:
    layer = Layer(name="user", rules=rules, match=match, trusted=trusted)
    return [f"{found.rule_index}:{found.code}" for found in lint_rules([layer])]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((rule(DENY, "rm *"), rule(ALLOW, "git *")), []),
        ((rule(DENY, "rm *"), rule(ALLOW, "*")), ["0:rule-unreachable", "1:rule-allows-all"]),
        ((rule(ALLOW, "*"), rule(DENY, "rm *")), []),
        ((rule(ALLOW, "*"),), []),
        ((rule(ASK, "git log *"), rule(ALLOW, "git *")), ["0:rule-unreachable"]),
        ((rule(ASK, "git *"), rule(ALLOW, "git log *")), []),
        ((rule(ASK, "ls *"), rule(ASK, "ls *")), ["0:rule-duplicate"]),
        ((rule(ASK, "ls *"), rule(ASK, "*", "*")), ["0:rule-unreachable"]),
        ((rule(ALLOW, "ls*"),), ["0:rule-open-word"]),
        ((rule(DENY, "ls*"),), []),
        ((unbound(ALLOW, "make *"),), ["0:rule-unbound"]),
        ((unbound(ASK, "make *"),), []),
        ((rule(ALLOW, "frobnicate *"),), ["0:rule-no-grammar"]),
        ((rule(ALLOW, "frobnicate x"),), []),
        ((rule(ALLOW, "x", "script"),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "x", "shell"),), ["0:rule-no-effect"]),
        ((rule(DENY, "x", "shell"),), []),
        ((rule(ALLOW, "ls", "exce"),), ["0:rule-unknown-action"]),
        ((rule(DENY, "x", "invoke"),), []),
        ((rule(DENY, "x", "web_search"),), []),
        ((rule(ALLOW, ""),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "ls "),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "ls && pwd"),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "src/*", "write"),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "/a/../b", "read"),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "./tools/* *"),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "tools/*"),), ["0:rule-no-effect"]),
        ((rule(ALLOW, "*/tools"),), []),
        ((rule(DENY, "./tools/* *"),), []),
        ((rule(ALLOW, "FOO=bar ls *"),), ["0:rule-no-effect"]),
    ],
)
def test_what_is_odd_about_rules_is_found(rules: tuple[Rule, ...], expected: list[str]) -> None:
    assert codes(*rules) == expected


def test_in_a_layer_of_first_matches_the_later_rule_is_unreachable() -> None:
    assert codes(rule(ALLOW, "git *"), rule(DENY, "git push *"), match="first") == [
        "1:rule-unreachable"
    ]
    assert codes(rule(ALLOW, "*"), rule(DENY, "rm *"), match="first") == [
        "0:rule-allows-all",
        "1:rule-unreachable",
    ]


def test_an_allow_of_an_untrusted_layer_has_no_effect_and_hides_nothing() -> None:
    assert codes(rule(DENY, "rm *"), rule(ALLOW, "*"), trusted=False) == ["1:rule-no-effect"]


def test_r7_of_a_wildcard_in_a_path_it_is_said_that_it_covers_nothing() -> None:
    wild = Rule(effect=ALLOW, action="exec", pattern="./tools/* *")
    why = "a program that is named by a path is covered without a wildcard in that path"
    (found,) = lint_rules([Layer(name="user", rules=(wild,))])
    assert (beyond(wild), found.message) == (f"nothing: {why}", why)
    verdict = judge_line(
        "./tools/g a", LayerRules([Layer(name="user", rules=(wild,))]), PathPolicy()
    )
    assert verdict.reasons == (
        "`./tools/g a`: its program is named by a path, which no wildcard covers",
    )


def test_a_finding_names_the_rule_in_the_way() -> None:
    hidden = rule(ASK, "git log *")
    (found,) = lint_rules([Layer(name="user", rules=(hidden, rule(DENY, "git *")))])
    assert found == RuleFinding(
        code="rule-unreachable",
        layer="user",
        rule_index=0,
        rule=hidden,
        message="rule 2 (`deny exec git *`) matches all that it matches, and counts instead",
        by=1,
    )


PATTERNS = st.text("ab*? ", max_size=6)
RULES = st.builds(Rule, effect=st.sampled_from(Effect), action=st.just("exec"), pattern=PATTERNS)


@given(wide=PATTERNS, narrow=PATTERNS, text=st.text("ab ", max_size=8))
def test_what_covers_matches_all_that_the_other_matches(wide: str, narrow: str, text: str) -> None:
    if covers(wide, narrow) and matches(narrow, text):
        assert matches(wide, text)


@given(
    rules=st.lists(RULES, max_size=5),
    match=st.sampled_from(("last", "first")),
    trusted=st.booleans(),
    text=st.text("ab ", max_size=6),
)
def test_an_unreachable_rule_never_decides(
    rules: list[Rule], match: Literal["last", "first"], trusted: bool, text: str
) -> None:
    layer = Layer(name="user", rules=tuple(rules), match=match, trusted=trusted)
    found = decide([layer], Permission(action="exec", resource=text))
    unreachable = {
        one.rule_index
        for one in lint_rules([layer])
        if one.code in ("rule-unreachable", "rule-duplicate")
    }
    assert found.rule_index not in unreachable
