"""`skillhouse mcp`."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.options import Verb, add_place, add_tools, house_of

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import ConfigNews, Skillhouse

_MCP_EXAMPLES = """examples:
  skillhouse mcp                                 serve, as a coding agent starts it
  skillhouse mcp -C ~/project --agent reviewer
  skillhouse mcp install codex                   add the server to Codex's configuration
  skillhouse mcp install claude-code --project   in .mcp.json of this project
  skillhouse mcp install codex --tools skills    only the tools about skills
  skillhouse mcp install codex --decide-alone    unattended: Codex asks no more, your rules decide
  skillhouse mcp status                          which clients have it; 1 when an entry is unsafe
  skillhouse mcp status --fix                    fix what starts it unsafely
  skillhouse mcp uninstall codex
  skillhouse mcp servers                         the servers whose skills are used here
  skillhouse mcp servers refresh docs            ask one what it has; without a label, all
  skillhouse mcp servers add docs skill://pdf/SKILL.md
  skillhouse mcp servers forget docs             remove what is stored of it

A coding agent starts the server itself and talks to it over stdin and stdout; docs/guides/agents.md
says what it gets. What needs approval waits: answer it with `skillhouse approvals` or on the page
of `skillhouse up`, and the agent repeats the call.

Clients: aider-desk, amp, claude-code, codex, copilot-cli, copilot-vscode (or vscode), cursor,
forgecode, gemini-cli, kimi-code-cli (or kimi), opencode-cli, pochi, qwen-code, windsurf, zed.
Comments in their files stay, and an entry that we did not write is left alone; `status --fix`
replaces its program where that is not safe.
Servers are named in [[mcp_servers]] of the configuration.
"""


def _configure_mcp(parser: argparse.ArgumentParser) -> None:
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
    add_tools(parser)
    parser.add_argument("--log", action="store_true", help="say on stderr what goes wrong")
    clients = parser.add_argument_group("clients' configurations")
    clients.add_argument("--project", action="store_true", help="the project's, not the user's")
    clients.add_argument(
        "--name", default="skills", metavar="NAME", help="what the server is called (skills)"
    )
    clients.add_argument("--dry-run", action="store_true", help="show what would change")
    clients.add_argument("--force", action="store_true", help="also where our entry was changed")
    clients.add_argument(
        "--fix", action="store_true", help="with status: fix entries that are not safe to start"
    )
    clients.add_argument(
        "--hooks",
        action=argparse.BooleanOptionalAction,
        help="with install: your rules decide about the client's own tools too (`hooks install`)",
    )
    clients.add_argument(
        "--decide-alone",
        action=argparse.BooleanOptionalAction,
        help="with install: the client calls our tools unasked; your rules decide (no)",
    )
    clients.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_place(parser)


def _mcp(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until the client closes stdin, Ctrl-C or SIGTERM; or do what the action says."""
    if options.action == "servers":
        from skillhouse.frontends.cli.skill_servers import served

        with house_of(options) as house:
            return served(options, house, terminal)
    if options.action is not None:
        # Not loaded to serve: the first answer must come soon.
        from skillhouse.frontends.cli.client_files import configured

        with house_of(options) as house:
            return configured(options, house, terminal)
    from skillhouse.frontends.cli.question import is_typed
    from skillhouse.frontends.mcp import serve
    from skillhouse.install import RepositoryRefresh

    if is_typed():
        terminal.note(
            "an MCP client starts this and sends JSON messages, one in a line; at a terminal it "
            "waits for them, and Ctrl-C ends it. `skillhouse mcp install` registers it with one"
        )
    if options.log:
        logging.basicConfig(level=logging.INFO)
    else:
        # Without any handler Python prints warnings to stderr.
        logging.getLogger().addHandler(logging.NullHandler())
    with house_of(options) as house:
        if not options.log:
            house.config_reload.subscribe(_print_news)
        with RepositoryRefresh(house), _bundle_refresh(house):
            return serve(house, agent=options.agent, user=options.user)


def _bundle_refresh(house: Skillhouse) -> AbstractContextManager[object]:
    """Return what looks for a bundle, where one is configured: what it loads takes a while, and
    the first answer must come soon."""
    if not house.config.skills.source:
        return nullcontext()
    from skillhouse.house import BundleRefresh

    return BundleRefresh(house)


def _print_news(news: ConfigNews) -> None:
    """Print what became of a changed configuration where clients keep the log of a server."""
    from skillhouse.presentation.text import one_line

    with suppress(OSError):
        print(f"skillhouse: {one_line(news.text)}", file=sys.stderr, flush=True)


VERBS = {"mcp": Verb(_MCP_EXAMPLES, _configure_mcp, _mcp)}
