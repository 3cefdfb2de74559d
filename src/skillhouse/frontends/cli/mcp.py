"""`skillhouse mcp`."""

from __future__ import annotations

import argparse
import logging

from skillhouse.frontends.cli.options import add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.mcp import serve

EXAMPLES = """examples:
  skillhouse mcp
  skillhouse mcp -C ~/project --agent reviewer

A coding agent starts this itself and talks to it over stdin and stdout; docs/guides/agents.md says
how to tell it. What needs a yes waits: answer it with `skillhouse approvals` or on the page of
`skillhouse up`, and the agent repeats the call.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--agent", default="default", metavar="NAME", help="whose skills and rules hold (default)"
    )
    parser.add_argument(
        "--user", default="local", metavar="NAME", help="who stands in the audit log (local)"
    )
    parser.add_argument("--log", action="store_true", help="say on stderr what goes wrong")
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until the client closes stdin, Ctrl-C or SIGTERM."""
    if options.log:
        logging.basicConfig(level=logging.INFO)
    else:
        # Without any handler Python prints warnings to stderr.
        logging.getLogger().addHandler(logging.NullHandler())
    with house_of(options) as house:
        return serve(house, agent=options.agent, user=options.user)
