"""The verbs that change skills: `new`, `delete`, `enable`, `disable` and `trust`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.options import UsageError, Verb, add_common, add_skill, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.presentation.json_values import trust_value
from skillhouse.frontends.presentation.operations import definition_value
from skillhouse.frontends.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import TrustReport

_NEW_EXAMPLES = """examples:
  skillhouse new meeting-notes --description "Writes up meetings. Use it after a call."
  skillhouse new deploy --project --description "Deploys this site." --body steps.md

The body is read from the file, or from stdin with `--body -`.
"""

BODY = """# {name}

## When to use

Say which requests this skill is for.

## Steps

1. First step.
2. Second step.
"""


def _configure_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a-z, 0-9 and single hyphens; also the directory's name")
    parser.add_argument(
        "--description", required=True, metavar="TEXT", help="what it does and when to use it"
    )
    parser.add_argument("--body", metavar="FILE", help="the instructions (default: an outline)")
    parser.add_argument("--project", action="store_true", help="make it in this project")
    add_common(parser)


def _new(options: argparse.Namespace, terminal: Terminal) -> int:
    """Make the skill and say where it is."""
    body = BODY.format(name=options.name) if options.body is None else _read_body(options.body)
    scope = "project" if options.project else "user"
    management = house_of(options).management
    made = management.create(options.name, options.description, body, scope=scope)
    if options.json:
        terminal.json(definition_value(made))
        return 0
    terminal.line(f"{shown(made.id)} is at {shown(made.path)}")
    if options.project:
        terminal.note("no agent loads it without asking until you run `skillhouse trust`")
    return 0


def _read_body(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"expected UTF-8 text in `{name}`") from error


_DELETE_EXAMPLES = """examples:
  skillhouse delete meeting-notes
  skillhouse delete user:meeting-notes --yes

Only your own skills (scope user) can be deleted.
"""


def _configure_delete(parser: argparse.ArgumentParser) -> None:
    add_skill(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_common(parser)


def _delete(options: argparse.Namespace, terminal: Terminal) -> int:
    """Delete one skill once the user confirms; 1 when nothing was deleted."""
    management = house_of(options).management
    found = management.get(options.skill)
    if not options.yes and not _is_confirmed(found.directory_path, len(found.files) + 1, terminal):
        terminal.note("nothing was deleted")
        return 1
    path = management.delete(found.id)
    if options.json:
        terminal.json({"id": found.id, "path": str(path)})
    else:
        terminal.line(f"deleted {shown(found.id)} at {shown(str(path))}")
    return 0


def _is_confirmed(directory: str, files: int, terminal: Terminal) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("cannot ask without a terminal; use --yes")
    terminal.prompt(f"Delete {shown(directory)} with {counted(files, 'file')}? (y, n) ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


_SWITCH_EXAMPLES = """examples:
  skillhouse disable weather          no agent sees it any more
  skillhouse enable weather
  skillhouse disable --all            no skills at all
"""


def _configure_switch(parser: argparse.ArgumentParser) -> None:
    add_skill(parser, nargs="?")
    parser.add_argument("--all", action="store_true", help="skills as a whole")
    add_common(parser)


def _switch(options: argparse.Namespace, terminal: Terminal) -> int:
    """Switch one skill, or all of them."""
    enabled = options.verb == "enable"
    if (options.skill is None) == (not options.all):
        raise UsageError(f"expected a skill or --all; see `skillhouse {options.verb} --help`")
    if enabled:
        refuse_agents("enable")
    management = house_of(options).management
    word = f"{options.verb}d"
    if options.all:
        management.set_all_enabled(enabled=enabled)
        skill = "*"
        text = f"skills are {word}"
    else:
        skill = management.set_enabled(options.skill, enabled=enabled).id
        text = f"{shown(skill)} is {word}"
    if options.json:
        terminal.json({"id": skill, "enabled": enabled})
    else:
        terminal.line(text)
    if enabled and not options.all and not management.settings.enable_skills:
        terminal.note("skills as a whole are disabled: `skillhouse enable --all`")
    return 0


_TRUST_EXAMPLES = """examples:
  skillhouse trust --show        what would be trusted, and what changed since
  skillhouse trust               trust this project's skills as they are now
  skillhouse trust --revoke

Trust is kept outside the project and bound to its path and to the digest of each
skill: what is new or changed later is asked about again.
"""


def _configure_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", nargs="?", metavar="DIR", help="the project (default: here)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only show how the skills stand")
    what.add_argument("--revoke", action="store_true", help="take the trust back")
    what.add_argument("--list", action="store_true", help="list all trusted projects")
    add_common(parser)


def _trust(options: argparse.Namespace, terminal: Terminal) -> int:
    """Give, show or take back the trust in one project."""
    options.start = options.project or options.start
    house = house_of(options)
    if options.list:
        projects = house.services.trust_store.projects()
        if options.json:
            terminal.json(list(projects))
        else:
            for project in projects:
                terminal.line(shown(project))
        return 0
    if options.revoke:
        revoked = house.project_trust.revoke()
        if options.json:
            terminal.json({"project": str(house.services.project), "revoked": revoked})
        else:
            word = "no longer trusted" if revoked else "was not trusted"
            terminal.line(f"{shown(str(house.services.project))} {word}")
        return 0 if revoked else 1
    if not options.show:
        refuse_agents("trust")
    report = house.project_trust.report() if options.show else house.project_trust.trust()
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


VERBS = {
    "new": Verb(_NEW_EXAMPLES, _configure_new, _new),
    "delete": Verb(_DELETE_EXAMPLES, _configure_delete, _delete),
    "enable": Verb(_SWITCH_EXAMPLES, _configure_switch, _switch),
    "disable": Verb(_SWITCH_EXAMPLES, _configure_switch, _switch),
    "trust": Verb(_TRUST_EXAMPLES, _configure_trust, _trust),
}
