"""`skillhouse profiles`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from skillhouse.frontends.cli.clients import add_start, places_of, profiles_of, seen_by
from skillhouse.frontends.cli.options import add_json
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.client_report import difference, table
from skillhouse.frontends.presentation.lens_plain import lens_skill_value
from skillhouse.frontends.presentation.profile_toml import as_toml
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.runtime import Locations
from skillhouse.runtime.lens import Lens, LensSkill
from skillhouse.skill import DEFAULT_PROFILE, Profile, load_profile, profile_names

EXAMPLES = """examples:
  skillhouse profiles list
  skillhouse profiles show codex                    what differs from `default`, and why
  skillhouse profiles show codex --toml > ~/.config/skillhouse/profiles/mine.toml
  skillhouse profiles compare claude-code codex     the skills they see differently

A profile is a file of values: how a client or a design finds, reads and lists skills.
Your own lie in ~/.config/skillhouse/profiles, one file each.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = verbs.add_parser("list", help="list all profiles")
    showing = verbs.add_parser("show", help="show the values of one, and where they come from")
    showing.add_argument("name", metavar="NAME")
    showing.add_argument("--toml", action="store_true", help="every value, as a profile file")
    comparing = verbs.add_parser("compare", help="show what they see differently here")
    comparing.add_argument("names", nargs="*", metavar="NAME", help="default: every client")
    comparing.add_argument("--all", action="store_true", help="show every skill, however many")
    for verb in (listing, showing, comparing):
        add_json(verb)
        add_start(verb)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """List, show or compare profiles."""
    places = places_of(options)
    if options.action == "list":
        return _list(options, places, terminal)
    if options.action == "show":
        return _show(options, places, terminal)
    return _compare(options, places, terminal)


def _list(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
    found = [load_profile(name, places.profiles) for name in profile_names(places.profiles)]
    if options.json:
        keys = ("name", "title", "client", "checked")
        terminal.json([{key: getattr(profile, key) for key in keys} for profile in found])
    else:
        terminal.rows([(shown(profile.name), _titled(profile)) for profile in found])
    return 0


def _titled(profile: Profile) -> str:
    if not profile.client:
        return one_line(profile.title)
    checked = f", compared on {profile.checked}" if profile.checked else ""
    return one_line(f"{profile.client}{checked}")


def _show(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
    profile = load_profile(options.name, places.profiles)
    if options.json:
        terminal.json(_plain(dataclasses.asdict(profile)))
        return 0
    if options.toml:
        terminal.document(as_toml(profile))
        return 0
    terminal.heading(f"{shown(profile.name)}: {_titled(profile)}")
    terminal.line()
    for place, line in enumerate(as_toml(profile, unlike=DEFAULT_PROFILE).splitlines()):
        for part in terminal.wrapped(shown(line), 2) if line else ([""] if place else []):
            terminal.line(f"  {part}" if part else "")
    if profile.facts:
        terminal.line()
        terminal.heading("where this comes from")
        for fact in profile.facts:
            first, *rest = terminal.wrapped(one_line(fact), 4)
            terminal.line(f"  - {first}")
            for part in rest:
                terminal.line(f"    {part}")
    return 0


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: sets as sorted lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _compare(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
    lens = seen_by(places, profiles_of(places, options.names))
    found = [skill for skill in lens.skills if _differs(skill)]
    if options.json:
        terminal.json(_compared(lens, found))
        return 1 if found else 0
    for place, client in enumerate(lens.clients):
        terminal.line(
            f"  {chr(ord('A') + place) if place < 26 else place + 1}  {shown(client.name)}"
        )
    terminal.line()
    for line in table(lens, found, everything=options.all):
        terminal.line(line)
    for skill in found if options.all else found[:20]:
        for line in difference(lens, skill):
            terminal.line(line)
    same = len(lens.skills) - len(found)
    terminal.line()
    terminal.line(f"{counted(len(found), 'skill')} seen differently, {same} alike")
    return 1 if found else 0


def _differs(skill: LensSkill) -> bool:
    """Whether two clients make something different of a file."""
    return len({(found.state, found.name, found.cut) for found in skill.verdicts}) > 1


def _compared(lens: Lens, found: list[LensSkill]) -> dict[str, Any]:
    return {
        "clients": [client.name for client in lens.clients],
        "alike": len(lens.skills) - len(found),
        "differing": [lens_skill_value(lens, skill) for skill in found],
    }
