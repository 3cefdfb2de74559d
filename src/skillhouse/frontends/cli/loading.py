"""`skillhouse load`."""

from __future__ import annotations

import argparse

from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.json_values import content_value
from skillhouse.skill import handed_over

EXAMPLES = """examples:
  skillhouse load weather
  skillhouse load user:pdf --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("skill", help="an id, a name or a directory name")
    parser.add_argument("--raw", action="store_true", help="the whole SKILL.md, frontmatter too")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the body, hidden characters as escapes; the first line says so where there are any."""
    content = house_of(options).load(options.skill)
    if options.json:
        terminal.json(content_value(content))
        return 0
    terminal.document(handed_over(content.text if options.raw else content.body))
    return 0
