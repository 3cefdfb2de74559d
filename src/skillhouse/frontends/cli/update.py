"""The verbs that bring other versions of installed skills: update, outdated, rollback."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from skillhouse.answers.packages import NewerAnswer, NewestAnswer, absence, newest_answer
from skillhouse.floor import SkillError
from skillhouse.frontends.cli.install_answers import (
    InstallAnswers,
    add_agreement,
    installing,
)
from skillhouse.frontends.cli.options import UsageError, Verb, add_common
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import can_ask, confirmed, typed
from skillhouse.install import Installer
from skillhouse.install.change_plan import PinnedError, by_source, split_id, updatable
from skillhouse.install.install_policy import REWRITTEN
from skillhouse.presentation.text import counted, one_line, shown
from skillhouse.registry import SourceError

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.install import InstallReport, StagedSkill
    from skillhouse.registry import InstallPlace, LockEntry


NOTHING = "nothing was installed here"
_UPDATE_EXAMPLES = """examples:
  skillhouse update                  every installed skill that is not pinned
  skillhouse update pdf --dry-run    what would change
  skillhouse outdated pdf            what is there now, of this one
"""


def _configure_update(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skills", nargs="*", metavar="SKILL", help="installed ones: names or ids")
    parser.add_argument(
        "--ignore-age", action="store_true", help="also what is held back because it is new"
    )
    add_agreement(parser)


def _configure_outdated(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skills", nargs="*", metavar="SKILL", help="installed ones: names or ids")
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
                staged = done.enter(
                    installer.newest(name, entry, place, ignore_age=options.ignore_age)
                )
                _note_changes(staged.report, options, terminal)
                if staged.report.is_same:
                    _take_place(staged, installer, options, terminal)
                    state = installer.installed.state(name, entry, place)
                    if problem := absence(state):
                        raise SkillError(state.state, place.target(name), problem)
                    edited = ", with local edits" if state.state == "edited" else ""
                    terminal.note(f"{shown(name)}: up to date{edited}")
                elif staged.report.held and not options.ignore_age:
                    label = shown(staged.report.entry.label)
                    terminal.note(f"{shown(name)}: {label} is held back, {staged.report.held}")
                else:
                    done.take(installer, staged)
        return done.end()


def _note_changes(report: InstallReport, options: argparse.Namespace, terminal: Terminal) -> None:
    """Say what became of a skill's place and history; SourceError where a flag may not decide."""
    name = shown(report.name)
    if report.waiting:
        terminal.note(f"{name}: {shown(report.waiting)}")
    if report.rewritten:
        terminal.error(f"{name}: {shown(report.rewritten)}")
    if not (moved := report.moved_from):
        return
    places = f"from `{shown(moved)}` to `{shown(report.inside or '.')}`"
    terminal.note(f"{name}: it moved {places} at its source")
    if not report.also_at:
        return
    others = ", ".join(f"`{shown(one)}`" for one in report.also_at)
    terminal.note(f"{name}: a skill of that name is at {others} too, with other files")
    if options.yes and not options.dry_run:
        raise SourceError("two skills have its name at its source: a person at a terminal decides")


def _take_place(
    staged: StagedSkill, installer: Installer, options: argparse.Namespace, terminal: Terminal
) -> None:
    """Take over where the same files are by now, once a person agrees; of an old lock the commit.

    What was rewritten is in the lock when a person said so: until then each update says it.
    """
    report = staged.report
    is_learned = report.installed is not None and report.installed.git is None
    if options.dry_run:
        return
    if report.moved_from:
        is_agreed = _follows(options, terminal)
    else:
        is_agreed = bool(report.rewritten) or (is_learned and report.entry.git is not None)
    if report.rewritten and is_agreed:
        flagged = options.yes and options.accept_rewritten
        is_agreed = flagged or (
            can_ask() and typed(REWRITTEN, terminal, instead="use --yes --accept-rewritten")
        )
    if is_agreed:
        installer.follow(staged)


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


def _chosen(
    installer: Installer, ids: Sequence[str]
) -> Iterator[tuple[InstallPlace, str, LockEntry]]:
    """Yield the installed skills of these ids, or all without any; those of a source together."""
    named = []
    for scope, name in map(split_id, ids):
        place, entry = installer.installed.find(name, scope=scope)
        named.append((place, name, entry))
    yield from by_source(named if ids else installer.installed.entries())


def _outdated_line(one: NewestAnswer, now: NewerAnswer) -> str:
    said = (
        "another signature" * now.signed_again,
        f"held back: {now.held}" * bool(now.held),
        shown(now.waiting),
        f"moved to {shown(now.moved_to)}" * bool(now.moved_to),
        counted(now.changed_files or 0, "file") * bool(now.changed_files),
        shown(now.rewritten),
        shown(now.unexpected),
        "pinned" * one.installed.pinned,
    )
    versions = f"{shown(one.label)} → {shown(now.newest_label)}"
    return ", ".join(filter(None, (f"{shown(one.installed.name)}  {versions}", *said)))


def _outdated(options: argparse.Namespace, terminal: Terminal) -> int:
    """List what has another version at its source; 1 when there is any, or one cannot be asked."""
    values: list[NewestAnswer] = []
    failed = False
    with installing(options, terminal) as (_, installer):
        for place, name, entry in _chosen(installer, options.skills):
            value = newest_answer(installer, name, entry, place)
            for problem in (value.problem, value.error):
                if problem:
                    failed = True
                    terminal.error(f"{name}: {problem}")
            values.append(value)
    asked = [(one, one.now) for one in values if one.now is not UNSET]
    found = [(one, now) for one, now in asked if now.outdated or now.rewritten]
    if options.json:
        terminal.json_list("skills", values)
    else:
        for one, now in found:
            terminal.line(_outdated_line(one, now))
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
