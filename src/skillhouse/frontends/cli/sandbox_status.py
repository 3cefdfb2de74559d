"""The verb `sandbox`: the level of this machine, tested, or a table of all levels and probes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from skillhouse.answers.tools import (
    SandboxAnswer,
    SandboxLevelsAnswer,
    interpreters_answer,
)
from skillhouse.floor import Locations, git_root
from skillhouse.floor.crash_cleanup import clean_state
from skillhouse.floor.machine import is_unwritable
from skillhouse.frontends.cli.options import Verb, add_common, house_of
from skillhouse.house import usable_config
from skillhouse.presentation.sandbox_levels import (
    LevelStatuses,
    probe_rows,
    tested_levels,
    whole_test,
)
from skillhouse.presentation.text import shown
from skillhouse.sandbox import (
    LACKING,
    PythonPlaces,
    SandboxLevel,
    SandboxStatus,
    watch_for_crashes,
)

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse sandbox status
  skillhouse sandbox status --json
  skillhouse sandbox status --levels
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    status = verbs.add_parser("status", help="which level commands run at, tested now")
    add_common(status)
    status.add_argument("--levels", action="store_true", help="test every level, as a table")


def _report(options: argparse.Namespace, terminal: Terminal) -> int:
    """Test the sandbox and print its level; 3 when commands cannot run here."""
    places = Locations.here()
    places.check()
    state = usable_config(places).config.state_directory / "sandbox"
    try:
        clean_state(state)
        watch_for_crashes().mark(state)
    except OSError as error:
        # Nothing is kept in a home that is read-only: the level is tested all the same.
        if not is_unwritable(error):
            raise
    if options.levels:
        return _print_levels(terminal, as_json=options.json)
    with house_of(options) as house:
        least = house.services.least_sandbox
    status = anyio.run(lambda: whole_test(least=least))
    if options.json:
        terminal.json(
            SandboxAnswer(status=status, interpreters=interpreters_answer(_python_places()))
        )
    else:
        _print_status(status, terminal)
        _print_pythons(terminal)
    return 3 if status.level is SandboxLevel.NONE else 0


def _print_status(status: SandboxStatus, terminal: Terminal) -> None:
    terminal.line(f"level: {status.level}")
    for reason in status.reasons:
        terminal.line(f"  {reason}")
    if status.hint:
        terminal.line(f"  {status.hint}")
    if status.probes:
        terminal.line()
    for probe in status.probes:
        lacks = probe.name in LACKING.get(status.level, ())
        word = "holds" if probe.passed else "lacks" if lacks else terminal.style("fails", "red")
        terminal.line(
            f"  {probe.name:<36}{word}{'  ' + shown(probe.detail) if probe.detail else ''}"
        )


def _python_places() -> PythonPlaces:
    start = Path.cwd()
    return PythonPlaces(os.environ, git_root(start) or start)


def _print_pythons(terminal: Terminal) -> None:
    terminal.line()
    terminal.line("Python of skill code, the default first:")
    found = interpreters_answer(_python_places())
    for python in found.pythons:
        terminal.line(f"  {python.version:<9}{shown(python.program)}  {shown(python.why)}")
    for reason in found.unusable_pythons:
        terminal.line(f"  not usable: {shown(reason)}")


def _print_levels(terminal: Terminal, *, as_json: bool) -> int:
    """Test every level and print the table; 3 when none works here."""
    statuses = anyio.run(tested_levels)
    if as_json:
        terminal.json(SandboxLevelsAnswer(levels={str(k): v for k, v in statuses.items()}))
    else:
        _print(statuses, terminal)
    return 0 if any(found.level is not SandboxLevel.NONE for found in statuses.values()) else 3


def _print(statuses: LevelStatuses, terminal: Terminal) -> None:
    letters = dict(zip(statuses, "abcd", strict=True))
    for level, found in statuses.items():
        works = found.level is level
        terminal.line(f"{letters[level]}  {level}{'' if works else '  (not on this machine)'}")
        for reason in () if works else found.reasons:
            terminal.indented(reason, 3)
    rows = probe_rows(statuses)
    width = max((len(name) for name, _ in rows), default=0)
    terminal.line()
    terminal.line(" " * (width + 2) + "  ".join(letters.values()))
    for name, results in rows:
        terminal.line(f"{name:<{width}}  {'  '.join(map(_mark, results))}")
    terminal.line()
    terminal.line("+ holds, - does not, . not tested at this level")


def _mark(passed: bool | None) -> str:  # noqa: FBT001 - the one value that it is about.
    return "." if passed is None else "+" if passed else "-"


VERBS = {"sandbox": Verb(_EXAMPLES, _configure, _report, without="status")}
