"""Finds rules that cannot have an effect, or have more of one than they seem to; tries examples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from skillhouse.floor import ONE_TIME, dataclass, nearest
from skillhouse.floor.rules import Effect, covers, matches
from skillhouse.permission.command_rules import LayerRules
from skillhouse.permission.decision import ACTIONS, TOOL_ACTIONS, Layer, Rule
from skillhouse.permission.judge import judge_argv
from skillhouse.permission.path_policy import PathPolicy
from skillhouse.permission.rule_scope import beyond

UNKNOWN_ACTION = "rule-unknown-action"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFinding:
    """What is odd about one rule."""

    code: str
    """rule-unreachable, rule-duplicate, rule-no-effect, rule-allows-all, rule-open-word,
    rule-unbound, rule-no-grammar or rule-unknown-action."""
    layer: str
    rule_index: int
    """Place in its layer, from 0."""
    rule: Rule
    message: str
    by: int | None = None
    """Index of the rule that overrides it."""

    @property
    def is_note(self) -> bool:
        """Whether it only says what the rule means: `unbound = true` is written on purpose."""
        return self.code in ("rule-unbound", "rule-no-grammar")


def lint_rules(layers: Sequence[Layer]) -> tuple[RuleFinding, ...]:
    """Return what is odd about the rules of each layer, in their order.

    >>> rules = tuple(
    ...     Rule(effect=effect, action="exec", pattern=pattern)
    ...     for effect, pattern in ((Effect.DENY, "rm *"), (Effect.ALLOW, "*"))
    ... )
    >>> [found.code for found in lint_rules([Layer(name="user", rules=rules)])]
    ['rule-unreachable', 'rule-allows-all']
    """
    return tuple(
        finding
        for layer in layers
        for index in range(len(layer.rules))
        for finding in _findings(layer, index)
    )


def _findings(layer: Layer, index: int) -> Iterator[RuleFinding]:
    rule = layer.rules[index]

    def found(code: str, message: str, by: int | None = None) -> RuleFinding:
        return RuleFinding(
            code=code, layer=layer.name, rule_index=index, rule=rule, message=message, by=by
        )

    hiding = _hidden_by(layer, index)
    if hiding is not None:
        other = layer.rules[hiding]
        named = f"rule {hiding + 1} (`{other.effect} {other.action} {other.pattern}`)"
        if (other.effect, other.action, other.pattern) == (rule.effect, rule.action, rule.pattern):
            yield found("rule-duplicate", f"it has the same effect as {named}", hiding)
        else:
            message = f"{named} matches all that it matches, and counts instead"
            yield found("rule-unreachable", message, hiding)
    if rule.effect is Effect.ALLOW and not layer.trusted:
        yield found("rule-no-effect", "a layer that is not trusted allows nothing")
    elif rule.effect is Effect.ALLOW and rule.action in ONE_TIME:
        yield found("rule-no-effect", f"`{rule.action}` is allowed by a person only, each time")
    known = (*ACTIONS, *TOOL_ACTIONS)
    if not any(matches(rule.action, action) for action in known):
        close = nearest(rule.action, known, limit=1)
        hint = f"did you mean `{close[0]}`" if close else "only a program's own tool can have it"
        message = f"no built-in tool needs the action `{rule.action}`; {hint}"
        yield found(UNKNOWN_ACTION, message)
    elif problem := _never(rule):
        yield found("rule-no-effect", problem)
    if _switches_off(layer, index):
        message = "it allows everything that no other layer denies, whatever the rules before say"
        yield found("rule-allows-all", message)
    if rule.unbound and rule.effect is Effect.ALLOW and layer.trusted:
        yield found(
            "rule-unbound",
            f"`{rule.pattern}` may run whatever code the workspace holds, such as tests, build "
            "steps and plugins, also what an agent has just written; it has no network",
        )
    elif layer.trusted and "has no grammar" in (covered := beyond(rule)):
        yield found("rule-no-grammar", covered)
    if _is_open_word(rule):
        word = rule.pattern.split(" ")[-1].rstrip("*")
        message = f"it also matches every program that begins with `{word}`; write `{word} *`"
        yield found("rule-open-word", message)


def _hidden_by(layer: Layer, index: int) -> int | None:
    """Return the rule of the layer that always counts instead, or None."""
    rule = layer.rules[index]
    count = len(layer.rules)
    others = range(index) if layer.match == "first" else range(count - 1, index, -1)
    for other in others:
        by = layer.rules[other]
        # An allow of an untrusted layer is as if it were not there, so it hides nothing.
        is_heard = layer.trusted or by.effect is not Effect.ALLOW
        if is_heard and covers(by.action, rule.action) and covers(by.pattern, rule.pattern):
            return other
    return None


def _never(rule: Rule) -> str:
    """Return why a pattern can match nothing that is ever asked about, or nothing."""
    if rule.pattern == "":
        return "an empty pattern matches nothing"
    if rule.action == "exec" and rule.pattern != rule.pattern.strip():
        return "no command begins or ends with a blank"
    if rule.action in ("read", "write", "list") and rule.pattern[0] not in "/*?":
        return "paths are absolute, so a pattern begins with `/` or a wildcard"
    if rule.action in ("read", "write", "list") and "/../" in rule.pattern + "/":
        return "paths are resolved, so none holds `..`"
    if rule.action == "exec" and any(sign in rule.pattern for sign in (" && ", " || ", " | ")):
        return "each command of a line is judged by itself"
    return ""


def _switches_off(layer: Layer, index: int) -> bool:
    rule = layer.rules[index]
    counts = index == (0 if layer.match == "first" else len(layer.rules) - 1)
    return (
        layer.trusted
        and counts
        and len(layer.rules) > 1
        and rule.effect is Effect.ALLOW
        and not rule.pattern.strip("*")
    )


def _is_open_word(rule: Rule) -> bool:
    """Whether an exec pattern is a program's name with a star right behind it."""
    name = rule.pattern.rstrip("*")
    return (
        rule.action == "exec"
        and rule.effect is Effect.ALLOW
        and rule.pattern.endswith("*")
        and bool(name)
        and not any(sign in name for sign in " *?/")
    )


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
