"""`skillhouse rehearse`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.index_progress import prepare_search
from skillhouse.frontends.cli.options import Verb, add_common, house_of, positive
from skillhouse.frontends.presentation.json_values import rehearsal_value
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.runtime import rehearse

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import MentionVerdict, Rehearsal

_EXAMPLES = """examples:
  skillhouse rehearse "What's the weather in Tokyo?"
  skillhouse rehearse "open a pull request" --full
  skillhouse rehearse "merge PDFs" --root ./skills --json

No model and no network are used.
"""

CATALOG_LINES = 12
BODY_LINES = 16
"""Lines shown of the catalog and of the body without --full."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", nargs="+", help="what a user would ask")
    parser.add_argument("--limit", type=positive, default=5, metavar="N", help="most hits (5)")
    parser.add_argument("--full", action="store_true", help="show catalog and body whole")
    add_common(parser)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the walk; 1 when no skill fits the request."""
    with house_of(options) as house:
        prepare_search(house, terminal)
        rehearsal = rehearse(house, " ".join(options.request), limit=options.limit)
    if options.json:
        terminal.json(rehearsal_value(rehearsal))
    else:
        _print(rehearsal, terminal, full=options.full)
    return 0 if rehearsal.skill is not None else 1


def _print(rehearsal: Rehearsal, terminal: Terminal, *, full: bool) -> None:
    terminal.line(f"Request: {shown(rehearsal.request)}")
    terminal.line()
    _catalog(rehearsal.catalog, rehearsal.hidden, terminal, full=full)
    _ranking(rehearsal, terminal)
    if rehearsal.skill is None or rehearsal.decision is None:
        return
    terminal.heading("3 Permission to load it")
    effect = terminal.effect(rehearsal.decision.decision.effect)
    terminal.line(f"  {effect}  skill {shown(rehearsal.skill.name)}")
    terminal.line(f"  {shown(rehearsal.decision.reason)}")
    terminal.line()
    _body(rehearsal, terminal, full=full)
    _mentions(rehearsal.mentions, terminal)
    _sandbox(rehearsal, terminal)


def _catalog(catalog: Catalog, hidden: int, terminal: Terminal, *, full: bool) -> None:
    terminal.heading("1 Catalog the model sees")
    _excerpt(catalog.text, CATALOG_LINES, terminal, full=full)
    facts = f"{counted(len(catalog.included), 'skill')}, about {catalog.tokens} tokens"
    if catalog.omitted:
        facts += f", {len(catalog.omitted)} left out by the budget"
    if hidden:
        facts += f", {hidden} denied by rules"
    terminal.line(f"  {facts}")
    terminal.line()


def _ranking(rehearsal: Rehearsal, terminal: Terminal) -> None:
    terminal.heading("2 Skills that fit, best first")
    rows = []
    for hit in rehearsal.hits:
        why = "exact name" if hit.exact else "found in " + ", ".join(hit.fields)
        rows.append((f"{hit.score:6.2f}  {shown(hit.name)}", why))
    if rows:
        terminal.rows(rows, most=40)
    else:
        terminal.line("  none")
    terminal.line()


def _body(rehearsal: Rehearsal, terminal: Terminal, *, full: bool) -> None:
    terminal.heading("4 Body")
    content = rehearsal.content
    if content is None:
        terminal.line("  not read: the skill is denied")
        terminal.line()
        return
    _excerpt(content.body, BODY_LINES, terminal, full=full)
    files = len(content.resources) + content.resources_omitted
    terminal.line(f"  about {content.tokens} tokens, {counted(files, 'other file')}")
    for found in content.diagnostics:
        terminal.line(f"  {found.severity}: {shown(found.message)} [{found.code}]")
    terminal.line()


def _mentions(mentions: tuple[MentionVerdict, ...], terminal: Terminal) -> None:
    terminal.heading("5 Commands and tools it mentions")
    if not mentions:
        terminal.line("  none")
    for verdict in mentions:
        effect = terminal.effect(verdict.effect) + " " * (6 - len(verdict.effect))
        lines = terminal.wrapped(one_line(verdict.mention.text), 8)
        terminal.line(f"  {effect}{lines[0]}")
        for line in lines[1:]:
            terminal.line(" " * 8 + line)
        terminal.line(" " * 8 + terminal.style(shown(verdict.reason), "dim"))


def _sandbox(rehearsal: Rehearsal, terminal: Terminal) -> None:
    terminal.line()
    terminal.heading("6 Where its commands would run")
    status = rehearsal.sandbox
    if status is not None:
        level = "no sandbox, so no command runs" if status.level == "none" else status.level
        terminal.line(f"  {level}; network only where a rule grants it")
        for text in (*status.reasons, status.hint):
            for line in terminal.wrapped(text, 2) if text else ():
                terminal.line(f"  {line}")
    terminal.line("  writable: the workspace, except")
    for line in terminal.wrapped(" ".join(rehearsal.protected), 4):
        terminal.line(f"    {line}")


def _excerpt(text: str, most: int, terminal: Terminal, *, full: bool) -> None:
    lines = text.strip("\n").split("\n") if text.strip() else []
    bar = terminal.style("│", "dim")
    kept = lines if full or len(lines) <= most + 1 else lines[:most]
    for line in kept:
        for piece in terminal.wrapped(shown(line), 4):
            terminal.line(f"  {bar} {piece}".rstrip())
    if len(kept) < len(lines):
        terminal.line(f"  {bar} … {len(lines) - len(kept)} more lines: --full")


VERBS = {"rehearse": Verb(_EXAMPLES, _configure, _run)}
