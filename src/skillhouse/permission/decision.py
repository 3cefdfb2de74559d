"""The whole meaning of rules: which one decides."""

from __future__ import annotations

from collections.abc import Sequence

from skillhouse.floor import ONE_TIME
from skillhouse.floor.effect import Effect
from skillhouse.floor.wildcard import matches, matches_in
from skillhouse.permission.rules import Decision, Layer, MatchedRule, Permission, Rule


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
    """Return the place of the layer that decides, or None when the default does."""
    matched = [at for at, verdict in enumerate(verdicts) if verdict is not None]
    # INVARIANT: deny is looked for in every layer before the nearest one answers, so that no
    # grant and no project can lift what another layer forbids.
    for at in matched:
        if _decision(layers, verdicts, at, default).effect is Effect.DENY:
            return at
    # INVARIANT: an untrusted layer that speaks alone cannot loosen a default of deny.
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
    """Return the place of the rule that counts in `layer`, or None when it does not speak."""
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
    return is_about and matches_in(layer.dialect, rule.pattern, permission.resource)
