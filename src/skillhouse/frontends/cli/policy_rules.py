"""`skillhouse policy`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skillhouse.floor import SkillError, UnknownSkillError
from skillhouse.frontends.cli.options import Verb, add_common, house_of
from skillhouse.frontends.presentation.json_values import explanation_value
from skillhouse.frontends.presentation.text import counted, shown
from skillhouse.permission import Effect, Permission, lint_rules
from skillhouse.runtime import judged_line
from skillhouse.skill import load

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.permission import MatchedRule, RuleFinding
    from skillhouse.runtime import Explanation, JudgedLine, Skillhouse
    from skillhouse.skill import Skill, SkillContent

_EXAMPLES = """examples:
  skillhouse policy explain exec git status
  skillhouse policy explain exec "git status --short"
  skillhouse policy explain exec "git log -5 | head > top.txt"
  skillhouse policy explain skill weather
  skillhouse policy lint
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    explain = verbs.add_parser(
        "explain", help="decide one permission and show every rule that matches"
    )
    explain.add_argument("action", help="skill, read, write, exec, …")
    explain.add_argument("resource", nargs="+", help="a skill's name, a path, a command")
    explain.add_argument("--agent", default="default", metavar="NAME", help="as for this agent")
    add_common(explain)
    lint = verbs.add_parser("lint", help="find rules that have no effect, or more than they seem")
    add_common(lint)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the decision, or the findings; 1 when it is deny, or there are some."""
    with house_of(options) as house:
        if options.verb == "lint":
            return _lint(house, terminal, is_json=options.json)
        resource = " ".join(options.resource)
        if options.action == "exec":
            judged = judged_line(house, resource, agent=options.agent)
            if options.json:
                terminal.json(_line_value(judged))
            else:
                _print_line(judged, terminal)
            return 1 if judged.effect is Effect.DENY else 0
        found = _explained(house, options.action, resource, options.agent)
    if options.json:
        terminal.json(explanation_value(found))
    else:
        _print(found, terminal)
    return 1 if found.decision.effect is Effect.DENY else 0


def _content(skill: Skill) -> SkillContent | None:
    """Return what a skill's file says; None where it cannot be used, which `load` says."""
    try:
        return load(skill)
    except SkillError:
        return None


def _explained(house: Skillhouse, action: str, resource: str, agent: str) -> Explanation:
    if action == "skill":
        try:
            skill = house.index.get(resource)
            return house.policy.explain_skill(skill, agent=agent, content=_content(skill))
        except UnknownSkillError:
            # Rules may be about skills that are not here yet.
            return house.policy.explain(Permission(action=action, resource=resource), agent=agent)
    return house.policy.explain(Permission(action=action, resource=resource), agent=agent)


def _print(found: Explanation, terminal: Terminal) -> None:
    wanted = f"{found.permission.action} {found.permission.resource}"
    terminal.line(f"{terminal.effect(found.decision.effect)}  {shown(wanted)}")
    terminal.line(f"  {shown(found.reason)}")
    if found.matched:
        terminal.line()
        terminal.heading("rules that match")
        _spoke(found.matched, terminal)


def _spoke(rules: Sequence[MatchedRule], terminal: Terminal) -> None:
    for matched in rules:
        mark = "decides" if matched.decided else "counts in its layer" if matched.is_verdict else ""
        rule = f"{matched.rule.effect} {matched.rule.action} {matched.rule.pattern}"
        terminal.line(f"  {matched.layer} {matched.rule_index + 1}: {shown(rule)}  {mark}".rstrip())


def _print_line(judged: JudgedLine, terminal: Terminal) -> None:
    terminal.line(f"{terminal.effect(judged.effect)}  {shown(f'exec {judged.line}')}")
    for reason in judged.reasons:
        terminal.line(f"  {shown(reason)}")
    many = len(judged.matched) > 1
    if any(rules for _, rules in judged.matched):
        terminal.line()
        terminal.heading("rules that match")
    for command, rules in judged.matched:
        if many and rules:
            terminal.line(f"  {shown(command)}")
        _spoke(rules, terminal)


def _line_value(judged: JudgedLine) -> dict[str, Any]:
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
            {
                "command": command,
                "layer": matched.layer,
                "rule_index": matched.rule_index,
                "effect": matched.rule.effect.value,
                "action": matched.rule.action,
                "pattern": matched.rule.pattern,
                "reason": matched.rule.reason,
                "is_verdict": matched.is_verdict,
                "decided": matched.decided,
            }
            for command, rules in judged.matched
            for matched in rules
        ],
    }


def _rule_index(judged: JudgedLine) -> int | None:
    """Return the place of the rule that decided, when one rule did."""
    places = [
        matched.rule_index
        for _, rules in judged.matched
        for matched in rules
        if matched.decided
        and matched.layer == judged.layer
        and matched.rule.effect is judged.effect
    ]
    return places[0] if places else None


def _lint(house: Skillhouse, terminal: Terminal, *, is_json: bool) -> int:
    layers = (*house.config.layers, *house.config.agents.values())
    findings = lint_rules(layers)
    if is_json:
        terminal.json({"findings": [_finding_value(found) for found in findings]})
        return 1 if findings else 0
    for found in findings:
        rule = f"{found.rule.effect} {found.rule.action} {found.rule.pattern}"
        terminal.line(f"{found.layer} {found.rule_index + 1}: {shown(rule)}")
        terminal.line(f"  {shown(found.message)} [{found.code}]")
    rules = sum(len(layer.rules) for layer in layers)
    terminal.note(f"{counted(rules, 'rule')}: {counted(len(findings), 'finding')}")
    return 1 if findings else 0


def _finding_value(found: RuleFinding) -> dict[str, Any]:
    return {
        "code": found.code,
        "layer": found.layer,
        "rule_index": found.rule_index,
        "effect": found.rule.effect.value,
        "action": found.rule.action,
        "pattern": found.rule.pattern,
        "message": found.message,
        "by": found.by,
    }


VERBS = {"policy": Verb(_EXAMPLES, _configure, _run)}
