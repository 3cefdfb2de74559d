"""`skillhouse list`."""

from __future__ import annotations

import argparse
from itertools import groupby

from skillhouse.floor import Diagnostic
from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import SEVERITY_COLOURS, Terminal
from skillhouse.frontends.presentation.catalog_report import catalog_notes, catalog_report
from skillhouse.frontends.presentation.json_values import index_value, skill_value
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.runtime import Skillhouse

EXAMPLES = """examples:
  skillhouse list
  skillhouse list --findings          what is wrong, file by file
  skillhouse list --root ./skills --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--findings", action="store_true", help="print every finding about roots and files"
    )
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the skills in force, by scope."""
    house = house_of(options)
    index = house.index
    if options.json:
        hidden = [skill_value(skill) for skill in house.hidden]
        value = index_value(index)
        value["skills"] = [skill_value(skill) for skill in house.visible.skills]
        catalog = catalog_report(house.view())
        terminal.json({**value, "hidden": hidden, "catalog": catalog})
        return 0
    if options.findings:
        for found in index.diagnostics:
            terminal.line(finding_line(found, terminal))
        terminal.note(counted(len(index.diagnostics), "finding"))
        return 0
    skills = house.visible.skills
    for scope, group in groupby(skills, key=lambda skill: skill.scope):
        terminal.heading(scope)
        terminal.rows([(shown(skill.name), one_line(skill.description)) for skill in group])
        terminal.line()
    terminal.line(_summary(house))
    for note in catalog_notes(catalog_report(house.view()), house.view()):
        terminal.line(note)
    untrusted = [found for found in index.diagnostics if found.code == "project-untrusted"]
    for found in untrusted:
        terminal.note(f"{shown(str(found.path))}: {found.message}")
    others = len(index.diagnostics) - len(untrusted)
    if others:
        terminal.note(f"{counted(others, 'finding')} about files: `skillhouse list --findings`")
    return 0


def finding_line(found: Diagnostic, terminal: Terminal) -> str:
    """Return a finding as one line: place, severity, message, code."""
    place = "" if found.path is None else shown(str(found.path)) + ":"
    if found.line is not None:
        place += f"{found.line}:"
    severity = terminal.style(found.severity, SEVERITY_COLOURS[found.severity])
    return f"{place} {severity}: {shown(found.message)} [{found.code}]".lstrip()


def _summary(house: Skillhouse) -> str:
    index = house.index
    parts = [counted(len(house.visible), "skill")]
    if house.hidden:
        parts.append(f"{len(house.hidden)} denied by rules")
    for_people = len(house.view().for_people)
    if for_people:
        parts.append(f"{for_people} for people alone")
    disabled = len(index.skills) - len(house.visible) - len(house.hidden) - for_people
    if disabled:
        parts.append(f"{disabled} disabled")
    if index.shadowed:
        parts.append(f"{len(index.shadowed)} shadowed")
    return ", ".join(parts)
