"""`skillhouse trust`."""

from __future__ import annotations

import argparse

from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.json_values import trust_value
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.runtime import TrustReport

EXAMPLES = """examples:
  skillhouse trust --show        what would be trusted, and what changed since
  skillhouse trust               trust this project's skills as they are now
  skillhouse trust --revoke

Trust is kept outside the project and bound to its path and to the digest of each
skill: what is new or changed later is asked about again.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("project", nargs="?", metavar="DIR", help="the project (default: here)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only show how the skills stand")
    what.add_argument("--revoke", action="store_true", help="take the trust back")
    what.add_argument("--list", action="store_true", help="list all trusted projects")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Give, show or take back the trust in one project."""
    options.start = options.project or options.start
    house = house_of(options)
    if options.list:
        projects = house.trust_store.projects()
        if options.json:
            terminal.json(list(projects))
        else:
            for project in projects:
                terminal.line(shown(project))
        return 0
    if options.revoke:
        revoked = house.trusting.revoke()
        if options.json:
            terminal.json({"project": str(house.project), "revoked": revoked})
        else:
            word = "no longer trusted" if revoked else "was not trusted"
            terminal.line(f"{shown(str(house.project))} {word}")
        return 0 if revoked else 1
    if not options.show:
        refuse_agents("trust")
    report = house.trusting.report() if options.show else house.trusting.trust()
    if options.json:
        terminal.json(trust_value(report))
    else:
        _print(report, terminal)
    return 0


def _print(report: TrustReport, terminal: Terminal) -> None:
    word = "trusted" if report.is_trusted else "not trusted"
    terminal.line(f"{shown(str(report.project))}: {word}, {counted(len(report.skills), 'skill')}")
    if report.skills:
        terminal.line()
    for found in report.skills:
        state = found.state if not found.problem else f"{found.state} ({one_line(found.problem)})"
        terminal.rows([(f"{shown(found.skill.name)}", f"{state}  {shown(found.directory)}")])
