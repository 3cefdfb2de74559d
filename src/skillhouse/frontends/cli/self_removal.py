"""The verb `self`: takes back what skillhouse left outside of its own program."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from skillhouse.answers.service import RemainsAnswer
from skillhouse.clients import Action, ClientConfigs, Exporter, ExportRequest
from skillhouse.floor import isolated
from skillhouse.frontends.cli.hooks import entries_of
from skillhouse.frontends.cli.install_answers import installing
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import answered, need_terminal
from skillhouse.frontends.cli.service_unit import ServiceUnit, removable_unit
from skillhouse.house import export_source
from skillhouse.presentation.text import counted, shown, some_names
from skillhouse.skill import SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

_EXAMPLES = """examples:
  skillhouse self remove --dry-run   what is in clients, in their folders and in folders of ours
  skillhouse self remove             asks about each of them
  skillhouse self remove --yes       all of it

Skills stay where they are, and so does what a person changed since. The program itself is removed
afterwards, the way it was installed: docs/guides/remove.md.
"""
_LAST = (
    "now remove the program the way it was installed: `uv tool uninstall skillhouse`, "
    "`pipx uninstall skillhouse` or `pip uninstall skillhouse`, or delete the clone"
)
_OWN = "skillhouse"
_ENDED = "ended"
"""Status of what the input ended at: who closes the terminal means none of the rest."""


class _Remains(Struct, kw_only=True):
    """One thing that skillhouse left, and how it is taken back."""

    kind: str
    """entry, hook, service, export or folder."""
    path: str
    what: str
    take: Callable[[], str] | None = None
    """Takes it back, and returns why it stayed; None for what only a person removes."""
    stays: str = ""
    """Why it stays."""
    difference: tuple[str, ...] = ()
    status: str = field(default="shown")

    def answer(self) -> RemainsAnswer:
        return RemainsAnswer(
            kind=self.kind, path=self.path, what=self.what, status=self.status, reason=self.stays
        )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("remove",), help="what to do")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show it, remove nothing")
    add_common(parser)


def _self(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show each thing that skillhouse left, and remove what a person agrees to.

    1 when something of it stays that was to go.
    """
    if not options.dry_run:
        refuse_agents("self remove")
        if not options.yes:
            need_terminal("use --yes, or --dry-run to look", as_json=options.json)
    done: list[_Remains] = []
    with installing(options, terminal) as (_, installer):
        stay = [name for _, name, _ in installer.installed.entries()]
    with house_of(options) as house:
        remains = (*_entries(house), *_hooks(house), *_services(house), *_exports(house))
        _settle(remains, done, options, terminal)
        folders = list(_folders(house))
    # The folders go last, when nothing of this program is open in them any more.
    _settle(folders, done, options, terminal)
    if options.json:
        terminal.json_list("removed", [one.answer() for one in done])
    else:
        if not done:
            terminal.line("nothing of skillhouse is in clients or folders here")
        if stay:
            terminal.note(f"installed skills stay where they are: {some_names(stay, 20)}")
        terminal.note(_LAST)
    return 1 if any(one.status in ("failed", "declined", _ENDED) for one in done) else 0


def _settle(
    remains: Iterable[_Remains],
    done: list[_Remains],
    options: argparse.Namespace,
    terminal: Terminal,
) -> None:
    """Settle one after the other; once the input has ended, the rest stays unasked."""
    for one in remains:
        if done and done[-1].status == _ENDED:
            return
        _settle_one(one, options, terminal)
        done.append(one)
        if one.status == _ENDED:
            terminal.error("the input ended: this stays, and so does what was not asked about")


def _settle_one(one: _Remains, options: argparse.Namespace, terminal: Terminal) -> None:
    """Show one thing and take it back if the person agrees."""
    if not options.json:
        terminal.line(f"{one.kind}  {shown(one.path)}  {one.what}")
        for line in one.difference:
            terminal.line(f"  {shown(line)}")
    if one.take is None:
        one.status = "stays"
    elif not options.dry_run:
        is_agreed = options.yes or answered(f"Remove this {one.kind}?", terminal)
        if is_agreed is None:
            one.status = _ENDED
        elif is_agreed:
            with isolated(passing=(UsageError,)) as failed:
                one.stays = one.take()
            one.stays = one.stays or "".join(map(str, failed))
            one.status = "failed" if one.stays else "removed"
        else:
            one.status = "declined"
    if one.stays:
        terminal.error(f"{one.path}: stays: {one.stays}")


def _entries(house: Skillhouse) -> Iterator[_Remains]:
    configs = ClientConfigs(
        places=house.config.places,
        project=house.project,
        state_directory=house.config.state_directory,
        audit=house.audit_log,
    )
    for change, where in configs.removable():

        def take(client: str = change.client, name: str = change.name, where: str = where) -> str:
            made = configs.uninstall(client, where=where, name=name, force=True)
            stays = next((one for one in (made, *made.also) if not one.done), None)
            return "" if stays is None else stays.reason or stays.standing.value

        yield _Remains(
            kind="entry",
            path=change.file,
            what=f"{change.client} starts it as `{shown(change.name)}`",
            take=take if change.action else None,
            stays="" if change.action else change.reason,
            difference=(*change.difference, *(line for c in change.also for line in c.difference)),
        )


def _hooks(house: Skillhouse) -> Iterator[_Remains]:
    """A client whose entry stays would refuse every call, when the program is gone."""
    entries = entries_of(house)
    for change in entries.removable():

        def take(client: str = change.client, where: str = change.where) -> str:
            made = entries.remove(client, where=where)
            return "" if made.done else made.reason or made.standing.value

        yield _Remains(
            kind="hook",
            path=change.file,
            what=f"{change.client} asks it about its own tools",
            take=take if change.action else None,
            stays="" if change.action else change.reason,
            difference=change.difference,
        )


def _services(house: Skillhouse) -> Iterator[_Remains]:
    change = removable_unit(house.config.places)
    if change is None:
        return

    def take() -> str:
        unit = ServiceUnit(house.config.places)
        made = unit.remove(force=False, audit=house.audit_log)
        return "" if made.done else made.reason

    yield _Remains(
        kind="service",
        path=change.path,
        what="systemd starts `skillhouse bot` by it; stop that: " + change.next[0]
        if change.next
        else "a unit of that name",
        take=take if change.action else None,
        stays="" if change.action else change.reason,
    )


def _exports(house: Skillhouse) -> Iterator[_Remains]:
    exporter = Exporter(export_source(house))
    for item in exporter.remove(ExportRequest(everything=True, dry_run=True)):
        is_free = item.action is not Action.NONE
        request = ExportRequest(references=(item.skill,), clients=item.clients)

        def take(request: ExportRequest = request, target: str = item.target) -> str:
            for made in exporter.remove(request):
                if made.target == target and not made.done:
                    return made.reason or made.state.value
            return "" if not os.path.lexists(target) else "it is there still"

        yield _Remains(
            kind="export",
            path=item.target,
            what=f"{item.form.value} of {shown(item.skill)} for {', '.join(item.clients)}",
            take=take if is_free else None,
            stays="" if is_free else item.reason or item.state.value,
        )


def _folders(house: Skillhouse) -> Iterator[_Remains]:
    config = house.config
    trashed = len(house.management.trash.deleted())
    audit = "the audit log, answers and keys"
    if trashed:
        audit += f", and {counted(trashed, 'deleted skill')} for good"
    places = {
        config.places.user_file.parent: "the configuration, rules and the lock",
        config.cache_directory or config.places.cache(): "what can be made again",
        config.state_directory: audit,
    }
    for place, what in places.items():
        if os.path.lexists(place):
            stays = _kept(place, config.places.home)

            def take(place: Path = place) -> str:
                shutil.rmtree(place)
                return ""

            yield _Remains(
                kind="folder",
                path=str(place),
                what=what,
                take=None if stays else take,
                stays=stays,
            )


def _kept(place: Path, home: Path) -> str:
    """Return why a folder is not removed as a whole; empty where it is ours alone."""
    if place.is_symlink() or not place.is_dir():
        return "it is no directory of its own; remove it yourself"
    if place.name != _OWN or home.resolve().is_relative_to(place.resolve()):
        return f"its name is not `{_OWN}`, so others may use it; remove it yourself"
    if skills := sum(1 for _ in place.glob(f"skills/*/{SKILL_FILE}")):
        return f"{counted(skills, 'skill')} of yours are in it; move them away first"
    return ""


VERBS = {"self": Verb(_EXAMPLES, _configure, _self)}
