"""`skillhouse delete`."""

from __future__ import annotations

import argparse
import sys

from skillhouse.frontends.cli.options import UsageError, add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import counted, shown

EXAMPLES = """examples:
  skillhouse delete meeting-notes
  skillhouse delete user:meeting-notes --yes

Only your own skills (scope user) can be deleted.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("skill", help="an id, a name or a directory name")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Delete one skill after a yes."""
    management = house_of(options).management
    found = management.get(options.skill)
    if not options.yes and not _agreed(found.directory_path, len(found.files) + 1, terminal):
        terminal.note("nothing was deleted")
        return 1
    path = management.delete(found.id)
    if options.json:
        terminal.json({"id": found.id, "path": str(path)})
    else:
        terminal.line(f"deleted {shown(found.id)} at {shown(str(path))}")
    return 0


def _agreed(directory: str, files: int, terminal: Terminal) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask here; use --yes")
    terminal.prompt(f"Delete {shown(directory)} with {counted(files, 'file')}? (y, n) ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
