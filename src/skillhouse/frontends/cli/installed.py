"""The verbs about skills that are installed: uninstall, info, pin, verify; and `pack`."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.answers.installs import PackedSkillAnswer
from skillhouse.answers.packages import (
    RemovedPackageAnswer,
    installed_answer,
    installed_state,
)
from skillhouse.clients import Exporter
from skillhouse.floor import leftover_unit, write_atomically
from skillhouse.frontends.cli.delete import note_removed
from skillhouse.frontends.cli.install_answers import installing
from skillhouse.frontends.cli.install_review import print_difference, print_pair
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, add_json, skill_directory
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.skill_signatures import verify_directory
from skillhouse.house import export_source
from skillhouse.install.change_plan import asked_state, restorable, split_id
from skillhouse.presentation.text import counted, one_line, shown, some_names
from skillhouse.registry import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import InstalledState
    from skillhouse.install import Installer
    from skillhouse.registry import InstallPlace, LockEntry

_UNINSTALL_EXAMPLES = """examples:
  skillhouse uninstall pdf
  skillhouse delete --undo pdf        puts it back, also into the lock
"""
_NAME = "the name or id of an installed skill"
_LEFT_SHOWN = 50
"""Files that programs left, of one skill."""


def _configure_uninstall(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skill", help=_NAME)
    parser.add_argument("--force", action="store_true", help="also when its files were edited")
    add_common(parser)


def _uninstall(options: argparse.Namespace, terminal: Terminal) -> int:
    scope, name = split_id(options.skill)
    with installing(options, terminal) as (house, installer):
        place, _ = installer.installed.find(name, scope=scope)
        is_there = os.path.lexists(place.target(name))
        place = installer.installed.uninstall(name, scope=place.scope, force=options.force)
        copies = Exporter(export_source(house)).follow(place.target(name))
    path = str(place.target(name))
    text = f"{shown(name)} is no longer at {shown(path)}"
    if not is_there:
        text = f"{shown(name)} was gone from {shown(path)}, and is in the lock no longer"
    value = RemovedPackageAnswer(name=name, scope=place.scope, path=path)
    terminal.answer(value, text, as_json=options.json)
    again = shlex.quote(f"{place.scope}:{name}")
    if is_there:
        terminal.note(f"its files are in the trash: skillhouse delete --undo {again}")
    return note_removed(copies, terminal)


_INFO_EXAMPLES = """examples:
  skillhouse info                    every installed skill
  skillhouse info pdf
"""


def _configure_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skill", nargs="?", help=_NAME)
    add_common(parser)


def _info(options: argparse.Namespace, terminal: Terminal) -> int:
    with installing(options, terminal) as (_, installer):
        if options.skill is None:
            return terminal.listing(
                list(installer.installed.entries()),
                lambda found: installed_answer(found[1], found[0].scope, found[2]),
                lambda found: (
                    f"{found[0].scope}:{shown(found[1])}  {shown(found[2].label)}  "
                    f"{shown(found[2].repository)}{'  pinned' if found[2].pinned else ''}"
                    f"{_built(found[2])}"
                ),
                name="skills",
                as_json=options.json,
                nothing="nothing was installed here",
            )
        scope, name = split_id(options.skill)
        place, entry = installer.installed.find(name, scope=scope)
        state = installer.installed.state(name, entry, place)
    if options.json:
        terminal.json(installed_state(state))
    else:
        _print_info(state, terminal)
    return 0 if state.is_well else 1


def _built(entry: LockEntry) -> str:
    return "" if entry.build is None else f"  {shown(entry.build.text)}"


def _print_info(state: InstalledState, terminal: Terminal) -> None:
    entry = state.entry
    signature = entry.signature
    pinned = (one_line(entry.pin_reason) or "yes") if entry.pinned else ""
    pairs = {
        "version": shown(entry.label),
        "publisher": "unsigned" if signature is None else one_line(signature.who),
        "attested": "" if entry.build is None else shown(entry.build.text),
        "repository": shown(entry.repository),
        "resolved": shown(entry.resolved),
        "inside": shown(entry.inside),
        "asked for": shown(entry.requested),
        "archive": shown(entry.digest),
        "digest": entry.tree_digest,
        "size": f"{entry.size} bytes",
        "is at": shown(str(state.place.target(state.name))),
        "pinned": pinned,
        "rollback": "possible" if entry.previous is not None else "",
        "now": _said(state),
    }
    terminal.heading(f"{state.place.scope}:{shown(state.name)}")
    for label, value in pairs.items():
        if value:
            print_pair(label, value, terminal)


def _said(state: InstalledState) -> str:
    words = {
        "ok": "as installed",
        "accepted": "edited, and accepted so",
        "unasked": "as installed, and its repository was not asked",
    }
    said = words.get(state.state, "") or f"{state.state}: {shown(state.problem)}"
    if state.left:
        said = f"{said}; left by programs: {_listed(state.left)}"
    return f"{said}; {shown(state.note)}" if state.note else said


def _listed(left: Sequence[str]) -> str:
    """Return the first of many, each directory of a program as one."""
    units = tuple(dict.fromkeys(leftover_unit(path) for path in left))
    return some_names(units, _LEFT_SHOWN)


_PIN_EXAMPLES = """examples:
  skillhouse pin pdf --reason "2.0 drops forms"
  skillhouse pin pdf --off
"""


def _configure_pin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skill", help=_NAME)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for later")
    parser.add_argument("--off", action="store_true", help="let it be updated again")
    add_common(parser)


def _pin(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.off and options.reason:
        raise UsageError("--reason is for a pin, and --off ends one")
    with installing(options, terminal) as (_, installer):
        installed = installer.installed
        scope, name = split_id(options.skill)
        entry = installed.pin(name, scope=scope, pinned=not options.off, reason=options.reason)
        place, _ = installed.find(name, scope=scope)
    text = "may be updated again" if options.off else f"stays at {entry.tree_digest}"
    terminal.answer(
        installed_answer(name, place.scope, entry),
        f"{shown(name)} {text}",
        as_json=options.json,
    )
    return 0


_VERIFY_EXAMPLES = """examples:
  skillhouse verify                  every installed skill
  skillhouse verify --offline        likewise, without asking any repository
  skillhouse verify pdf --full       what differs from what was installed
  skillhouse verify pdf --accept     keep my edits: agents load it again
  skillhouse verify pdf --restore    put back what was installed; `rollback` has the edits
  skillhouse verify pdf --lift       forget that it was revoked, if its repository says so
  skillhouse verify ./pdf            who signed the skill in this directory

Repositories are asked whether they took a version back, and for what they revoked; it binds here
from then on, also without a network.
A directory (with a `/`, `.` or `~` at its beginning) must be signed by a publisher whose root is
trusted here (`skillhouse keys trust`), and no file may be changed, added, removed or renamed. The
message of a refusal begins with the step that refused.
"""


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skills", nargs="*", metavar="SKILL", help=f"{_NAME}, or ./DIR")
    parser.add_argument(
        "--repository", default="", metavar="NAME", help="the registry that ./DIR is signed for"
    )
    parser.add_argument("--offline", action="store_true", help="ask no repository")
    parser.add_argument("--accept", action="store_true", help="take the edits for what is meant")
    parser.add_argument(
        "--restore", action="store_true", help="put back what was installed, keeping the edits"
    )
    parser.add_argument(
        "--lift", action="store_true", help="forget that it was revoked, if its repository did"
    )
    parser.add_argument("--full", action="store_true", help="show all lines that differ")
    add_common(parser)


def _verify(options: argparse.Namespace, terminal: Terminal) -> int:
    """Compare installed skills with the lock; 1 when one is not as it should be."""
    directories = [one for one in options.skills if one.startswith((".", "/", "~"))]
    if directories:
        if len(options.skills) != 1 or _changes(options):
            raise UsageError("a directory is verified alone, and has nothing to accept or restore")
        return verify_directory(options, directories[0], terminal)
    _refuse_changes(options)
    states: list[InstalledState] = []
    with installing(options, terminal) as (_, installer):
        if options.lift:
            _lift(installer, split_id(options.skills[0])[1], terminal)
        for place, entry, name in _meant(options, installer):
            states.append(_asked(options, terminal, installer, name, entry, place))
        if options.accept and states[0].state == "edited":
            edited = states[0]
            scope = edited.place.scope
            accepted = installer.installed.accept(edited.name, edited.digest, scope=scope)
            states = [installer.installed.state(edited.name, accepted, edited.place)]
        if options.restore:
            states = [_restored(installer, states[0], terminal)]
    if options.json:
        terminal.json_list("skills", [installed_state(state) for state in states])
    elif states or not options.lift:
        _print_states(states, terminal, full=options.full)
    return 0 if all(state.is_well for state in states) else 1


def _print_states(states: Sequence[InstalledState], terminal: Terminal, *, full: bool) -> None:
    for state in states:
        built = _built(state.entry)
        terminal.line(f"{state.place.scope}:{shown(state.name)}  {_said(state)}{built}")
        print_difference(state.difference, terminal, full=full)
    if not states:
        terminal.note("nothing was installed here")


def _meant(
    options: argparse.Namespace, installer: Installer
) -> list[tuple[InstallPlace, LockEntry, str]]:
    """Return the installed skills that are named; without names all of them."""
    every = [(place, entry, name) for place, name, entry in installer.installed.entries()]
    ids = [split_id(text) for text in options.skills]
    if options.lift and all(name != ids[0][1] for *_, name in every):
        # What was revoked is most often not installed any more.
        return []
    found = [(*installer.installed.find(name, scope=scope), name) for scope, name in ids]
    return found or every


def _lift(installer: Installer, name: str, terminal: Terminal) -> None:
    for one in installer.lift(name):
        said = f"{one.skill} {one.version} of {one.repository}"
        terminal.note(f"not revoked any more: {shown(said)}")


def _changes(options: argparse.Namespace) -> list[str]:
    return [one for one in ("accept", "restore", "lift") if getattr(options, one)]


def _refuse_changes(options: argparse.Namespace) -> None:
    """Raise UsageError for changes that an agent asks for, of several skills, or two at once."""
    flags = _changes(options)
    for flag in flags:
        refuse_agents(f"verify --{flag}")
        if len(options.skills) != 1 or len(flags) > 1:
            apart = "--accept, --restore and --lift exclude each other"
            raise UsageError(f"--{flag} takes one skill; {apart}")
    if options.lift and options.offline:
        raise UsageError("--lift asks the repository, and --offline asks none")


def _restored(installer: Installer, state: InstalledState, terminal: Terminal) -> InstalledState:
    """Put back what was installed, where something else is there by now."""
    name, entry, place = state.name, state.entry, state.place
    if not restorable(state):
        return state
    with installer.locked(name, entry, place) as staged:
        installer.restore(staged, entry, force=True)
        installer.sync_copies(staged)
    if state.state in ("edited", "accepted"):
        terminal.note(f"the edits are kept: `skillhouse rollback {place.scope}:{name}`")
    place, entry = installer.installed.find(name, scope=place.scope)
    return installer.installed.state(name, entry, place)


def _asked(
    options: argparse.Namespace,
    terminal: Terminal,
    installer: Installer,
    name: str,
    entry: LockEntry,
    place: InstallPlace,
) -> InstalledState:
    """Compare a skill with the lock, and ask its repository about it."""
    if options.offline:
        return installer.installed.state(name, entry, place)
    state, error = asked_state(installer, name, entry, place)
    if error is not None:
        terminal.error(f"{name}: {error}; `--offline` compares the files alone")
    return state


_PACK_EXAMPLES = """examples:
  skillhouse pack ./pdf                 writes pdf-1.2.tar.gz
  skillhouse pack ./pdf -o /tmp/pdf.tar.gz --json

Equal files give equal bytes, whenever and wherever it is made.
"""


def _configure_pack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="SKILL", help="its directory, or its name")
    parser.add_argument("-o", dest="output", metavar="FILE", help="where to write it")
    add_json(parser)
    parser.set_defaults(start=None, roots=None, profile=None, no_cache=False)


def _pack(options: argparse.Namespace, terminal: Terminal) -> int:
    package = pack(skill_directory(options, options.directory))
    target = Path(options.output or package.file_name)
    with write_atomically(target, mode=0o644) as file:
        file.write(package.archive)
    if options.json:
        terminal.json(
            PackedSkillAnswer(
                name=package.facts.name,
                version=package.facts.version,
                path=str(target),
                digest=package.digest,
                tree_digest=package.tree.digest,
                size=len(package.archive),
                files=package.tree.files,
            )
        )
        return 0
    files = counted(len(package.tree.files), "file")
    terminal.line(f"{shown(str(target))}: {files}, {len(package.archive)} bytes")
    print_pair("archive", package.digest, terminal)
    print_pair("files", package.tree.digest, terminal)
    return 0


VERBS = {
    "uninstall": Verb(_UNINSTALL_EXAMPLES, _configure_uninstall, _uninstall),
    "info": Verb(_INFO_EXAMPLES, _configure_info, _info),
    "pin": Verb(_PIN_EXAMPLES, _configure_pin, _pin),
    "verify": Verb(_VERIFY_EXAMPLES, _configure_verify, _verify),
    "pack": Verb(_PACK_EXAMPLES, _configure_pack, _pack),
}
