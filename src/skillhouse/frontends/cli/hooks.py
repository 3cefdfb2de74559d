"""The verb `hooks`: our rules for the tools that coding agents have themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skillhouse.floor import isolated
from skillhouse.frontends.cli.options import Verb, add_json, add_place, house_of
from skillhouse.frontends.cli.question import can_ask, confirmed
from skillhouse.house import project_of
from skillhouse.house.config.carried_variables import carried_by_hooks, refuse_lost_address
from skillhouse.presentation.text import one_line, shown

if TYPE_CHECKING:
    from skillhouse.answers.hook_changes import HookChange
    from skillhouse.floor import Locations
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.frontends.hooks.entries import HookEntries
    from skillhouse.house import Config, Skillhouse

_EXAMPLES = """examples:
  skillhouse hooks status
  skillhouse hooks install claude-code                    shows the change, and asks
  skillhouse hooks install claude-code --mode watch       records every call, refuses none
  skillhouse hooks install claude-code --mode sandbox     runs allowed commands in our sandbox
  skillhouse hooks install codex --project --yes          for this project alone
  skillhouse hooks remove claude-code

The client then asks skillhouse about each call of its own tools. Your rules decide, and the rules
of `[agents.CLIENT]` where your configuration has such a section. `skillhouse audit list --client
CLIENT` shows the calls, `skillhouse stop` refuses all of them.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = verbs.add_parser("install", help="write the entries of a client")
    status = verbs.add_parser("status", help="show what is guarded in which client")
    remove = verbs.add_parser("remove", help="take the entries of a client away")
    for verb in (install, remove):
        verb.add_argument("client", metavar="CLIENT")
        verb.add_argument("--project", action="store_true", help="of this project alone")
        verb.add_argument("--yes", action="store_true", help="do not ask")
        verb.add_argument("--dry-run", action="store_true", help="change nothing")
    install.add_argument(
        "--mode",
        choices=["watch", "enforce", "sandbox"],
        default="enforce",
        help="watch records only, enforce refuses what rules deny, sandbox also runs allowed "
        "commands in the sandbox of skillhouse (enforce)",
    )
    status.add_argument("clients", nargs="*", metavar="CLIENT")
    for verb in (install, status, remove):
        add_json(verb)
        add_place(verb)


def entries_of(house: Skillhouse) -> HookEntries:
    """Return what writes and reads the entries of clients."""
    from skillhouse.frontends.hooks.entries import HookEntries

    return HookEntries(
        places=house.config.places,
        project=house.services.project,
        state_directory=house.config.state_directory,
        audit=house.audit_log,
    )


def refuse_hooks_without_state(config: Config) -> None:
    """Raise ConfigError where hooks would not know the address of the state."""
    carried = carried_by_hooks(config.places.environment)
    refuse_lost_address(config, carried, what="hooks of a client")


def hook_changes(places: Locations, config: Config) -> tuple[HookChange, ...]:
    """Return the entries that are there or should be, for `doctor`."""
    from skillhouse.frontends.hooks.entries import HookEntries

    entries = HookEntries(
        places=places,
        project=project_of(places.start),
        state_directory=config.state_directory,
        audit=None,
    )
    return tuple(change for change in entries.status() if change.standing.value != "missing")


def note_faults(house: Skillhouse, terminal: Terminal) -> None:
    """Say which entries are not as they were installed, for `up`."""
    from skillhouse.frontends.hooks.entries import entry_faults

    # What cannot be looked at is said by `doctor`, and keeps no page from being served.
    with isolated():
        for fault in entry_faults(hook_changes(house.config.places, house.config)):
            terminal.note(fault)


def is_faulty(change: HookChange) -> bool:
    """Return whether an entry is not as it should be."""
    return change.standing.value in ("changed", "unreadable")


def hook_lines(changes: Sequence[HookChange]) -> Iterator[str]:
    """Yield what `doctor` says of the own tools of clients."""
    for change in changes:
        if is_faulty(change):
            again = f"`skillhouse hooks install {change.client}`"
            what = f"{change.standing.value}: {one_line(change.reason)}"
            yield f"hooks of {change.client} ({change.where}): {what} ({again})"
        else:
            judged = f"hooks of {change.client} ({change.where}): {change.mode}"
            yield f"{judged}; {one_line(change.to_do)}" if change.to_do else judged
    if not changes:
        yield "hooks: no client asks skillhouse about its own tools (`skillhouse hooks status`)"


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what `options.action` says; 1 where it is not done or an entry is not as it should be."""
    with house_of(options) as house:
        entries = entries_of(house)
        if options.action == "status":
            return _status(options, entries, terminal)
        where = "project" if options.project else "user"
        if options.action == "install":
            refuse_hooks_without_state(house.config)
            plan = entries.plan_install(options.client, where=where, mode=options.mode)
        else:
            plan = entries.plan_remove(options.client, where=where)
        change = plan.change
        if not change.action or options.dry_run:
            return said_change(change, options, terminal)
        if not options.yes:
            _print_difference(change, terminal)
            if not confirmed(f"{change.action} this in {shown(change.file)}?", terminal):
                terminal.note("nothing was changed")
                return 1
        done = entries.apply(plan)
        return said_change(done, options, terminal, with_difference=options.yes)


def wanted_hooks(options: argparse.Namespace, house: Skillhouse, terminal: Terminal) -> list[str]:
    """Return the clients of `mcp install` whose own tools are to be judged too: those of the flag,
    or of one answer, where their hooks are known and not there yet."""
    from skillhouse.frontends.hooks.hook_clients import hook_clients

    where = "project" if options.project else "user"
    known = [name for name in dict.fromkeys(options.clients) if name in hook_clients()]
    if options.hooks is not None or not known:
        return known if options.hooks else []
    if options.dry_run or options.json or not can_ask():
        return []
    missing = [
        change.client
        for change in entries_of(house).status(known)
        if change.where == where and change.standing.value == "missing"
    ]
    if not missing:
        return []
    names = ", ".join(map(shown, missing))
    terminal.note(
        f"the own shell and file tools of {names} can be under your rules too, by hooks; "
        f"`skillhouse hooks install {shown(missing[0])} --dry-run` shows the change"
    )
    agreed = confirmed("install hooks as well? no is usual", terminal, instead="use --no-hooks")
    return missing if agreed else []


def said_change(
    change: HookChange,
    options: argparse.Namespace,
    terminal: Terminal,
    *,
    with_difference: bool = True,
) -> int:
    is_well = bool(change.action) or change.standing.value == "installed"
    if options.json:
        terminal.json(change)
        return 0 if is_well else 1
    word = change.standing.value
    if change.action:
        ended = "installed" if change.action == "install" else "removed"
        word = ended if change.done else f"would be {ended}"
    mode = f" ({change.mode})" if change.mode and change.action != "remove" else ""
    terminal.line(f"{shown(change.client)}: {word}{mode}  {shown(change.file)}")
    if change.reason:
        terminal.indented(one_line(change.reason), 4)
    if change.action and with_difference:
        _print_difference(change, terminal)
    if change.action == "install":
        _print_to_do(change, terminal)
    return 0 if is_well else 1


def _print_difference(change: HookChange, terminal: Terminal) -> None:
    for line in change.difference:
        terminal.line(f"  {shown(line)}")


def _print_to_do(change: HookChange, terminal: Terminal) -> None:
    if not change.tried:
        terminal.note(f"{change.title} was not run with this: its documents say how it works")
    if change.to_do:
        terminal.note(f"you must still do this: {one_line(change.to_do)}")


def _status(options: argparse.Namespace, entries: HookEntries, terminal: Terminal) -> int:
    found = entries.status(options.clients)
    if options.json:
        terminal.json_list("clients", found)
    else:
        for change in found:
            if change.standing.value != "missing" or change.where == "user":
                _print_status(change, terminal)
    return 1 if any(map(is_faulty, found)) else 0


def _print_status(change: HookChange, terminal: Terminal) -> None:
    tried = "" if change.tried else ", not run"
    mode = f" ({change.mode})" if change.mode else ""
    text = f"{change.standing.value}{mode}{tried}  {shown(change.file)}"
    terminal.rows([(shown(change.client), text)])
    if change.reason:
        terminal.indented(one_line(change.reason), 4)
    if change.standing.value == "installed":
        terminal.indented(f"judged: {', '.join(change.guarded)}", 4)
        recorded = ", ".join((*change.recorded, "every tool that is not named"))
        terminal.indented(f"recorded, and left to rules of action `tool`: {recorded}", 4)
        if change.unknown:
            unknown = f"seen, and not known here: {', '.join(change.unknown)}"
            terminal.indented(one_line(unknown), 4)
        terminal.indented("asked about: one of these whose arguments name a command or a place", 4)
        if change.sandboxed:
            names = ", ".join(change.sandboxed)
            terminal.indented(f"run in the sandbox of skillhouse: commands of {names}", 4)
            terminal.indented("left as they are: those that rules of the client may be about", 4)
        else:
            terminal.indented("what a program does beyond its words is not judged", 4)
        if change.to_do:
            terminal.indented(f"you must still do this: {one_line(change.to_do)}", 4)


VERBS = {"hooks": Verb(_EXAMPLES, _configure, _run)}
