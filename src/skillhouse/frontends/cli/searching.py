"""`skillhouse search`."""

from __future__ import annotations

import argparse

from skillhouse.frontends.cli.index_progress import prepare_search
from skillhouse.frontends.cli.options import add_json, add_place, house_of, positive
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.json_values import skill_value
from skillhouse.frontends.presentation.text import one_line, shown

EXAMPLES = """examples:
  skillhouse search "merge two PDFs"
  skillhouse search 天气 --limit 3 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("query", nargs="+", help="what the skill should be good for")
    parser.add_argument("--limit", type=positive, default=5, metavar="N", help="most hits (5)")
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the best skills, best first; 1 when none fits."""
    house = house_of(options)
    prepare_search(house, terminal)
    hits = house.search(" ".join(options.query), limit=options.limit)
    skills = [house.skill(hit.id) for hit in hits]
    if options.json:
        terminal.json(
            [
                {**skill_value(skill), "score": hit.score, "fields": list(hit.fields)}
                for hit, skill in zip(hits, skills, strict=True)
            ]
        )
    elif not hits:
        terminal.note("no skill fits; `skillhouse list` shows all")
    else:
        rows = [
            (f"{hit.score:6.2f}  {shown(hit.name)}", one_line(skill.description))
            for hit, skill in zip(hits, skills, strict=True)
        ]
        terminal.rows(rows, indent=0, most=36)
    return 0 if hits else 1
