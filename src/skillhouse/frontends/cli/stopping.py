"""`skillhouse stop`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from skillhouse.approval import OWNER
from skillhouse.floor import ConfigError, StateError
from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.text import one_line
from skillhouse.permission import Tiers
from skillhouse.runtime import Config, Places, Safeguards

EXAMPLES = """examples:
  skillhouse stop
  skillhouse stop --reason "the bot pays somebody I do not know"
  skillhouse stop --status

Every tool of this house is refused from now on, in each program that shares it, and every session
key ends for good. `skillhouse resume` lets the tools go on.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--reason", default="by hand", metavar="TEXT", help="for the log")
    parser.add_argument("--status", action="store_true", help="only say whether it is stopped")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Stop everything; 1 when a part of it failed, or when the status is that all is stopped."""
    with ExitStack() as stack:
        tiers = _tiers_anyhow(options, terminal, stack)
        if options.status:
            return _status(tiers.stopped_reason, terminal, json=options.json)
        report = tiers.stop(OWNER, options.reason)
    if options.json:
        failed = [{"step": name, "error": why} for name, why in report.failed]
        terminal.json({"new": report.is_new, "done": list(report.done), "failed": failed})
    else:
        terminal.line("everything is stopped" if report.is_new else "everything was stopped before")
        for name in report.done:
            terminal.line(f"  {name}: done")
        for name, why in report.failed:
            terminal.error(f"{name} failed: {one_line(why)}; the tools are stopped all the same")
    return 1 if report.failed else 0


def _status(reason: str, terminal: Terminal, *, json: bool) -> int:
    if json:
        terminal.json({"stopped": bool(reason), "reason": reason})
    else:
        terminal.line(f"stopped: {one_line(reason)}" if reason else "not stopped")
    return 1 if reason else 0


def _tiers_anyhow(options: argparse.Namespace, terminal: Terminal, stack: ExitStack) -> Tiers:
    """Return the tiers even where the configuration has a fault: a stop must not wait for that."""
    try:
        return stack.enter_context(house_of(options)).safeguards.tiers
    except (ConfigError, StateError) as error:
        places = Places.here()
        state = places.state()
        terminal.error(f"{error}; going by the usual place of the state, {state}")
        config = Config(places=places, state_directory=state, remote_directory=places.cache())
        safeguards = Safeguards(config)
        stack.callback(safeguards.close)
        return safeguards.tiers
