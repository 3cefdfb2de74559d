"""The verbs that bring other versions of installed skills: update, outdated, rollback."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from skillhouse.floor import SkillError
from skillhouse.frontends.answers.packages import NewestAnswer, absence, newest_answer
from skillhouse.frontends.cli.install_answers import (
    InstallAnswers,
    add_agreement,
    installing,
)
from skillhouse.frontends.cli.options import UsageError, Verb, add_common
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import confirmed
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.install import Installer
from skillhouse.install.change_plan import PinnedError, split_id, updatable

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.registry import InstallPlace, LockEntry


NOTHING = "nothing was installed here"
_UPDATE_EXAMPLES = """examples:
  skillhouse update                  every installed skill that is not pinned
  skillhouse update pdf --dry-run    what would change
  skillhouse outdated
"""


def _configure_update(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skills", nargs="*", metavar="SKILL", help="installed ones: names or ids")
    add_agreement(parser)


def _configure_outdated(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def _update(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show and install newer versions; 1 when one is refused."""
    if not options.dry_run:
        refuse_agents("update")
    with installing(options, terminal) as (house, installer):
        wanted = list(_updatable(installer, options.skills, terminal))
        if not wanted and not any(installer.installed.entries()):
            terminal.note(NOTHING)
        done = InstallAnswers(options, terminal, house)
        for place, name, entry in wanted:
            with done.each(name):
                staged = done.enter(installer.newest(name, entry, place))
                if moved := staged.report.moved_from:
                    places = f"from `{shown(moved)}` to `{shown(staged.report.inside or '.')}`"
                    terminal.note(f"{shown(name)}: it moved {places} at its source")
                if staged.report.is_same:
                    if moved and not options.dry_run and _follows(options, terminal):
                        installer.follow(staged)
                    state = installer.installed.state(name, entry, place)
                    if problem := absence(state):
                        raise SkillError(state.state, place.target(name), problem)
                    edited = ", with local edits" if state.state == "edited" else ""
                    terminal.note(f"{shown(name)}: up to date{edited}")
                else:
                    done.take(installer, staged)
        return done.end()


def _follows(options: argparse.Namespace, terminal: Terminal) -> bool:
    question = "Its files are the same. Follow it there?"
    return options.yes or confirmed(question, terminal)


def _updatable(
    installer: Installer, names: Sequence[str], terminal: Terminal
) -> Iterator[tuple[InstallPlace, str, LockEntry]]:
    try:
        for place, name, entry in updatable(installer.installed, names):
            if entry.pinned:
                terminal.note(f"{shown(name)}: pinned {one_line(entry.pin_reason)}".rstrip())
            else:
                yield place, name, entry
    except PinnedError as error:
        raise UsageError(str(error)) from error


def _outdated(options: argparse.Namespace, terminal: Terminal) -> int:
    """List what has another version at its source; 1 when there is any, or one cannot be asked."""
    values: list[NewestAnswer] = []
    failed = False
    with installing(options, terminal) as (_, installer):
        for place, name, entry in installer.installed.entries():
            value = newest_answer(installer, name, entry, place)
            for problem in (value.problem, value.error):
                if problem:
                    failed = True
                    terminal.error(f"{name}: {problem}")
            values.append(value)
    found = [(one, one.now) for one in values if one.now is not UNSET and one.now.outdated]
    if options.json:
        terminal.json_list("skills", values)
    else:
        for one, now in found:
            again = ", another signature" if now.signed_again else ""
            pinned = ", pinned" if one.installed.pinned else ""
            again += f", moved to {shown(now.moved_to)}" if now.moved_to else ""
            versions = f"{shown(one.label)} → {shown(now.newest_label)}"
            terminal.line(f"{shown(one.installed.name)}  {versions}{again}{pinned}")
        if not found and not failed:
            terminal.note(f"{counted(len(values), 'skill')} up to date" if values else NOTHING)
    return 1 if failed or found else 0


_ROLLBACK_EXAMPLES = """examples:
  skillhouse rollback pdf            the version before the last update
"""


def _configure_rollback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skill", help="the name or id of an installed skill")
    add_agreement(parser)


def _rollback(options: argparse.Namespace, terminal: Terminal) -> int:
    if not options.dry_run:
        refuse_agents("rollback")
    with installing(options, terminal) as (house, installer):
        done = InstallAnswers(options, terminal, house)
        scope, name = split_id(options.skill)
        with installer.earlier(name, scope=scope) as staged:
            done.take(installer, staged)
        return done.end()


VERBS = {
    "update": Verb(_UPDATE_EXAMPLES, _configure_update, _update),
    "outdated": Verb(_UPDATE_EXAMPLES, _configure_outdated, _outdated),
    "rollback": Verb(_ROLLBACK_EXAMPLES, _configure_rollback, _rollback),
}
