"""`skillhouse validate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.discovery import discover
from skillhouse.floor import Severity
from skillhouse.frontends.cli.options import Verb, add_json
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.frontends.presentation.json_values import diagnostic_values
from skillhouse.frontends.presentation.text import counted
from skillhouse.skill import SKILL_FILE, validate

if TYPE_CHECKING:
    from skillhouse.floor import Diagnostic
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse validate ./my-skill
  skillhouse validate skills/          every skill below a directory
  skillhouse validate . --lenient      only what agents would complain about
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", default=["."], metavar="PATH", help="a skill, or a directory of skills"
    )
    parser.add_argument(
        "--lenient", action="store_true", help="judge as an agent does, not as the specification"
    )
    add_json(parser)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print all findings; 1 when one of them is an error."""
    directories = [place for path in options.paths for place in _skills_below(Path(path))]
    findings = [
        found for place in directories for found in validate(place, strict=not options.lenient)
    ]
    if options.json:
        terminal.json({"skills": len(directories), "diagnostics": diagnostic_values(findings)})
    else:
        for found in findings:
            terminal.line(finding_line(found, terminal))
        terminal.note(_summary(len(directories), findings))
    return 1 if any(found.severity is Severity.ERROR for found in findings) else 0


def _skills_below(path: Path) -> list[Path]:
    """Return the directory itself when it holds a skill or nothing does, else all skills below."""
    if not path.is_dir() or (path / SKILL_FILE).exists():
        return [path]
    index = discover([path])
    places = {skill.directory for skill in index.skills + index.shadowed}
    places |= {
        found.path.parent
        for found in index.diagnostics
        if found.path is not None and found.path.name == SKILL_FILE
    }
    return sorted(places) or [path]


def _summary(skills: int, findings: list[Diagnostic]) -> str:
    errors = sum(found.severity is Severity.ERROR for found in findings)
    warnings = sum(found.severity is Severity.WARNING for found in findings)
    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    return f"{counted(skills, 'skill')}: {found}"


VERBS = {"validate": Verb(_EXAMPLES, _configure, _run)}
