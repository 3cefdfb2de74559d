"""Tries the examples of a rule, which are its tests."""

from __future__ import annotations

import shlex

from skillhouse.floor.rules import Effect, matches
from skillhouse.permission.command_rules import LayerRules
from skillhouse.permission.decision import Layer, Rule
from skillhouse.permission.judge import judge_argv
from skillhouse.permission.path_policy import PathPolicy


def example_holds(rule: Rule, example: str) -> bool:
    """Whether a rule is about an example; one that allows a command, whether it alone allows it.

    Examples of `exec` are single commands. They are judged in no directory, so that a path below
    it is one of the workspace and every other is outside.

    >>> rule = Rule(effect=Effect.ALLOW, action="exec", pattern="git *")
    >>> example_holds(rule, "git -C sub log"), example_holds(rule, "git push")
    (True, False)
    """
    if rule.action != "exec":
        return matches(rule.pattern, example)
    try:
        argv = tuple(shlex.split(example))
    except ValueError:
        argv = tuple(example.split())
    if not argv:
        return False
    rules = LayerRules([Layer(name="example", rules=(rule,))])
    verdict = judge_argv(argv, rules, PathPolicy())
    if rule.effect is Effect.ALLOW:
        return verdict.effect is Effect.ALLOW
    # Some commands are denied, and all others asked about, without any rule.
    said = f"rule `{rule.action} {rule.pattern}` of example policy"
    return any(said in reason for reason in verdict.reasons)
