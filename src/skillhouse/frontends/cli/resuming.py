"""`skillhouse resume`."""

from __future__ import annotations

import argparse
import sys

from skillhouse.approval import OWNER
from skillhouse.frontends.cli.options import UsageError, add_json, add_place, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import one_line
from skillhouse.tiers.tier_engine import TERMINAL

EXAMPLES = """examples:
  skillhouse resume

Lets the tools go on after a stop, and lifts the wait of a tool that was denied again and again.
It asks at a terminal, because no program may answer for you. Session keys that ended stay ended:
`skillhouse keys session new` makes others.
"""
WORD = "resume"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Ask the owner, then let everything go on; 1 when there was nothing to lift, or a no."""
    refuse_agents("resume")
    if not sys.stdin.isatty():
        raise UsageError("`resume` asks at a terminal, and stdin is none: nothing was resumed")
    with house_of(options) as house:
        reason = house.safeguards.tiers.stopped_reason
        terminal.note(f"stopped: {one_line(reason)}" if reason else "not stopped")
        terminal.prompt(f"Type `{WORD}` to let the tools go on: ")
        if sys.stdin.readline().strip().lower() != WORD:
            terminal.note("nothing was resumed")
            return 1
        resumed = house.safeguards.resume(OWNER, TERMINAL)
    if options.json:
        terminal.json({"resumed": resumed})
    else:
        terminal.line("the tools go on" if resumed else "there was nothing to resume")
    return 0 if resumed else 1
