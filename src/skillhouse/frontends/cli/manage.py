"""The verbs that change what agents have: skills, trust, and the stop of every tool."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import skillhouse.house
from skillhouse.answers.service import ResumedAnswer, StoppedAnswer, stop_answer
from skillhouse.answers.skills import SwitchedAnswer, definition_answer
from skillhouse.approval import OWNER
from skillhouse.floor import ConfigError, StateError
from skillhouse.floor.regex import regex
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, add_skill, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.project_trust import note_untrusted
from skillhouse.frontends.cli.question import ask, need_terminal, typed
from skillhouse.frontends.cli.templates import (
    TEMPLATES,
    template_body,
    template_files,
    template_hint,
)
from skillhouse.presentation.short_paths import clients_of, some_of
from skillhouse.presentation.text import counted, one_line, shown
from skillhouse.skill import validate_name

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import EnforcementServices
    from skillhouse.tiers import StopReport

_NEW_EXAMPLES = """examples:
  skillhouse new                      asks for the name and the description
  skillhouse new meeting-notes --description "Writes up meetings. Use it after a call."
  skillhouse new deploy --project --description "Deploys this site." --body steps.md
  skillhouse new prices --template python --description "Gets prices."

It is made in ~/.agents/skills, or with --project in .agents/skills, which most clients read.
The body is read from the file, or from stdin with `--body -`. A template is a whole skill
that runs: with a tool in Python or JavaScript, or with a script.
"""

BODY = """# {name}

## When to use

Say which requests this skill is for.

## Steps

1. First step.
2. Second step.
"""


def _configure_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", help="a-z, 0-9 and single hyphens; also the directory's name"
    )
    parser.add_argument(
        "--description", metavar="TEXT", help="what it does and when to use it (asked for)"
    )
    parser.add_argument("--body", metavar="FILE", help="the instructions (default: an outline)")
    parser.add_argument(
        "--template", choices=TEMPLATES, help="begin with a tool in code, or with a script"
    )
    parser.add_argument("--project", action="store_true", help="make it in this project")
    add_common(parser)


def _new(options: argparse.Namespace, terminal: Terminal) -> int:
    template = options.template
    name = _checked_name(options.name) if options.name else _asked_name(terminal)
    description = options.description or _asked(
        "What it does and when to use it: ", "--description", terminal
    )
    body = BODY.format(name=name) if template is None else template_body(template, name)
    if options.body is not None:
        body = _read_body(options.body)
    scope = "project" if options.project else "user"
    files = template_files(template, name, description) if template else {}
    house = house_of(options)
    made = house.management.create(name, description, body, scope=scope, files=files)
    if options.json:
        terminal.json(definition_answer(made))
        return 0
    terminal.line(f"{shown(made.id)} is at {shown(made.path)}")
    clients = clients_of(house.management.target(scope).path, house.config.places.home)
    if clients:
        terminal.note(f"also read by {some_of(clients)}")
    if template:
        if template != "script" and not house.services.skill_code.is_enabled:
            terminal.note("skills' own code is off: set `enabled = true` below `[skill_code]`")
        terminal.note(template_hint(template, name, shown(str(Path(made.directory_path).parent))))
    if options.project:
        note_untrusted(house, terminal)
    place = shlex.quote(made.directory_path)
    terminal.note(f"next: edit {shown(made.path)}, then `skillhouse validate {shown(place)}`")
    return 0


_NAMES_MAX = 3


NEAR_MAX = 64
"""Characters of a name of the specification."""


def _checked_name(name: str) -> str:
    """Return a name for a skill; UsageError names one that is near, before anything is asked."""
    problems = [one for one in validate_name(name, directory=name) if one.severity == "error"]
    if not problems:
        return name
    near = regex(r"[^a-z0-9]+").sub("-", name.lower()).strip("-")[:NEAR_MAX].strip("-")
    hint = f"; did you mean `skillhouse new {near}`" if near else ""
    raise UsageError(f"{problems[0].message}{hint}")


def _asked_name(terminal: Terminal) -> str:
    """Return the name that a person types; asked again while it is none for a skill."""
    for _ in range(_NAMES_MAX):
        name = _asked("Name (a-z, 0-9, hyphens): ", "a name", terminal)
        problems = [one for one in validate_name(name, directory=name) if one.severity == "error"]
        if not problems:
            return name
        terminal.note(shown(problems[0].message))
    raise UsageError("expected a name; see `skillhouse new --help`")


def _asked(question: str, what: str, terminal: Terminal) -> str:
    """Return the line that a person types; `UsageError` without a terminal or an answer."""
    if text := ask(question, terminal, instead=f"give {what}; see `skillhouse new --help`"):
        return text
    raise UsageError(f"expected {what}; see `skillhouse new --help`")


def _read_body(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"expected UTF-8 text in `{name}`") from error


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
    terminal.answer(SwitchedAnswer(id=skill, enabled=enabled), text, as_json=options.json)
    if enabled and not options.all and not management.settings.enable_skills:
        terminal.note("skills as a whole are disabled: `skillhouse enable --all`")
    return 0


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
            reason = safeguards.tiers.stopped_reason
            value = StoppedAnswer(stopped=bool(reason), reason=reason)
            terminal.answer(value, _stopped_text(reason), as_json=options.json)
            return 1 if reason else 0
        report = safeguards.stop(OWNER, options.reason.encode("utf-8", "replace").decode())
    if options.json:
        terminal.json(stop_answer(report))
    else:
        terminal.line("everything is stopped" if report.is_new else "everything was stopped before")
        terminal.line(f"  {counted(report.ended, 'call')} ended")
        for name in report.done:
            terminal.line(f"  {name}: done")
        for line in _failures(report):
            terminal.error(line)
        if report.silent:
            terminal.error(_silent_text(report))
    return 1 if report.failed or report.silent else 0


def _failures(report: StopReport) -> Iterator[str]:
    """Yield one line for each reason: one fault of the disk fails several steps."""
    for why in dict.fromkeys(why for _, why in report.failed):
        names = ", ".join(name for name, other in report.failed if other == why)
        yield f"all tools are stopped, but this failed: {names}: {one_line(why)}"


def _silent_text(report: StopReport) -> str:
    """Return in which processes calls did not end, and what was done about it."""
    pids = ", ".join(map(str, report.silent))
    return (
        f"not every call ended within 1 s in process {pids}; "
        f"{counted(report.killed, 'command')} killed from here, and no call there begins"
    )


def _stopped_text(reason: str) -> str:
    return f"stopped: {one_line(reason)}" if reason else "not stopped"


def _safeguards_anyhow(
    options: argparse.Namespace, terminal: Terminal, stack: ExitStack
) -> EnforcementServices:
    """Return the safeguards even where the configuration has a fault: a stop must not wait."""
    try:
        return stack.enter_context(house_of(options)).services.enforcement
    except (ConfigError, StateError, OSError) as error:
        # Wherever we are: without a directory the stop counts as well.
        places = skillhouse.house.Locations.here(Path("/"))
        state = places.state()
        terminal.error(f"{error}; stopping what uses the usual state directory, `{state}`")
        config = skillhouse.house.Config(
            places=places, state_directory=state, remote_directory=places.cache()
        )
        safeguards = skillhouse.house.EnforcementServices.of(config)
        stack.callback(safeguards.close)
        return safeguards


_RESUME_EXAMPLES = """examples:
  skillhouse resume

Lets the tools go on after a stop, and lifts the wait of a tool that was denied again and again.
It asks at a terminal, because no program may answer for you. Session keys that ended stay ended:
`skillhouse signer keys session new` makes others.
"""


def _resume(options: argparse.Namespace, terminal: Terminal) -> int:
    """Allow the tools again if the owner confirms; 1 when nothing was lifted."""
    from skillhouse.tiers.tier_engine import TERMINAL

    refuse_agents("resume")
    instead = "run `skillhouse resume` at a terminal of your own"
    need_terminal(instead)
    with house_of(options) as house:
        terminal.note(_stopped_text(house.services.enforcement.tiers.stopped_reason))
        if not typed("resume", terminal, instead=instead, to="let the tools go on"):
            terminal.note("nothing was resumed")
            return 1
        resumed = house.services.enforcement.resume(OWNER, TERMINAL)
        if newer := house.services.enforcement.tiers.stopped_reason:
            terminal.note(f"another stop was given meanwhile, and holds: {newer}")
            resumed = False
    text = "the tools go on" if resumed else "there was nothing to resume"
    terminal.answer(ResumedAnswer(resumed=resumed), text, as_json=options.json)
    return 0 if resumed else 1


VERBS = {
    "new": Verb(_NEW_EXAMPLES, _configure_new, _new),
    "enable": Verb(_SWITCH_EXAMPLES, _configure_switch, _switch),
    "disable": Verb(_SWITCH_EXAMPLES, _configure_switch, _switch),
    "stop": Verb(_STOP_EXAMPLES, _configure_stop, _stop),
    "resume": Verb(_RESUME_EXAMPLES, add_common, _resume),
}
