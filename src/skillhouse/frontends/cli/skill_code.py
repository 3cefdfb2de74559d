"""`skillhouse reload`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import anyio

from skillhouse.floor import Severity
from skillhouse.frontends.cli.browse import finding_line
from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import counted, shown
from skillhouse.runtime import Skillhouse
from skillhouse.runtime.code.loading import Loaded, Reloaded, reload_code

EXAMPLES = """examples:
  skillhouse reload
  skillhouse reload --json

Reads every manifest anew and loads the code of each skill in a cell, without calling a tool. Code
that somebody is asked about before it runs is not loaded. A tool that the manifest declares and the
code does not export is not offered any more. Programs of this house that run already (`up`, `mcp`,
`chat`) read anew before their next call; calls under way end with the code that they began with.
"""

_PROGRESS_SECONDS = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--agent", default="default", metavar="NAME", help="as this agent")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Say which tools of skills can be used; 1 when something cannot."""
    with house_of(options) as house:
        done = anyio.run(_reloaded, house, options.agent, _progress(terminal))
    found = done.loaded
    problems = house.skill_code.problems
    failed = _failed(found) + [
        (str(problem.path or ""), problem.message)
        for problem in problems
        if problem.severity is Severity.ERROR
    ]
    if options.json:
        terminal.json(
            {
                "loaded": [name for skill in found for name in skill.tools],
                "not_tried": [skill.skill for skill in found if not skill.is_tried],
                "failed": [{"name": name, "error": error} for name, error in failed],
                "steps": [
                    {"directory": str(directory), "step": step} for directory, step in done.steps
                ],
            }
        )
        return 1 if failed else 0
    if not house.skill_code.is_enabled:
        terminal.note("skills' own code is off: set `enabled = true` below `[skill_code]`")
    for skill in found:
        for name in skill.tools:
            terminal.line(shown(name) + ("" if skill.is_tried else " (asked about, not loaded)"))
    for name, error in _failed(found):
        terminal.line(f"{shown(name)}: {terminal.style('failed', 'red')}: {shown(error)}")
    for problem in problems:
        terminal.line(finding_line(problem, terminal))
    loaded = sum(len(skill.tools) for skill in found)
    terminal.note(f"{counted(loaded, 'tool')} of skills, {len(failed)} failed")
    return 1 if failed else 0


async def _reloaded(
    house: Skillhouse, agent: str, progress: Callable[[int, int], None]
) -> Reloaded:
    try:
        return await reload_code(house, agent=agent, progress=progress)
    finally:
        await house.release_loop()


def _progress(terminal: Terminal) -> Callable[[int, int], None]:
    """Return what tells a person at a terminal, each second, how far a long reload is."""
    said_at = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        now = time.monotonic()
        if now >= said_at + _PROGRESS_SECONDS and sys.stderr.isatty():
            said_at = now
            terminal.note(f"loaded {done} of {counted(of, 'skill')}")

    return tell


def _failed(found: tuple[Loaded, ...]) -> list[tuple[str, str]]:
    whole = [(skill.skill, skill.error) for skill in found if skill.error]
    single = [
        (f"{skill.skill}:{tool}", "the manifest declares it, and the code does not export it")
        for skill in found
        if skill.lacking is not None
        for tool in skill.lacking.tools
    ]
    return whole + single
