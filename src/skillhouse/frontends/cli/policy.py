"""`skillhouse policy`."""

from __future__ import annotations

import argparse

from skillhouse.floor import UnknownSkillError
from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.plain import explanation_value
from skillhouse.frontends.text import shown
from skillhouse.permission import Effect, Permission
from skillhouse.runtime import Explanation, Skillhouse

EXAMPLES = """examples:
  skillhouse policy explain exec git status
  skillhouse policy explain exec "git status --short"
  skillhouse policy explain skill weather
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    explain = verbs.add_parser(
        "explain", help="decide one permission and show every rule that spoke"
    )
    explain.add_argument("action", help="skill, read, write, exec, …")
    explain.add_argument("resource", nargs="+", help="a skill's name, a path, a command")
    add_json(explain)
    add_place(explain)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the decision; 1 when it is deny."""
    found = _explained(house_of(options), options.action, " ".join(options.resource))
    if options.json:
        terminal.json(explanation_value(found))
    else:
        _print(found, terminal)
    return 1 if found.decision.effect is Effect.DENY else 0


def _explained(house: Skillhouse, action: str, resource: str) -> Explanation:
    if action == "skill":
        try:
            return house.explain_skill(house.skill(resource))
        except UnknownSkillError:
            # Rules may be about skills that are not here yet.
            return house.explain(Permission(action=action, resource=resource))
    return house.explain(Permission(action=action, resource=resource))


def _print(found: Explanation, terminal: Terminal) -> None:
    wanted = f"{found.permission.action} {found.permission.resource}"
    terminal.line(f"{terminal.effect(found.decision.effect)}  {shown(wanted)}")
    terminal.line(f"  {shown(found.reason)}")
    if not found.spoke:
        return
    terminal.line()
    terminal.heading("rules that match")
    for spoke in found.spoke:
        mark = "decides" if spoke.decided else "counts in its layer" if spoke.is_verdict else ""
        rule = f"{spoke.rule.effect} {spoke.rule.action} {spoke.rule.pattern}"
        terminal.line(f"  {spoke.layer} {spoke.rule_index + 1}: {shown(rule)}  {mark}".rstrip())
