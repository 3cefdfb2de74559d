"""`skillhouse enable` and `skillhouse disable`."""

from __future__ import annotations

import argparse

from skillhouse.frontends.cli.options import UsageError, add_json, add_place, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import shown

EXAMPLES = """examples:
  skillhouse disable weather          no agent sees it any more
  skillhouse enable weather
  skillhouse disable --all            no skills at all
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("skill", nargs="?", help="an id, a name or a directory name")
    parser.add_argument("--all", action="store_true", help="skills as a whole")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Switch one skill, or all of them."""
    enabled = options.verb == "enable"
    if (options.skill is None) == (not options.all):
        raise UsageError(f"expected a skill or --all; see `skillhouse {options.verb} --help`")
    if enabled:
        refuse_agents("enable")
    management = house_of(options).management
    word = f"{options.verb}d"
    if options.all:
        management.set_all_enabled(enabled=enabled)
        skill = "*"
        text = f"skills are {word}"
    else:
        skill = management.set_enabled(options.skill, enabled=enabled).id
        text = f"{shown(skill)} is {word}"
    if options.json:
        terminal.json({"id": skill, "enabled": enabled})
    else:
        terminal.line(text)
    if enabled and not options.all and not management.settings.enable_skills:
        terminal.note("skills as a whole are disabled: `skillhouse enable --all`")
    return 0
