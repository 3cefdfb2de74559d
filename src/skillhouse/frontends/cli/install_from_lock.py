"""`install --from-lock`: the skills of another installer's lock, one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse.frontends.answers.installs import RestoredAnswer, locked_skill
from skillhouse.frontends.cli.install_answers import InstallAnswers
from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.house import Skillhouse
from skillhouse.install import ChangedSourceError, Installer, is_users_lock, named_entries, restored

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.install import RestoredSkill
    from skillhouse.registry import InstallPlace, OtherEntry

_SAID = {
    "same": "its files are those that the lock has the hash of",
    "different": "its files are NOT those that the lock has the hash of",
    "unknown": "the lock has no hash that its files can be compared with",
}


def install_from_lock(
    options: argparse.Namespace,
    terminal: Terminal,
    house: Skillhouse,
    installer: Installer,
    place: InstallPlace,
) -> int:
    """Install what the lock names; 1 when one of them cannot be restored or is refused."""
    if options.source or options.digest or options.all:
        raise UsageError("--from-lock takes sources from the lock; --skill NAME picks some of them")
    path = house.config.places.start / Path(options.from_lock).expanduser()
    lock = registry.read_other_lock(path)
    entries = _wanted(lock.entries, options.skill)
    if options.list:
        return _list(entries, options, terminal)
    terminal.note(f"{shown(str(path))} ({lock.kind}): {counted(len(entries), 'skill')}")
    for entry in entries:
        terminal.note(f"  {_line(entry)}")
    is_typed = is_users_lock(path, house.config.places)
    done = InstallAnswers(options, terminal, house)
    for entry in entries:
        with done.each(shown(entry.name)):
            found = done.enter(restored(installer, entry, place, is_typed=is_typed))
            _warn(found, options, terminal)
            compared = RestoredAnswer(lock_hash=found.comparison, note=entry.note)
            if done.take(installer, found.staged, restored=compared) and entry.pinned:
                installer.installed.pin(entry.name, scope=place.scope, reason=entry.pin_reason)
                terminal.note(f"{shown(entry.name)}: pinned, as in the lock")
    return done.end()


def _wanted(entries: Sequence[OtherEntry], names: Sequence[str]) -> Sequence[OtherEntry]:
    try:
        return named_entries(entries, names)
    except registry.SourceError as error:
        raise UsageError(f"{error}; --list shows what is there") from error


def _warn(found: RestoredSkill, options: argparse.Namespace, terminal: Terminal) -> None:
    name = shown(found.staged.name)
    said = _SAID[found.comparison]
    if found.comparison != "different":
        terminal.note(f"{name}: {said}")
    elif options.yes and not options.allow_changed and not options.dry_run:
        raise ChangedSourceError(f"{said}; look at it at a terminal, or use --allow-changed")
    else:
        terminal.error(f"{name}: {said}")


def _list(entries: Sequence[OtherEntry], options: argparse.Namespace, terminal: Terminal) -> int:
    nothing = "no skill is in the lock"
    return terminal.listing(
        entries, locked_skill, _line, name="skills", as_json=options.json, nothing=nothing
    )


def _line(entry: OtherEntry) -> str:
    name = shown(entry.name[:80])
    if entry.fault:
        return f"{name}  cannot be restored: {one_line(entry.fault)}"
    inside = f"  in {shown(entry.inside)}" if entry.inside else ""
    note = f"  ({one_line(entry.note)})" if entry.note else ""
    return f"{name}  from {shown(entry.source)}{inside}{note}"
