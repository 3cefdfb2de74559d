"""Findings about rules as lines, and what rules cover without naming it.

Apart from `findings.py`, which every list loads: what this needs judges commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skillhouse.answers.policy import RuleScopeAnswer
from skillhouse.permission import Layer, Rule, RuleFinding, beyond
from skillhouse.presentation.text import counted, shown

SHOWN_MAX = 3
"""Findings of one kind that have lines of their own; a starting policy has a hundred of one."""


def finding_lines(findings: Sequence[RuleFinding]) -> Iterator[str]:
    """Yield two lines for each finding; one line has the rest of a layer's that say the same."""
    kinds: dict[tuple[str, str, str], list[RuleFinding]] = {}
    for found in findings:
        message = found.message.replace(f"`{found.rule.pattern}`", "")
        kinds.setdefault((found.layer, found.code, message), []).append(found)
    for kind in kinds.values():
        for found in kind[:SHOWN_MAX]:
            rule = f"{found.rule.effect} {found.rule.action} {found.rule.pattern}"
            yield f"{found.layer} {found.rule_index + 1}: {shown(rule)}"
            yield f"  {shown(found.message)} [{found.code}]"
        if rest := kind[SHOWN_MAX:]:
            code = kind[0].code
            yield f"{kind[0].layer}: {counted(len(rest), 'rule')} more [{code}]; --json has all"


def rule_scopes(layers: Sequence[Layer]) -> Iterator[tuple[str, Rule, str]]:
    """Yield the layer of each rule that covers commands it does not name, and what these are."""
    for layer in layers:
        for rule in layer.rules if layer.trusted else ():
            if said := beyond(rule):
                yield layer.name, rule, said


def rule_scope_answers(layers: Sequence[Layer]) -> list[RuleScopeAnswer]:
    return [
        RuleScopeAnswer(layer=name, pattern=rule.pattern, covers=said)
        for name, rule, said in rule_scopes(layers)
    ]
