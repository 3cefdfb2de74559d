"""`skillhouse invoke`."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys

import anyio

from skillhouse.frontends.cli.answering import answer
from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.cli.terminal_channel import TerminalChannel
from skillhouse.frontends.presentation.text import one_line
from skillhouse.runtime import Skillhouse

EXAMPLES = """examples:
  skillhouse invoke                           what you can start here
  skillhouse invoke fix-issue 123
  skillhouse invoke fix-issue "12 13" --json
  skillhouse invoke deploy -- --dry-run

Prints the skill as a model would get it. Its places for arguments are filled, and its
commands run (each asked about as any command is), where the profile or your
configuration turns that on.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("skill", nargs="?", help="an id, a name or a directory name")
    parser.add_argument("arguments", nargs="*", help="what the skill is told")
    parser.add_argument("--agent", default="default", metavar="NAME", help="beside this agent")
    parser.add_argument(
        "--approval", default="", metavar="ID", help="use this approval, once it is answered"
    )
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Start a skill, or list what can be started; 1 when it was refused or failed."""
    with house_of(options, channel=TerminalChannel(sys.stdin, terminal)) as house:
        if options.skill is None:
            return _list(house, options, terminal)
        result = anyio.run(
            lambda: house.invoke(
                options.skill,
                shlex.join(options.arguments),
                approval_id=options.approval,
                agent=options.agent,
                channel="cli",
            )
        )
    return answer(result, terminal, as_json=options.json)


def _list(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    found = house.invocable(options.agent)
    if options.json:
        terminal.json({"skills": [dataclasses.asdict(entry) for entry in found]})
        return 0
    for entry in found:
        terminal.line(one_line(f"{entry.name} {entry.argument_hint}".strip()))
        terminal.line(f"  {one_line(entry.description)}")
    if not found:
        terminal.note("nothing can be started here")
    return 0
