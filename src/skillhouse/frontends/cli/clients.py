"""The verbs about how clients treat skills: `doctor` and `profiles`."""

from __future__ import annotations

import argparse
import dataclasses
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillhouse import __version__
from skillhouse.audit import AuditLog
from skillhouse.clients import (
    ClientConfigs,
    compare,
    exported_sources,
    is_installed,
    problems,
)
from skillhouse.discovery import git_root, watch_bound, watch_use
from skillhouse.floor import SkillhouseError
from skillhouse.frontends.cli.client_fixes import fix_files
from skillhouse.frontends.cli.options import Verb, add_json, places_of
from skillhouse.frontends.presentation.client_report import (
    COLUMNS,
    as_toml,
    difference,
    lens_skill_value,
    lens_value,
    report,
    table,
)
from skillhouse.frontends.presentation.json_values import (
    catalog_notes,
    catalog_report,
    diagnostic_values,
    facts_value,
)
from skillhouse.frontends.presentation.text import counted, one_line, shown, wrapped
from skillhouse.runtime import (
    Locations,
    Skillhouse,
    TrustStore,
    audit_troubles,
    changed_skills,
    file_troubles,
    offered_code,
    usable_config,
)
from skillhouse.runtime.own_files import AUDIT_FILE
from skillhouse.skill import DEFAULT_PROFILE, load_profile, profile_names

if TYPE_CHECKING:
    from pathlib import Path

    from skillhouse.clients import Change, Lens, LensSkill
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import AbsentSkill, CodeFacts, Config
    from skillhouse.skill import Profile

_DOCTOR_EXAMPLES = """examples:
  skillhouse doctor                        the clients that are installed here
  skillhouse doctor --client codex         only what concerns one
  skillhouse doctor --client all           every client that we know
  skillhouse doctor --fix                  show each mend, and make it when you confirm
  skillhouse doctor --json

The report has no colours, no line over 80 columns and no path of your home: paste
it into an issue. Exit code 1 means that it found problems.
"""


def _configure_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client",
        dest="clients",
        action="append",
        metavar="NAME",
        help="only this client, installed or not; may be repeated; `all` for every one",
    )
    parser.add_argument("--all", action="store_true", help="name every skill, however many")
    parser.add_argument(
        "--fix", action="store_true", help="show each change that mends something, and ask"
    )
    add_json(parser)
    add_start(parser)


def add_start(parser: argparse.ArgumentParser) -> None:
    place = parser.add_argument_group("place")
    place.add_argument("-C", dest="start", metavar="DIR", help="look as if started in DIR")


def _doctor(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print what each client makes of this place; 1 when something is wrong."""
    places = places_of(options)
    config, faults = usable_config(places)
    chosen = _examined(places, options.clients or ())
    lens = seen_by(places, chosen)
    if options.fix:

        def discard(path: Path, skill: str) -> None:
            with Skillhouse(config) as house:
                house.management.discard(path, skill)

        return fix_files(lens, terminal, discard=discard, as_json=options.json)
    found, stuck, open_files = problems(lens), audit_troubles(config), file_troubles(config)
    unsafe = unsafe_entries(places)
    catalog, watches, code, notes, changed = _own_place(config)
    broken = [facts for facts in code if facts.is_broken]
    if options.json:
        audit = [dataclasses.asdict(one) for one in stuck]
        files = [dataclasses.asdict(one) for one in open_files]
        entries = [{"client": one.client, "name": one.name, "fault": one.fault} for one in unsafe]
        value = {**lens_value(lens, found), "audit": audit, "files": files}
        value |= {"configuration": diagnostic_values(faults)}
        value |= {"entries": entries, "catalog": catalog, "watches": watches}
        value |= {"code": [facts_value(facts) for facts in code]}
        value |= {"installed": [one._asdict() for one in changed]}
        terminal.json_list("problems", value.pop("problems"), {"machine": machine(), **value})
    else:
        for line in report(lens, found, machine=machine(), everything=options.all):
            terminal.line(line)
        if not options.clients:
            for line in wrapped(_others_text(places, chosen), COLUMNS):
                terminal.line(line)
        for note in notes:
            for line in wrapped(f"skillhouse: {note}", COLUMNS):
                terminal.line(line)
        messages = [f"{one.advice} [{one.code}]" for one in faults]
        messages += [f"{one.message} [{one.code}]" for one in (*stuck, *open_files)]
        messages += [
            f"skill with code `{shown(facts.name)}`: {shown(one.message)} [{one.code}]"
            for facts in code
            for one in facts.problems
        ]
        home = str(places.home)
        messages += [
            f"the installed skill `{shown(one.id or one.name)}` is {one.state}: "
            f"{shown(one.text.replace(home, '~'))}"
            for one in changed
        ]
        messages += [
            f"{entry.client}: the entry `{shown(entry.name)}` starts skillhouse unsafely; "
            "`skillhouse mcp status` says why"
            for entry in unsafe
        ]
        for message in messages:
            terminal.line()
            for line in wrapped(message, COLUMNS):
                terminal.line(line)
    wrong = (found, faults, stuck, open_files, unsafe, broken, changed)
    return 1 if any(wrong) else 0


def _own_place(
    config: Config,
) -> tuple[
    dict[str, Any] | None,
    dict[str, Any] | None,
    tuple[CodeFacts, ...],
    list[str],
    tuple[AbsentSkill, ...],
]:
    """Return what the catalog's bounds leave out, how changes are noticed, the skills with code,
    notes about them, and the installed skills that changed; nothing where a file keeps us from
    starting."""
    try:
        with Skillhouse(config) as house:
            view = house.view()
            found, use = catalog_report(view), watch_use(house.snapshot.roots)
            notes = list(catalog_notes(found, view))
            code, changed = offered_code(house), tuple(changed_skills(house))
    except SkillhouseError as error:
        return None, None, (), [f"the catalog cannot be made: {error}"], ()
    notes += [f"skill with code {one_line(f'{one.name}: {one.summary()}')}" for one in code]
    if use is None:
        return found, None, code, notes, changed
    if use.polls:
        notes.append(
            f"a program that watches these {use.needed:,} directories polls them: at most "
            f"{watch_bound():,} are watched, and {use.free:,} of this user's {use.most:,} watches "
            "are free (fs.inotify.max_user_watches)"
        )
    watches = {**dataclasses.asdict(use), "free": use.free, "polls": use.polls}
    return found, watches, code, notes, changed


def unsafe_entries(places: Locations) -> tuple[Change, ...]:
    """Return the entries of clients that are not safe to start our server with."""
    state = usable_config(places).config.state_directory
    configs = ClientConfigs(
        places=places,
        project=git_root(places.start) or places.start,
        state_directory=state,
        audit=AuditLog(state / AUDIT_FILE),
    )
    return tuple(change for change in configs.status() if change.fault)


def profiles_of(places: Locations, names: Sequence[str]) -> tuple[Profile, ...]:
    """Return the named profiles; without names those of all clients, and our own behaviour."""
    if names:
        return tuple(load_profile(name, places.profiles) for name in dict.fromkeys(names))
    known = [load_profile(name, places.profiles) for name in profile_names(places.profiles)]
    clients = tuple(profile for profile in known if profile.client)
    ours = load_profile(usable_config(places).config.profile, places.profiles)
    return clients if ours in clients else (*clients, ours)


def _examined(places: Locations, names: Sequence[str]) -> tuple[Profile, ...]:
    """Return the profiles that `doctor` is about: those named, or of what is installed here."""
    if names and "all" not in names:
        return profiles_of(places, names)
    known = profiles_of(places, ())
    if names:
        return known
    return tuple(one for one in known if not one.client or is_installed(one, places))


def _others_text(places: Locations, chosen: Sequence[Profile]) -> str:
    others = [one.name for one in profiles_of(places, ()) if one not in chosen]
    if not any(one.client for one in chosen):
        return f"no client that we know is installed here; `--client NAME`: {', '.join(others)}"
    return f"not installed here: {', '.join(others)} (`--client NAME`)" if others else ""


def seen_by(places: Locations, profiles: Sequence[Profile]) -> Lens:
    config = usable_config(places).config
    project = git_root(places.start) or places.start
    lens = compare(
        start=places.start,
        home=places.home,
        environment=places.environment,
        profiles=profiles,
        trusted=TrustStore(config.state_directory).is_trusted(project),
        explicit=config.roots,
    )
    return dataclasses.replace(lens, exported=exported_sources(config.state_directory))


def machine() -> str:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"skillhouse {__version__}, {system}, Python {platform.python_version()}"


_PROFILES_EXAMPLES = """examples:
  skillhouse profiles list
  skillhouse profiles show codex                    what differs from `default`, and why
  skillhouse profiles show codex --toml > ~/.config/skillhouse/profiles/mine.toml
  skillhouse profiles compare claude-code codex     the skills they see differently

A profile is a file of values: how a client or a design finds, reads and lists skills.
Your own lie in ~/.config/skillhouse/profiles, one file each.
"""


def _configure_profiles(parser: argparse.ArgumentParser) -> None:
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


def _profiles(options: argparse.Namespace, terminal: Terminal) -> int:
    places = places_of(options)
    if options.action == "list":
        return _list_profiles(options, places, terminal)
    if options.action == "show":
        return _show_profile(options, places, terminal)
    return _compare_profiles(options, places, terminal)


def _list_profiles(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
    found = [load_profile(name, places.profiles) for name in profile_names(places.profiles)]
    # What people have installed first, then our own behaviour, then the published designs.
    # Real clients first, those that were compared before all.
    found.sort(key=lambda p: (not p.client, not p.checked, p.name != DEFAULT_PROFILE.name))
    if options.json:
        keys = ("name", "title", "client", "checked")
        values = [{key: getattr(profile, key) for key in keys} for profile in found]
        terminal.json_list("profiles", values)
    else:
        terminal.rows([(shown(profile.name), _titled(profile)) for profile in found])
    return 0


def _titled(profile: Profile) -> str:
    if not profile.client:
        return one_line(profile.title)
    checked = f", compared on {profile.checked}" if profile.checked else ""
    if profile.read_on:
        checked = f", from its public sources of {profile.read_on}, not compared"
    return one_line(f"{profile.client}{checked}")


def _show_profile(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
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
    for gap in profile.unknown:
        terminal.indented(one_line(f"unknown: {gap}"), 4, "  - ")
    if profile.facts:
        terminal.line()
        terminal.heading("where this comes from")
        for fact in profile.facts:
            terminal.indented(one_line(fact), 4, "  - ")
    return 0


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: sets as sorted lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _compare_profiles(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
    lens = seen_by(places, profiles_of(places, options.names))
    found = [skill for skill in lens.skills if _differs(skill)]
    if options.json:
        value = _compared(lens, found)
        terminal.json_list("differing", value.pop("differing"), value)
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
    return len({(found.state, found.name, found.cut) for found in skill.verdicts}) > 1


def _compared(lens: Lens, found: list[LensSkill]) -> dict[str, Any]:
    return {
        "clients": [client.name for client in lens.clients],
        "alike": len(lens.skills) - len(found),
        "differing": [lens_skill_value(lens, skill) for skill in found],
    }


VERBS = {
    "doctor": Verb(_DOCTOR_EXAMPLES, _configure_doctor, _doctor),
    "profiles": Verb(_PROFILES_EXAMPLES, _configure_profiles, _profiles, without="list"),
}
