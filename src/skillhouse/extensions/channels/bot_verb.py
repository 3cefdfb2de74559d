"""`skillhouse bot`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.clients import own_program
from skillhouse.floor import MissingExtraError
from skillhouse.floor.paths import safe_path
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_json,
    add_place,
    add_tools,
    house_of,
    places_of,
)
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import confirmed
from skillhouse.frontends.cli.service_unit import (
    VARIABLES_FILE,
    ServiceUnit,
    UnitAnswer,
    UnitStanding,
)
from skillhouse.house import configured, deciding_variables, refuse_lost_address
from skillhouse.presentation.text import one_line, shown

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

_EXAMPLES = """examples:
  skillhouse bot
  skillhouse bot --profile owliabot
  skillhouse bot --check                       says whether it runs: 0, or 1 where it does not
  skillhouse bot --install-service --dry-run   shows a systemd unit that runs it for you
  skillhouse bot --remove-service

It serves the channels of the configuration, such as:

  [bot]
  model = "openai:gpt-5"
  allow = ["telegram:123456789"]

  [bot.telegram]
  token = "env:TELEGRAM_BOT_TOKEN"

  [bot.discord]
  token = "env:DISCORD_BOT_TOKEN"

Who is not in `allow` gets one sentence a day, with the id to put there. Ctrl-C ends it; what
people write meanwhile is answered after the next start.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    service = parser.add_argument_group("as a service").add_mutually_exclusive_group()
    service.add_argument(
        "--install-service", action="store_true", help="write a systemd user unit that runs this"
    )
    service.add_argument("--remove-service", action="store_true", help="take that unit away")
    service.add_argument(
        "--check", action="store_true", help="only say whether a bot of this state runs"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    parser.add_argument("--force", action="store_true", help="also over a unit that was edited")
    add_json(parser)
    add_tools(parser)
    add_place(parser)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.check:
        return _check(options, terminal)
    if options.remove_service:
        return _service(options, terminal)
    for given in ("yes", "dry_run", "force", "json"):
        if getattr(options, given) and not options.install_service:
            raise UsageError(f"--{given.replace('_', '-')} is about the unit: see `--help`")
    # Each channel needs the first; the library of each is looked for where it is configured.
    for package, extra in (("markdown_it", "telegram"), ("pydantic_ai", "chat")):
        if find_spec(package) is None:
            raise MissingExtraError(extra, package)
    if options.install_service:
        return _service(options, terminal)
    # Without it the library of the models prints an advertisement on terminals.
    os.environ["PYDANTIC_AI_NO_BANNER"] = "1"
    from skillhouse.extensions.channels.bot import run_bot
    from skillhouse.extensions.channels.channel_questions import ChannelQuestions
    from skillhouse.extensions.channels.send_file import SendFileTool

    questions, send_file = ChannelQuestions(), SendFileTool()
    with house_of(options, channel=questions, tools=(send_file,)) as house:
        return run_bot(house, questions, send_file, terminal.note, sys.stderr)


def _check(options: argparse.Namespace, terminal: Terminal) -> int:
    from skillhouse.extensions.channels.bot_lock import bot_state

    state = bot_state(configured(places_of(options)).state_directory, time.time())
    terminal.answer(state, state.reason or "the bot runs", as_json=options.json)
    return 0 if state.is_running else 1


def _service(options: argparse.Namespace, terminal: Terminal) -> int:
    """Write or remove the unit, once a person agrees; 1 where it is not done."""
    if not options.dry_run:
        refuse_agents("bot --install-service")
    with house_of(options) as house:
        places = house.config.places
        unit = ServiceUnit(places)
        wanted = ""
        if options.install_service:
            carried = {*unit.secret_variables(), *deciding_variables(places.environment)}
            refuse_lost_address(house.config, carried, what="the unit")
            path = safe_path(places.environment, places.start)
            wanted = unit.text(_words(options, house), places.start, path)

        def done(audit: AuditLog | None) -> UnitAnswer:
            if options.install_service:
                return unit.install(wanted, force=options.force, audit=audit)
            return unit.remove(force=options.force, audit=audit)

        made = done(None)
        if made.action and not options.dry_run:
            if not options.yes:
                for line in made.difference:
                    terminal.line(f"  {shown(line)}")
                if not confirmed(f"{made.action} {shown(made.path)}?", terminal):
                    terminal.note("nothing was changed")
                    return 1
            made = done(house.audit_log)
    return _said(made, options, terminal)


def _words(options: argparse.Namespace, house: Skillhouse) -> list[str]:
    """Return the command that serves what this one would."""
    words = [*own_program(house.project), "bot"]
    for root in options.roots or ():
        words += ["--root", os.path.abspath(Path(options.start or ".", root))]
    if options.profile:
        words += ["--profile", options.profile]
    if options.tools:
        words += ["--tools", ",".join(options.tools)]
    return [*words, "--no-cache"] if options.no_cache else words


def _said(made: UnitAnswer, options: argparse.Namespace, terminal: Terminal) -> int:
    is_well = bool(made.action) or made.standing is UnitStanding.INSTALLED
    if options.json:
        terminal.json(made)
        return 0 if is_well else 1
    word = made.standing.value
    if made.action:
        ended = "installed" if made.action == "install" else "removed"
        word = ended if made.done else f"would be {ended}"
    terminal.line(f"{word}  {shown(made.path)}")
    if made.reason:
        terminal.indented(one_line(made.reason), 4)
    if made.action == "" or options.yes or options.dry_run:
        for line in made.difference:
            terminal.line(f"  {shown(line)}")
    if made.next:
        terminal.note("then run:")
        for line in made.next:
            terminal.note(f"  {line}")
    if made.action == "install":
        terminal.note(
            "the unit has no variable of this terminal: a key that is one goes into "
            f"{VARIABLES_FILE} beside your configuration, as NAME=value, for you alone (chmod 600)"
        )
    return 0 if is_well else 1


VERBS = {"bot": Verb(_EXAMPLES, _configure, _run)}
