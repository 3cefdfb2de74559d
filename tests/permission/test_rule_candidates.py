"""Tests of permission/rule_candidates.py."""

from __future__ import annotations

import shlex

import pytest

from skillhouse.permission.rule_candidates import (
    allows,
    candidate_rules,
    group_rule,
    still_asked,
    why_once,
)


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("ls -la src", ("ls -la *", "ls *")),
        ("git -C sub diff", ("git -C sub diff *", "git diff *", "git *")),
        ("git stash", ("git stash", "git *")),
        ("cp a b", ("cp a b",)),
        ("frobnicate a", ("frobnicate a",)),
        ("cat '*'", ()),
        ("node -e 1", ()),
        ("npm ci --offline", ()),
        ("timeout 5 ls", ()),
        ("sudo ls", ()),
        ("rm a", ()),
    ],
)
def test_the_rules_for_a_command_begin_with_the_narrowest(
    line: str, rules: tuple[str, ...]
) -> None:
    argv = shlex.split(line)
    assert candidate_rules(argv) == rules
    assert all(allows(rule, argv) for rule in rules)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("git push", "`git push` sends to another place"),
        ("git frobnicate", "`git frobnicate` is not one of the sub-commands known as safe"),
        ("rm a", "no approval of `rm` lasts"),
    ],
)
def test_why_there_is_no_rule(line: str, why: str) -> None:
    assert why_once(shlex.split(line)) == why


def test_what_a_rule_still_asks_about() -> None:
    assert still_asked("frobnicate *") == ()
    assert still_asked("* x") == ()
    assert "push" not in still_asked("git log *")
    assert group_rule(["frobnicate"]) == group_rule(["git"]) == ""
