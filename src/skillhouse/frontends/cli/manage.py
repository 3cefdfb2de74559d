"""`skillhouse new`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from skillhouse.frontends.cli.options import UsageError, add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.operations import definition_value
from skillhouse.frontends.presentation.text import shown

EXAMPLES = """examples:
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", help="a-z, 0-9 and single hyphens; also the directory's name")
    parser.add_argument(
        "--description", required=True, metavar="TEXT", help="what it does and when to use it"
    )
    parser.add_argument("--body", metavar="FILE", help="the instructions (default: an outline)")
    parser.add_argument("--project", action="store_true", help="make it in this project")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Make the skill and say where it is."""
    body = BODY.format(name=options.name) if options.body is None else _body(options.body)
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


def _body(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"expected UTF-8 text in `{name}`") from error
