"""Rules, the layers they come in, and which rule decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from skillhouse.floor import ONE_TIME
from skillhouse.floor.rules import OURS, Dialect, Effect, matches, matches_in

ACTIONS = (
    "skill",
    "read",
    "list",
    "write",
    "exec",
    "exec-once",
    "shell",
    "script",
    "network",
    "fetch",
    "net",
    "sign",
    "memory",
)
"""The actions that calls of the main tools need."""
TOOL_ACTIONS = (
    "background",
    "find_and_install_skill",
    "invoke",
    "mcp",
    "search_skills",
    "skill_code",
    "skill_tool",
    "tool",
    "web_search",
)
"""Those that the other tools need, and with `mcp` (SERVER/TOOL) and `tool` (its name) a coding
agent's own; a rule about any further action is for a program's own tool."""


class Permission(Struct, frozen=True, kw_only=True):
    """Something that a call needs: an action on a resource."""

    action: str
    """skill, read, write, exec, …: the kind of thing that is done."""
    resource: str
    """What it is done to: a skill's name, a path, a command line."""
    argv: tuple[str, ...] = ()
    """Of a command: its words, so that rules are compared by the grammar of its program."""


class Rule(Struct, frozen=True, kw_only=True):
    """One line of policy. `*` and `?` are wildcards in `action` and `pattern`."""

    effect: Effect
    """What it says of an action that it covers."""
    action: str
    """What is done."""
    pattern: str
    """What it is done to."""
    reason: str = ""
    """Shown to whoever is asked or refused."""
    match: tuple[str, ...] = ()
    """Resources that the pattern must match: examples that are tried when rules are read."""
    not_match: tuple[str, ...] = ()
    """Resources that the pattern must not match."""
    unbound: bool = False
    """Of a command: whether it also covers what runs any code that the workspace holds, such as
    a test runner or make. That runs without network."""
    scripts: bool = False
    """Of a command: whether it covers scripts and tasks of the workspace that it does not name.
    Whoever runs one asks about its digest first."""

    def named_in(self, layer: str) -> str:
        """Return what the reasons of decisions call this rule of a layer."""
        return f"rule `{self.action} {self.pattern}` of {layer} policy"

    def said_in(self, layer: str) -> str:
        """Return the same with the reason that the rule gives."""
        named = self.named_in(layer)
        return f"{named}: {self.reason}" if self.reason else named


class Layer(Struct, frozen=True, kw_only=True):
    """The rules of one origin, in the order in which they were written."""

    name: str
    rules: tuple[Rule, ...] = ()
    trusted: bool = True
    """False: its rules can only make the outcome stricter."""
    match: Literal["last", "first"] = "last"
    """Which of several matching rules is the layer's verdict."""
    dialect: Dialect = OURS
    """What its patterns mean."""
    is_builtin: bool = False
    """Whether its rules come with the program, and no file of a person holds them."""
    is_nearest: bool = False
    """Whether it counts before agents' rules and earlier approvals: for rules that cannot be
    read."""


class Decision(Struct, frozen=True, kw_only=True):
    """The answer to one permission, with the layer and rule that gave it."""

    effect: Effect
    layer: str
    """Name of the layer that decided; "default" when no rule matched."""
    rule_index: int | None = None
    """Place of the deciding rule in its layer, from 0; None when the default decided."""


class MatchedRule(Struct, frozen=True, kw_only=True):
    """One rule that matched a permission, for explaining a decision."""

    layer: str
    rule_index: int
    rule: Rule
    is_verdict: bool
    """Whether this is the rule that counts in its layer."""
    decided: bool
    """Whether this rule gave the decision."""


def decide(
    layers: Sequence[Layer], permission: Permission, *, default: Effect = Effect.ASK
) -> Decision:
    """Return what the layers, nearest last, say about a permission (vectors/decisions.jsonl).

    >>> rule = Rule(effect=Effect.DENY, action="exec", pattern="rm *")
    >>> wanted = Permission(action="exec", resource="rm -rf build")
    >>> decide([Layer(name="user", rules=(rule,))], wanted).effect.value
    'deny'
    """
    verdicts = [_verdict(layer, permission) for layer in layers]
    return _decision(layers, verdicts, _deciding(layers, verdicts, default), default)


def explain(
    layers: Sequence[Layer], permission: Permission, *, default: Effect = Effect.ASK
) -> tuple[Decision, tuple[MatchedRule, ...]]:
    """Return the decision and every rule that matched, farthest layer first."""
    verdicts = [_verdict(layer, permission) for layer in layers]
    deciding = _deciding(layers, verdicts, default)
    matched = tuple(
        MatchedRule(
            layer=layer.name,
            rule_index=index,
            rule=rule,
            is_verdict=index == verdicts[at],
            decided=at == deciding and index == verdicts[at],
        )
        for at, layer in enumerate(layers)
        for index, rule in enumerate(layer.rules)
        if _applies(layer, rule, permission)
    )
    return _decision(layers, verdicts, deciding, default), matched


def _deciding(
    layers: Sequence[Layer], verdicts: Sequence[int | None], default: Effect
) -> int | None:
    matched = [at for at, verdict in enumerate(verdicts) if verdict is not None]
    # INVARIANT: deny is looked for in every layer before the nearest one answers, so that no
    # grant and no project can lift what another layer forbids.
    for at in matched:
        if _decision(layers, verdicts, at, default).effect is Effect.DENY:
            return at
    # INVARIANT: an untrusted layer that alone has a match cannot loosen a default of deny.
    if default is Effect.DENY and not any(layers[at].trusted for at in matched):
        return None
    return matched[-1] if matched else None


def _decision(
    layers: Sequence[Layer],
    verdicts: Sequence[int | None],
    deciding: int | None,
    default: Effect,
) -> Decision:
    index = None if deciding is None else verdicts[deciding]
    if deciding is None or index is None:
        return Decision(effect=default, layer="default")
    layer = layers[deciding]
    return Decision(effect=layer.rules[index].effect, layer=layer.name, rule_index=index)


def _verdict(layer: Layer, permission: Permission) -> int | None:
    places = range(len(layer.rules))
    for index in places if layer.match == "first" else reversed(places):
        if _applies(layer, layer.rules[index], permission):
            return index
    return None


def _applies(layer: Layer, rule: Rule, permission: Permission) -> bool:
    """Whether the rule matches; an untrusted layer's allow is as if it were not there."""
    if rule.effect is Effect.ALLOW and (not layer.trusted or permission.action in ONE_TIME):
        return False
    is_about = rule.action == permission.action or matches(rule.action, permission.action)
    if is_about and permission.argv and layer.dialect == OURS:
        # The grammars are loaded when a command is judged, not with the package.
        from skillhouse.permission.patterns import applies_to_command  # noqa: PLC0415

        allows = rule.effect is Effect.ALLOW
        return applies_to_command(rule.pattern, permission.argv, allows=allows)
    if not is_about or matches_in(layer.dialect, rule.pattern, permission.resource):
        return is_about
    if permission.action != "skill" or rule.effect is Effect.ALLOW:
        return False
    # A name with a line break is shown, and loads, as the one that the rule was written about.
    return matches_in(layer.dialect, rule.pattern, " ".join(permission.resource.split()))
