"""Writes the commands and tools that a skill mentions, each with what it would meet here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillhouse.frontends.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import MentionVerdict
    from skillhouse.skill import UnjudgedBlock

EFFECT_WIDTH = 6


def print_mentions(
    mentions: Sequence[MentionVerdict],
    unjudged: Sequence[UnjudgedBlock],
    terminal: Terminal,
    *,
    indent: int,
) -> None:
    """Write each mention with its verdict, then the blocks that could not be judged."""
    column = indent + EFFECT_WIDTH
    for verdict in mentions:
        effect = terminal.effect(verdict.effect) + " " * (EFFECT_WIDTH - len(verdict.effect))
        terminal.indented(one_line(verdict.mention.text), column, " " * indent + effect)
        terminal.line(" " * column + terminal.style(shown(verdict.reason), "dim"))
    places = ", ".join(
        f"{one_line(one.label) or 'no language'} at line {one.line}" for one in unjudged
    )
    if places:
        blocks = counted(len(unjudged), "block")
        terminal.indented(f"{blocks} not judged, or not wholly: {places}", indent)
