"""The verb `delete`: moves a skill to the trash, puts it back, and empties the trash."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.answers.skills import (
    EmptiedTrashAnswer,
    RemovedSkillAnswer,
    RestoredSkillAnswer,
    deleted_skill,
)
from skillhouse.clients import Action, Exporter, ExportState
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    add_skill,
    house_of,
    natural,
)
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import confirmed, need_terminal
from skillhouse.house import export_source
from skillhouse.presentation.short_paths import clients_of, some_of
from skillhouse.presentation.text import counted, shown
from skillhouse.skill import list_resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillhouse.clients import Item
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Management, Skillhouse
    from skillhouse.skill import Skill

_EXAMPLES = """examples:
  skillhouse delete meeting-notes
  skillhouse delete user:meeting-notes --yes
  skillhouse delete project:deploy      one of this project, trusted or not

  skillhouse delete --undo              put the last one back
  skillhouse delete --undo meeting-notes
  skillhouse delete --list              what can be put back
  skillhouse delete --empty --older 30  remove for good what was deleted 30 days ago

Skills of yours and of this project are moved to a trash in the state directory, which only
`--empty` empties. Skills of plugins and other servers are removed where they come from.
"""
SCOPES = ("user", "project")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_skill(parser, nargs="?")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--undo", action="store_true", help="put the last deleted, or this one, back")
    what.add_argument("--list", action="store_true", help="list what can be put back")
    what.add_argument(
        "--empty", action="store_true", help="remove for good what is in the trash, or this one"
    )
    parser.add_argument(
        "--older", type=natural, default=0, metavar="DAYS", help="with --empty: deleted before that"
    )
    add_common(parser)


def _delete(options: argparse.Namespace, terminal: Terminal) -> int:
    """Delete one skill once the user confirms; 1 when nothing was deleted."""
    if options.older and not options.empty:
        raise UsageError("expected --empty with --older")
    if options.undo or options.empty:
        # What a person removed must not come back by the program that it was removed from, and
        # that program must not take the way back away.
        refuse_agents("delete --undo" if options.undo else "delete --empty")
    house = house_of(options)
    management = house.management
    if options.list:
        return terminal.listing(
            management.trash.deleted(),
            deleted_skill,
            lambda found: f"{found.deleted}  {shown(found.id)}  {shown(found.path)}",
            name="deleted",
            as_json=options.json,
            nothing="the trash is empty",
        )
    if options.empty:
        return _empty(management, options, terminal)
    if options.undo:
        back = management.undelete(options.skill or "")
        text = f"{shown(back.id)} is back at {shown(back.path)}"
        terminal.answer(RestoredSkillAnswer(id=back.id, path=back.path), text, as_json=options.json)
        return 0
    if options.skill is None:
        raise UsageError("expected a skill; see `skillhouse delete --help`")
    return _move(house, options, terminal)


def _move(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    management, home = house.management, house.config.places.home
    if not options.yes:
        need_terminal("use --yes")
    found = management.deletable(options.skill, scopes=SCOPES)
    clients = _readers(management, found, home)
    whose = _whose(found, clients)
    listed, omitted = list_resources(found.directory)
    files = counted(len(listed) + omitted + 1, "file")
    warning = f" It is {whose}." if whose else ""
    question = f"Delete {shown(str(found.directory))} with {files}?{warning}"
    if not options.yes and not confirmed(question, terminal):
        terminal.note("nothing was deleted")
        return 1
    path = management.delete(found.id, scopes=SCOPES)
    text = f"deleted {shown(found.id)} at {shown(str(path))}"
    value = RemovedSkillAnswer(
        id=found.id, path=str(path), scope=found.scope, clients=tuple(clients)
    )
    terminal.answer(value, text, as_json=options.json)
    if whose:
        terminal.note(f"it was {whose}")
    terminal.note(f"to put it back: skillhouse delete --undo {shlex.quote(found.id)}")
    return note_removed(Exporter(export_source(house)).follow(found.directory), terminal)


def note_removed(copies: Sequence[Item], terminal: Terminal) -> int:
    """Say what became of the copies of a removed skill; 1 where one could not be removed."""
    failed = False
    for item in copies:
        names, target = shown(", ".join(item.clients)) or "copies", shown(item.target)
        if item.done and item.action is Action.REMOVE:
            terminal.note(f"{names}: its copy is removed, too: {target}")
        elif not item.done:
            failed = True
            said = shown(item.reason)
            if item.state is ExportState.CHANGED_THERE:
                command = f"skillhouse export {shlex.quote(item.target)} --remove --force"
                said = f"the copy was changed there, and stays: `{shown(command)}` removes it"
            terminal.error(": ".join(filter(None, (names, target, said))))
    return 1 if failed else 0


def _readers(management: Management, skill: Skill, home: Path) -> tuple[str, ...]:
    """Return the clients that read the folder of a skill, which a link may lead to."""
    root = management.target(skill.scope).path
    is_linked = os.path.realpath(root) == os.path.realpath(skill.root)
    return clients_of(root if is_linked else Path(skill.root), home)


def _whose(skill: Skill, clients: tuple[str, ...]) -> str:
    """Return whose folder a skill is in, as the end of a sentence; empty for one of ours alone."""
    readers = f"in a folder that {some_of(clients)} also read" if clients else ""
    if skill.scope != "project":
        return readers
    project = "a skill of this project, which others may share"
    return f"{project}, {readers}" if readers else project


def _empty(management: Management, options: argparse.Namespace, terminal: Terminal) -> int:
    """Remove what is in the trash for good; 1 when the user does not confirm."""
    chosen = management.trash.chosen(options.skill or "", days=options.older)
    if options.skill and not chosen and not options.older:
        management.trash.find(options.skill)
    many = counted(len(chosen), "deleted skill")
    if chosen and not options.yes:
        need_terminal("use --yes")
        for found in chosen:
            terminal.note(f"{found.deleted}  {shown(found.id)}  {shown(found.path)}")
        if not confirmed(f"Remove {many} for good?", terminal):
            terminal.note("nothing was removed")
            return 1
    management.empty_trash(chosen)
    ids = [found.id for found in chosen]
    gone = EmptiedTrashAnswer(removed=ids)
    terminal.answer(gone, f"removed {many} for good", as_json=options.json)
    return 0


VERBS = {"delete": Verb(_EXAMPLES, _configure, _delete)}
