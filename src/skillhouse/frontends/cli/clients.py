"""The verbs about how clients treat skills: `doctor` and `profiles`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skillhouse.answers.client_changes import discarding, fix_answer, fix_groups
from skillhouse.answers.doctor import (
    ComparedAnswer,
    ProfilesAnswer,
    profile_line,
    seen_skill,
)
from skillhouse.clients import (
    apply_fix,
    client_profiles,
    is_installed,
    profile_to_compare,
    proposed_fixes,
)
from skillhouse.floor import isolated
from skillhouse.frontends.cli.hooks import hook_changes, hook_lines, is_faulty
from skillhouse.frontends.cli.options import Verb, add_json, places_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import all_or_each, confirmed, need_terminal
from skillhouse.frontends.cli.verbs import TAKEN
from skillhouse.house import Locations, usable_config
from skillhouse.presentation.client_report import (
    COLUMNS,
    as_toml,
    brief,
    difference,
    report_lines,
    table,
)
from skillhouse.presentation.doctor_values import (
    Examination,
    examine,
    examined_profiles,
    listed_profiles,
    machine,
    profiles_of,
    seen_by,
    tool_lines,
)
from skillhouse.presentation.text import counted, one_line, shown, wrapped
from skillhouse.skill import DEFAULT_PROFILE

if TYPE_CHECKING:
    from skillhouse.clients import ClientReport, Discard, Fix, ReportedSkill
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.skill import Profile


def fix_files(report: ClientReport, terminal: Terminal, *, discard: Discard, as_json: bool) -> int:
    """Show each change of `doctor --fix`, and make it when the person confirms; 1 when one was not
    made."""
    fixes = proposed_fixes(report)
    if as_json:
        # To look only: a program cannot confirm.
        terminal.json_list("fixes", [fix_answer(report, fix) for fix in fixes])
        return 0
    if not fixes:
        terminal.note("nothing that can be fixed without you; `skillhouse doctor` has the rest")
        return 0
    refuse_agents("doctor --fix")
    instead = "`doctor --fix --json` shows the changes"
    need_terminal(instead)
    made = 0
    for group in fix_groups(fixes):
        answer = "each"
        if len(group) > 1:
            _show_all(report, group, terminal)
            count = counted(len(group), "change")
            question = f"Make these {count} ({', '.join(group[0].codes)})?"
            answer = all_or_each(question, terminal, instead=instead)
        for fix in group if answer != "none" else ():
            if answer == "each":
                terminal.line()
                for line in fix.difference:
                    terminal.line(shown(line))
                question = f"Make this change ({', '.join(fix.codes)})?"
                if not confirmed(question, terminal, instead=instead):
                    continue
            made += _applied(report, fix, discard, terminal)
    terminal.note(f"{made} of {counted(len(fixes), 'change')} made")
    return 0 if made == len(fixes) else 1


def _show_all(report: ClientReport, group: Sequence[Fix], terminal: Terminal) -> None:
    """Print each change of a kind, without the lines of a file that stay as they are."""
    for fix in group:
        terminal.line()
        if not fix.after:
            for line in fix.difference:
                terminal.line(shown(line))
            continue
        terminal.line(shown(report.short(fix.path)))
        # INVARIANT: each line that changes is shown; the first two name the file.
        for line in fix.difference[2:]:
            if line.startswith(("+", "-", "…")):
                terminal.line(f"  {shown(line)}")


def _applied(report: ClientReport, fix: Fix, discard: Discard, terminal: Terminal) -> bool:
    with isolated() as failed:
        apply_fix(fix, discard=discard)
    for error in failed:
        terminal.error(f"not changed: {report.short(fix.path)}: {shown(str(error))}")
        return False
    if fix.discarded:
        undo = f"skillhouse delete --undo {shlex.quote(fix.discarded)}"
        terminal.note(
            f"to put it back{', after the link is removed' if fix.target else ''}: {undo}"
        )
    return True


_DOCTOR_EXAMPLES = """examples:
  skillhouse doctor                        the clients that are installed here
  skillhouse doctor --brief                the same in ten lines
  skillhouse doctor --client codex         only what concerns one
  skillhouse doctor --client all           every client that we know
  skillhouse doctor --fix                  show each fix, and make it when you confirm
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
    parser.add_argument("--brief", action="store_true", help="say it in ten lines")
    parser.add_argument(
        "--fix", action="store_true", help="show each change that fixes something, and ask"
    )
    add_json(parser)
    add_start(parser)


def add_start(parser: argparse.ArgumentParser) -> None:
    place = parser.add_argument_group("place")
    place.add_argument("-C", dest="start", metavar="DIR", help="look as if started in DIR")


def _doctor(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print what each client makes of this place; 1 when something is wrong."""
    places = places_of(options)
    config = usable_config(places).config
    chosen = examined_profiles(places, options.clients or ())
    report = seen_by(places, chosen)
    if options.fix:
        return fix_files(report, terminal, discard=discarding(config), as_json=options.json)
    found = examine(places, report, verbs=TAKEN)
    hooks = () if options.clients else hook_changes(places, config)
    is_well = found.is_well and not any(is_faulty(change) for change in hooks)
    if options.brief and not options.json:
        for line in brief(report, found.problems, more=found.further):
            terminal.line(line)
        return 0 if is_well else 1
    if options.json:
        terminal.json(found.answer(hooks))
    else:
        for line in report_lines(report, found.problems, machine=machine(), everything=options.all):
            terminal.line(line)
        if not options.clients:
            for line in wrapped(_others_text(places, chosen), COLUMNS):
                terminal.line(line)
            _print_tools(found, places, terminal)
            _print_wrapped(hook_lines(hooks), terminal)
        _print_wrapped((f"skillhouse: {note}" for note in found.notes), terminal)
        for message in _messages(found, str(places.home)):
            terminal.line()
            for line in wrapped(message, COLUMNS):
                terminal.line(line)
    return 0 if is_well else 1


def _print_wrapped(lines: Iterable[str], terminal: Terminal) -> None:
    for text in lines:
        for line in wrapped(text, COLUMNS):
            terminal.line(line)


def _messages(found: Examination, home: str) -> list[str]:
    """Return what is wrong besides the problems of clients with skills."""
    messages = [f"{one.advice} [{one.code}]" for one in found.faults]
    outside = (*found.stuck, *found.open_files)
    messages += [f"{one.message} [{one.code}]" for one in outside]
    messages += [
        f"skill with code `{shown(facts.name)}`: {shown(one.message)} [{one.code}]"
        for facts in found.code
        for one in facts.problems
    ]
    messages += [
        f"the installed skill `{shown(one.id or one.name)}` is {one.state}: "
        f"{shown(one.text.replace(home, '~'))}"
        for one in found.changed
    ]
    messages += [
        f"{entry.client}: the entry `{shown(entry.name)}` starts skillhouse unsafely; "
        "`skillhouse mcp status` says why"
        for entry in found.unsafe
    ]
    return messages


def _print_tools(found: Examination, places: Locations, terminal: Terminal) -> None:
    for at, text in enumerate(tool_lines(found.tools, str(places.home))):
        for line in wrapped(one_line(text), COLUMNS - 2):
            terminal.line(f"  {line}" if at else line)


def _others_text(places: Locations, chosen: Sequence[Profile]) -> str:
    others = [one for one in client_profiles(places) if one not in chosen]
    names = ", ".join(one.name for one in others if not one.folders_only)
    more = sum(one.folders_only for one in others)
    rest = f", and {counted(more, 'client')} of which only folders are known (`profiles list`)"
    rest = rest if more else ""
    here = [one for one in chosen if one.client]
    if any(is_installed(one, places) for one in here):
        return f"not installed here: {names} (`--client NAME`){rest}" if others else ""
    found = "; those above have a folder here" if here else ""
    return f"no client that we know is installed here{found}; `--client NAME`: {names}{rest}"


_PROFILES_EXAMPLES = """examples:
  skillhouse profiles list
  skillhouse profiles show codex                    what differs from `default`, and why
  skillhouse profiles show codex --toml > ~/.config/skillhouse/profiles/mine.toml
  skillhouse profiles compare claude-code codex     the skills they see differently

A profile is a file of values: how a client or a design finds, reads and lists skills.
Your own are in ~/.config/skillhouse/profiles, one file each.
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
    found = listed_profiles(places)
    folders = [one for one in client_profiles(places) if one.folders_only]
    if options.json:
        more = ProfilesAnswer(folders=[one.name for one in folders])
        terminal.json_list("profiles", list(map(profile_line, found)), more)
        return 0
    terminal.rows([(shown(profile.name), _titled(profile)) for profile in found])
    names = ", ".join(one.name for one in folders)
    terminal.line()
    for line in terminal.wrapped(f"clients of which only folders are known: {names}", 0):
        terminal.line(line)
    return 0


def _titled(profile: Profile) -> str:
    if not profile.client:
        return one_line(profile.title)
    checked = f", compared on {profile.checked}" if profile.checked else ""
    if profile.read_on:
        checked = f", from its public sources of {profile.read_on}, not compared"
    return one_line(f"{profile.client}{checked}")


def _show_profile(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
    profile = profile_to_compare(options.name, places)
    if options.json:
        terminal.json(profile)
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


def _compare_profiles(options: argparse.Namespace, places: Locations, terminal: Terminal) -> int:
    report = seen_by(places, profiles_of(places, options.names))
    found = [skill for skill in report.skills if _differs(skill)]
    if options.json:
        names, alike = [client.name for client in report.clients], len(report.skills) - len(found)
        more = ComparedAnswer(clients=names, alike=alike)
        terminal.json_list("differing", [seen_skill(report, one) for one in found], more)
        return 1 if found else 0
    for place, client in enumerate(report.clients):
        terminal.line(
            f"  {chr(ord('A') + place) if place < 26 else place + 1}  {shown(client.name)}"
        )
    terminal.line()
    for line in table(report, found, everything=options.all):
        terminal.line(line)
    for skill in found if options.all else found[:20]:
        for line in difference(report, skill):
            terminal.line(line)
    same = len(report.skills) - len(found)
    terminal.line()
    terminal.line(f"{counted(len(found), 'skill')} seen differently, {same} alike")
    return 1 if found else 0


def _differs(skill: ReportedSkill) -> bool:
    return len({(found.state, found.name, found.cut) for found in skill.verdicts}) > 1


VERBS = {
    "doctor": Verb(_DOCTOR_EXAMPLES, _configure_doctor, _doctor),
    "profiles": Verb(_PROFILES_EXAMPLES, _configure_profiles, _profiles, without="list"),
}
