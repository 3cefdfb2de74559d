"""`skillhouse reload`: loads the code of skills and says what cannot be used."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from skillhouse.answers.service import (
    failures,
    loaded_names,
    reload_answer,
    untried_names,
)
from skillhouse.frontends.cli.event_loop import run_in_loop
from skillhouse.frontends.cli.options import Verb, add_common, house_of
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse.manage.code_reload import Reloaded

_RELOAD_EXAMPLES = """examples:
  skillhouse reload
  skillhouse reload --json

Reads every manifest again and loads the code of each skill in a cell, without calling a tool, where
rules and approvals would let a tool of it that reads run without a question. A tool that the
manifest declares and the code does not export is no longer offered. Running `up`, `mcp` and
`chat` processes reload before their next call; calls in progress finish with the code that they
began with.
"""

_PROGRESS_SECONDS = 1.0


def _configure_reload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", default="default", metavar="NAME", help="as this agent")
    add_common(parser)


def _reload(options: argparse.Namespace, terminal: Terminal) -> int:
    """Say which tools of skills can be used; 1 when something cannot."""
    with house_of(options) as house:
        done = run_in_loop(_reloaded, house, options.agent, _reload_progress(terminal))
    found = done.loaded
    problems = house.services.skill_code.problems
    failed = failures(found, problems)
    if options.json:
        terminal.json_list("loaded", loaded_names(found), reload_answer(done, problems))
        return 1 if failed else 0
    if not house.services.skill_code.is_enabled:
        terminal.note("skills' own code is off: set `enabled = true` below `[skill_code]`")
    for skill in found:
        for name in skill.tools:
            terminal.line(
                shown(name) + (f" ({skill.untried}, not loaded)" if skill.untried else "")
            )
    for name, error in failures(found, ()):
        terminal.line(f"{shown(name)}: {terminal.style('failed', 'red')}: {shown(error)}")
    for problem in problems:
        terminal.line(finding_line(problem, terminal))
    loaded = sum(len(skill.tools) for skill in found)
    terminal.note(f"{counted(loaded, 'tool')} of skills, {len(failed)} failed")
    return 1 if failed else 0


def reload_house(house: Skillhouse, terminal: Terminal) -> bool:
    """Reload and note each tool of a skill; return whether all of them can be used."""
    done = run_in_loop(_reloaded, house, "default", _reload_progress(terminal))
    for name in (*loaded_names(done.loaded), *untried_names(done.loaded)):
        terminal.note(f"tool: {shown(name)}")
    failed = failures(done.loaded, house.services.skill_code.problems)
    for name, error in failed:
        terminal.error(f"{shown(name)}: {shown(error)}")
    return not failed


async def _reloaded(
    house: Skillhouse, agent: str, progress: Callable[[int, int], None]
) -> Reloaded:
    from skillhouse.manage.code_reload import reload_code

    try:
        return await reload_code(house, agent=agent, progress=progress)
    finally:
        await house.release_loop()


def _reload_progress(terminal: Terminal) -> Callable[[int, int], None]:
    said_at = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        now = time.monotonic()
        if now >= said_at + _PROGRESS_SECONDS and terminal.is_watched:
            said_at = now
            terminal.note(f"loaded {done} of {counted(of, 'skill')}")

    return tell


VERBS = {"reload": Verb(_RELOAD_EXAMPLES, _configure_reload, _reload)}
