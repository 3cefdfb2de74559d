"""`skillhouse stop` and `skillhouse resume`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from skillhouse.approval import OWNER
from skillhouse.floor import ConfigError, StateError
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.presentation.text import counted, one_line
from skillhouse.runtime import Config, EnforcementServices, Locations
from skillhouse.tiers.tier_engine import TERMINAL

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.tiers import StopReport

_STOP_EXAMPLES = """examples:
  skillhouse stop
  skillhouse stop --reason "the bot pays an unknown address"
  skillhouse stop --status

From now on every tool is refused in each process that shares this state, and what is running ends
within a second: commands, code of skills, requests, questions to you. Every session key ends for
good. `skillhouse resume` allows the tools again.
"""


def _configure_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="by hand", metavar="TEXT", help="for the log")
    parser.add_argument("--status", action="store_true", help="only say whether it is stopped")
    add_common(parser)


def _stop(options: argparse.Namespace, terminal: Terminal) -> int:
    """Stop everything; 1 when a part of it failed, or when the status is that all is stopped."""
    with ExitStack() as stack:
        safeguards = _safeguards_anyhow(options, terminal, stack)
        if options.status:
            return _print_stop_status(safeguards.tiers.stopped_reason, terminal, json=options.json)
        report = safeguards.stop(OWNER, options.reason)
    if options.json:
        failed = [{"step": name, "error": why} for name, why in report.failed]
        terminal.json(
            {
                "new": report.is_new,
                "ended": report.ended,
                "silent": list(report.silent),
                "killed": report.killed,
                "done": list(report.done),
                "failed": failed,
            }
        )
    else:
        terminal.line("everything is stopped" if report.is_new else "everything was stopped before")
        terminal.line(f"  {ended_text(report)}")
        for name in report.done:
            terminal.line(f"  {name}: done")
        for line in _failures(report):
            terminal.error(line)
        if report.silent:
            terminal.error(silent_text(report))
    return 1 if report.failed or report.silent else 0


def ended_text(report: StopReport) -> str:
    """Return how many calls a stop ended."""
    return f"{counted(report.ended, 'call')} ended"


def _failures(report: StopReport) -> Iterator[str]:
    """Yield one line for each reason: one fault of the disk fails several steps."""
    for why in dict.fromkeys(why for _, why in report.failed):
        names = ", ".join(name for name, other in report.failed if other == why)
        yield f"all tools are stopped, but this failed: {names}: {one_line(why)}"


def silent_text(report: StopReport) -> str:
    """Return in which processes calls did not end, and what was done about it."""
    pids = ", ".join(map(str, report.silent))
    return (
        f"not every call ended within 1 s in process {pids}; "
        f"{counted(report.killed, 'command')} killed from here, and no call there begins"
    )


def _print_stop_status(reason: str, terminal: Terminal, *, json: bool) -> int:
    if json:
        terminal.json({"stopped": bool(reason), "reason": reason})
    else:
        terminal.line(f"stopped: {one_line(reason)}" if reason else "not stopped")
    return 1 if reason else 0


def _safeguards_anyhow(
    options: argparse.Namespace, terminal: Terminal, stack: ExitStack
) -> EnforcementServices:
    """Return the safeguards even where the configuration has a fault: a stop must not wait."""
    try:
        return stack.enter_context(house_of(options)).services.enforcement
    except (ConfigError, StateError, OSError) as error:
        places = Locations.here()
        state = places.state()
        terminal.error(f"{error}; stopping what uses the usual state directory, `{state}`")
        config = Config(places=places, state_directory=state, remote_directory=places.cache())
        safeguards = EnforcementServices(config)
        stack.callback(safeguards.close)
        return safeguards


_RESUME_EXAMPLES = """examples:
  skillhouse resume

Lets the tools go on after a stop, and lifts the wait of a tool that was denied again and again.
It asks at a terminal, because no program may answer for you. Session keys that ended stay ended:
`skillhouse keys session new` makes others.
"""
_WORD = "resume"


def _configure_resume(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def _resume(options: argparse.Namespace, terminal: Terminal) -> int:
    """Allow the tools again if the owner confirms; 1 when nothing was lifted."""
    refuse_agents("resume")
    if not sys.stdin.isatty():
        raise UsageError("`resume` asks at a terminal, and stdin is none: nothing was resumed")
    with house_of(options) as house:
        reason = house.services.enforcement.tiers.stopped_reason
        terminal.note(f"stopped: {one_line(reason)}" if reason else "not stopped")
        terminal.prompt(f"Type `{_WORD}` to let the tools go on: ")
        if sys.stdin.readline().strip().lower() != _WORD:
            terminal.note("nothing was resumed")
            return 1
        resumed = house.services.enforcement.resume(OWNER, TERMINAL)
    if options.json:
        terminal.json({"resumed": resumed})
    else:
        terminal.line("the tools go on" if resumed else "there was nothing to resume")
    return 0 if resumed else 1


VERBS = {
    "stop": Verb(_STOP_EXAMPLES, _configure_stop, _stop),
    "resume": Verb(_RESUME_EXAMPLES, _configure_resume, _resume),
}
