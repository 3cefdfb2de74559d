"""The verb `lock`: shows the locks, and fixes one that git left the marks of a merge in."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse.answers.installs import LockAnswer, merged_lock
from skillhouse.floor import StateError
from skillhouse.frontends.cli.install_answers import installing
from skillhouse.frontends.cli.options import UsageError, Verb, add_common
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.install import Installer
    from skillhouse.registry import InstallPlace, LockMerge

_EXAMPLES = """examples:
  skillhouse lock                    where the locks are, and whether they can be used
  skillhouse lock --merge --dry-run  what would be taken of a lock with marks of a merge
  skillhouse lock --merge            one lock of both sides
  skillhouse lock --merge --theirs   their entry, where nothing else decides

A skill of one side alone stays, unless the other side took it out. Of two entries the one counts
whose files are here, then the one with the newer version. Nothing else is decided without --ours
or --theirs, and no file of a skill changes: `verify` and `install --frozen` come after it.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--merge", action="store_true", help="fix the locks with marks of a merge")
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--ours", action="store_true", help="ours, where nothing else decides")
    side.add_argument("--theirs", action="store_true", help="theirs, likewise")
    parser.add_argument("--dry-run", action="store_true", help="show it, write nothing")
    add_common(parser)


def _lock(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show or fix the locks; 1 when one cannot be used."""
    side = "ours" if options.ours else "theirs" if options.theirs else ""
    if (side or options.dry_run) and not options.merge:
        raise UsageError("--ours, --theirs and --dry-run are for --merge")
    if options.merge and not options.dry_run:
        refuse_agents("lock --merge")
    values: list[LockAnswer] = []
    with installing(options, terminal) as (_, installer):
        for place in _places(installer):
            found = None
            if options.merge:
                found = installer.installed.merge(place, side=side, is_dry=options.dry_run)
            value = _answer(place, found, is_dry=options.dry_run)
            values.append(value)
            if not options.json:
                _print(value, found, terminal)
    if options.json:
        terminal.json_list("locks", values)
    return 1 if any(value.problem for value in values) else 0


def _places(installer: Installer) -> Iterator[InstallPlace]:
    for scope in ("project", "user"):
        if installer.installed.has_place(scope):
            yield installer.installed.place(scope)


def _answer(place: InstallPlace, found: LockMerge | None, *, is_dry: bool) -> LockAnswer:
    if found is not None:
        return merged_lock(place, found, is_dry=is_dry)
    skills, problem = 0, ""
    try:
        skills = len(registry.read_lock(place.lock).skills)
    except StateError as error:
        problem = str(error)
    return LockAnswer(scope=place.scope, path=str(place.lock), skills=skills, problem=problem)


def _print(value: LockAnswer, found: LockMerge | None, terminal: Terminal) -> None:
    for one in value.decided:
        terminal.line(f"{shown(one.name)}: {one.why}")
    for name in value.unclear:
        terminal.line(f"{shown(name)}: not decided")
    if value.problem:
        terminal.error(f"{value.scope}: {value.problem}")
        return
    said = ", merged" if value.merged else ", would be merged" if found else ""
    many = counted(value.skills, "skill")
    terminal.line(f"{value.scope}  {shown(value.path)}  {many}{said}")


VERBS = {"lock": Verb(_EXAMPLES, _configure, _lock)}
