"""`skillhouse reload`."""

from __future__ import annotations

import argparse

import anyio

from skillhouse.floor import Severity
from skillhouse.frontends.cli.listing import finding_line
from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.text import counted, shown
from skillhouse.runtime import Skillhouse
from skillhouse.runtime.code_loading import Loaded, load_code
from skillhouse.tools import SkillCodeTool

EXAMPLES = """examples:
  skillhouse reload
  skillhouse reload --json

Reads every manifest anew and loads the code of each skill in a cell, without calling a tool. Code
that somebody is asked about before it runs is not loaded. A program that runs already takes edited
code by itself, from the next call on; calls under way end with the code that they began with.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--agent", default="default", metavar="NAME", help="as this agent")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Say which tools of skills can be used; 1 when something cannot."""
    with house_of(options) as house:
        found = anyio.run(_reloaded, house, options.agent)
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


async def _reloaded(house: Skillhouse, agent: str) -> tuple[Loaded, ...]:
    try:
        house.refresh()
        await house.skill_code.reload()
        tools = [tool for tool in house.tools(agent=agent) if isinstance(tool, SkillCodeTool)]
        return await load_code(tools, house.skill_code, agent=agent)
    finally:
        await house.let_go()


def _failed(found: tuple[Loaded, ...]) -> list[tuple[str, str]]:
    whole = [(skill.skill, skill.error) for skill in found if skill.error]
    single = [
        (name, "the manifest declares it, and the code does not export it")
        for skill in found
        for name in skill.missing
    ]
    return whole + single
