"""`skillhouse mcp`."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.options import Verb, add_place, house_of

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse mcp                                 serve, as a coding agent starts it
  skillhouse mcp -C ~/project --agent reviewer
  skillhouse mcp install codex                   add the server to Codex's configuration
  skillhouse mcp install claude-code --project   in .mcp.json of this project
  skillhouse mcp status                          which clients have it; 1 when an entry is unsafe
  skillhouse mcp status --fix                    mend what starts it unsafely
  skillhouse mcp uninstall codex
  skillhouse mcp servers                         the servers whose skills are used here
  skillhouse mcp servers refresh docs            ask one what it has; without a label, all
  skillhouse mcp servers add docs skill://pdf/SKILL.md
  skillhouse mcp servers forget docs             remove what is stored of it

A coding agent starts the server itself and talks to it over stdin and stdout; docs/guides/agents.md
says what it gets. What needs a yes waits: answer it with `skillhouse approvals` or on the page of
`skillhouse up`, and the agent repeats the call.

Clients: claude-code, codex, gemini-cli, opencode. Comments in their files stay, and an entry that
we did not write is left alone; `status --fix` replaces its program where that is not safe.
Servers are named in [[mcp_servers]] of the configuration.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("install", "uninstall", "status", "servers"),
        help="about clients' configurations, or other servers; without it, serve",
    )
    parser.add_argument(
        "clients",
        nargs="*",
        metavar="CLIENT",
        help="whose configuration; after `servers`: list, refresh, add, forget",
    )
    parser.add_argument(
        "--agent", default="default", metavar="NAME", help="whose skills and rules hold (default)"
    )
    parser.add_argument(
        "--user", default="local", metavar="NAME", help="the user that the audit log names (local)"
    )
    parser.add_argument("--log", action="store_true", help="say on stderr what goes wrong")
    clients = parser.add_argument_group("clients' configurations")
    clients.add_argument("--project", action="store_true", help="the project's, not the user's")
    clients.add_argument(
        "--name", default="skills", metavar="NAME", help="what the server is called (skills)"
    )
    clients.add_argument("--dry-run", action="store_true", help="show what would change")
    clients.add_argument("--force", action="store_true", help="also where our entry was changed")
    clients.add_argument(
        "--fix", action="store_true", help="with status: mend entries that are not safe to start"
    )
    clients.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_place(parser)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until the client closes stdin, Ctrl-C or SIGTERM; or do what the action says."""
    if options.action == "servers":
        from skillhouse.frontends.cli.skill_servers import served

        with house_of(options) as house:
            return served(options, house, terminal)
    if options.action is not None:
        # Not loaded to serve: the first answer must come soon.
        from skillhouse.frontends.cli.client_configs import configured

        with house_of(options) as house:
            return configured(options, house, terminal)
    from skillhouse.frontends.mcp import serve

    if options.log:
        logging.basicConfig(level=logging.INFO)
    else:
        # Without any handler Python prints warnings to stderr.
        logging.getLogger().addHandler(logging.NullHandler())
    with house_of(options) as house:
        return serve(house, agent=options.agent, user=options.user)


VERBS = {"mcp": Verb(_EXAMPLES, _configure, _run)}
