"""The whole meaning of rules: which one decides."""

from __future__ import annotations

from collections.abc import Sequence

from skillhouse.permission.rules import Decision, Effect, Layer, Permission, Rule, Spoke
from skillhouse.permission.wildcard import matches


def decide(
    layers: Sequence[Layer], permission: Permission, *, default: Effect = Effect.ASK
) -> Decision:
    """Return what the layers, nearest last, say about a permission (vectors/decisions.jsonl).

    >>> rule = Rule(effect=Effect.DENY, action="exec", pattern="rm *")
    >>> wanted = Permission(action="exec", resource="rm -rf build")
    >>> decide([Layer(name="user", rules=(rule,))], wanted).effect.value
    'deny'
    """
    verdicts = [
        (layer, found) for layer in layers if (found := _verdict(layer, permission)) is not None
    ]
    # INVARIANT: deny is looked for in every layer before the nearest one answers, so that no
    # grant and no project can lift what another layer forbids.
    for layer, index in verdicts:
        if layer.rules[index].effect is Effect.DENY:
            return Decision(effect=Effect.DENY, layer=layer.name, rule_index=index)
    for layer, index in reversed(verdicts):
        effect = layer.rules[index].effect
        if not layer.trusted and _stricter_elsewhere(verdicts, default):
            # INVARIANT: an untrusted layer has no allow, so here it says ask; that is never
            # looser than a default of deny only because it is skipped then.
            continue
        return Decision(effect=effect, layer=layer.name, rule_index=index)
    return Decision(effect=default, layer="default")


def _stricter_elsewhere(verdicts: list[tuple[Layer, int]], default: Effect) -> bool:
    """Whether only untrusted layers speak and the default denies already."""
    return default is Effect.DENY and not any(layer.trusted for layer, _ in verdicts)


def explain(
    layers: Sequence[Layer], permission: Permission, *, default: Effect = Effect.ASK
) -> tuple[Decision, tuple[Spoke, ...]]:
    """Return the decision and every rule that matched, farthest layer first."""
    decision = decide(layers, permission, default=default)
    spoke = []
    for layer in layers:
        verdict = _verdict(layer, permission)
        for index, rule in enumerate(layer.rules):
            if _applies(layer, rule, permission):
                spoke.append(
                    Spoke(
                        layer=layer.name,
                        rule_index=index,
                        rule=rule,
                        is_verdict=index == verdict,
                        decided=(layer.name, index) == (decision.layer, decision.rule_index),
                    )
                )
    return decision, tuple(spoke)


def _verdict(layer: Layer, permission: Permission) -> int | None:
    """Return the place of the rule that counts in `layer`, or None when it does not speak."""
    places = range(len(layer.rules))
    for index in places if layer.match == "first" else reversed(places):
        if _applies(layer, layer.rules[index], permission):
            return index
    return None


def _applies(layer: Layer, rule: Rule, permission: Permission) -> bool:
    """Whether the rule matches; an untrusted layer's allow is as if it were not there."""
    if not layer.trusted and rule.effect is Effect.ALLOW:
        return False
    return matches(rule.action, permission.action) and matches(rule.pattern, permission.resource)
