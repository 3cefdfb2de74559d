"""`skillhouse tools`."""

from __future__ import annotations

import argparse
from typing import Any

from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.tools import SkillCodeTool, Tool

EXAMPLES = """examples:
  skillhouse tools list
  skillhouse tools list --agent planner --json

A tool that a skill brings is called SKILL:TOOL; a model sees SKILL__TOOL. Skills' own code is off
unless the profile or `[skill_code] enabled = true` turns it on.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = verbs.add_parser("list", help="list every tool that an agent has")
    listing.add_argument("--agent", default="default", metavar="NAME", help="of this agent")
    add_json(listing)
    add_place(listing)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """List the tools: the house's own first, then those of skills."""
    with house_of(options) as house:
        tools = house.tools(agent=options.agent)
    if options.json:
        terminal.json({"tools": [tool_value(tool) for tool in tools]})
        return 0
    brought = [tool for tool in tools if isinstance(tool, SkillCodeTool)]
    own = [tool for tool in tools if not isinstance(tool, SkillCodeTool)]
    terminal.heading("built in")
    terminal.rows([(shown(tool.name), one_line(tool.description)) for tool in own])
    terminal.line()
    if brought:
        terminal.heading("of skills")
        terminal.rows([(shown(tool.full_name), _described(tool)) for tool in brought])
        terminal.line()
    terminal.line(f"{counted(len(tools), 'tool')}, {len(brought)} of skills")
    problems = len(house.skill_code.problems)
    if problems:
        what = counted(problems, "finding")
        terminal.note(f"{what} about skills' code: `skillhouse reload`")
    return 0


def tool_value(tool: Tool) -> dict[str, Any]:
    """Return a tool as plain values; `skill` and `level` are null for the house's own."""
    code = tool if isinstance(tool, SkillCodeTool) else None
    return {
        "name": tool.name,
        "full_name": code.full_name if code else tool.name,
        "skill": code.skill.manifest.name if code else None,
        "level": code.level if code else None,
        "description": tool.description,
        "parameters": dict(tool.schema),
    }


def _described(tool: SkillCodeTool) -> str:
    return f"{tool.level}: {one_line(tool.description)}"
