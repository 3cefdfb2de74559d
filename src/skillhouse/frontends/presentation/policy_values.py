"""Decisions, rules and findings as plain values, for `--json` and the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from skillhouse.floor import SkillError, UnknownSkillError, structs
from skillhouse.frontends.presentation.json_values import (
    command_value,
    explanation_value,
    matched_value,
)
from skillhouse.house import Skillhouse, judged_line
from skillhouse.permission import Layer, Permission, Rule
from skillhouse.skill import load

if TYPE_CHECKING:
    from skillhouse.house import Explanation, JudgedLine
    from skillhouse.permission import RuleFinding
    from skillhouse.skill import Skill, SkillContent

TRIAL_LAYER = "trial"
"""Name of the layer of rules that are tried and not written."""


def explained(house: Skillhouse, action: str, resource: str, agent: str) -> Explanation:
    """Return the decision about one permission that is no command; ConfigError for no agent."""
    if action == "skill":
        # Rules may be about skills that are not here yet.
        with suppress(UnknownSkillError):
            skill = house.index.get(resource)
            return house.policy.explain_skill(skill, agent=agent, content=_content_of(skill))
    return house.policy.explain(Permission(action=action, resource=resource), agent=agent)


def decision_value(house: Skillhouse, action: str, resource: str, agent: str) -> dict[str, Any]:
    """Return the decision about a permission or a command line, as `policy explain --json` does."""
    if action == "exec":
        return line_value(judged_line(house, resource, agent=agent))
    return explanation_value(explained(house, action, resource, agent))


def trial_value(
    house: Skillhouse, rules: Sequence[Rule], action: str, resource: str, agent: str
) -> dict[str, Any]:
    """Return the decision as it is and as it would be with more rules; nothing is written.

    Raises:
        ConfigError: no agent has that name, or a rule cannot be used.
    """
    layer = Layer(name=TRIAL_LAYER, rules=tuple(rules))
    config = structs.replace(house.config, layers=(*house.config.layers, layer))
    with Skillhouse(config) as trial:
        after = decision_value(trial, action, resource, agent)
    return {"before": decision_value(house, action, resource, agent), "after": after}


def _content_of(skill: Skill) -> SkillContent | None:
    """Return what a skill's file says; None where it cannot be used, which `load` says."""
    try:
        return load(skill)
    except SkillError:
        return None


def line_value(judged: JudgedLine) -> dict[str, Any]:
    verdict = judged.verdict
    return {
        "action": "exec",
        "resource": judged.line,
        "effect": judged.effect.value,
        "layer": judged.layer,
        "rule_index": _rule_index(judged),
        "reason": judged.reason,
        "reasons": list(judged.reasons),
        "needs_shell": verdict.needs_shell,
        "plan": None if verdict.structure is None else dict(verdict.structure.value()),
        "rules": [
            {"command": command, **matched_value(matched)}
            for command, rules in judged.matched
            for matched in rules
        ],
        "commands": [command_value(command) for command in judged.commands],
    }


def _rule_index(judged: JudgedLine) -> int | None:
    places = [
        matched.rule_index
        for _, rules in judged.matched
        for matched in rules
        if matched.decided
        and matched.layer == judged.layer
        and matched.rule.effect is judged.effect
    ]
    return places[0] if places else None


def rule_values(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    return [
        {
            "layer": layer.name,
            "rule_index": index,
            "effect": rule.effect.value,
            "action": rule.action,
            "pattern": rule.pattern,
            "reason": rule.reason,
        }
        for layer in layers
        for index, rule in enumerate(layer.rules)
    ]


def finding_value(found: RuleFinding) -> dict[str, Any]:
    return {
        "code": found.code,
        "severity": "info" if found.is_note else "warning",
        "layer": found.layer,
        "rule_index": found.rule_index,
        "effect": found.rule.effect.value,
        "action": found.rule.action,
        "pattern": found.rule.pattern,
        "message": found.message,
        "by": found.by,
    }
