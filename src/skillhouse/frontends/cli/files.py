"""`skillhouse files`."""

from __future__ import annotations

import argparse

from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.json_values import content_value
from skillhouse.frontends.presentation.text import shown
from skillhouse.runtime import file_kind

EXAMPLES = """examples:
  skillhouse files pdf
  skillhouse files pdf --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("skill", help="an id, a name or a directory name")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the skill's other files, one a line."""
    content = house_of(options).load(options.skill)
    if options.json:
        value = content_value(content)
        kept = {key: value[key] for key in ("directory", "resources", "resources_omitted")}
        types = {name: file_kind(name) for name in content.resources}
        terminal.json({**kept, "types": types})
        return 0
    for relative in content.resources:
        terminal.rows([(shown(relative), file_kind(relative))], most=60)
    if content.resources_omitted:
        terminal.note(f"and {content.resources_omitted} more")
    elif not content.resources:
        terminal.note("no other files")
    return 0
