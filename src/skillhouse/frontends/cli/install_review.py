"""Shows a person what a skill is and would do, before it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillhouse.presentation.install_words import report_pairs
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import MentionVerdict
    from skillhouse.install import InstallReport
    from skillhouse.skill import UnjudgedBlock

LABEL = 13
DIFF_SHOWN = 60
"""Lines of a diff that are shown without --full."""
EFFECT_WIDTH = 6


def print_report(report: InstallReport, terminal: Terminal, *, full: bool) -> None:
    """Write everything that is known of a skill that is to be installed."""
    facts = report.facts
    version = f" {shown(facts.version)}" if facts.version else ""
    terminal.heading(f"{shown(facts.name)}{version}")
    terminal.indented(one_line(facts.description), 2)
    for label, value in report_pairs(report):
        print_pair(label, value, terminal)
    _print_effects(report, terminal)
    if report.installed is not None:
        _print_changes(report, terminal, full=full)


def print_pair(label: str, value: str, terminal: Terminal) -> None:
    """Write a label with its value; one word stays whole, so that it can be copied."""
    if " " in value:
        terminal.pair(f"  {label}", value, label_width=LABEL)
    else:
        terminal.line(terminal.style(f"  {label}".ljust(LABEL), "dim") + value)


def _print_effects(report: InstallReport, terminal: Terminal) -> None:
    effects = report.effects
    if effects.mentions:
        terminal.line("  commands and tools that it mentions")
    print_mentions(effects.mentions, effects.unjudged, terminal, indent=4)
    if effects.hosts:
        terminal.line("  hosts that its files mention")
    for host in effects.hosts:
        effect = terminal.effect(host.effect) + " " * (6 - len(host.effect))
        terminal.indented(
            f"{shown(host.origin)} in {shown(', '.join(host.files))}", 10, f"    {effect}"
        )
    if effects.hosts_omitted:
        terminal.line(f"    and {counted(effects.hosts_omitted, 'host')} more")


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


def _print_changes(report: InstallReport, terminal: Terminal, *, full: bool) -> None:
    installed = report.installed
    if installed is None:
        return
    if report.is_same:
        terminal.pair("  installed", "just these files", label_width=LABEL)
        return
    if report.is_signed_again:
        terminal.pair(
            "  installed", "just these files; only its signature is another", label_width=LABEL
        )
        return
    said = "another version, whose files are not kept here"
    if report.changes is not None:
        said = report.changes.summary
    version = f" {shown(installed.version)}" if installed.version else ""
    terminal.pair("  changes", f"from the installed{version}: {said}", label_width=LABEL)
    print_difference(report.difference, terminal, full=full)


def print_difference(lines: Sequence[str], terminal: Terminal, *, full: bool) -> None:
    """Write lines of a diff."""
    colours = {"+": "green", "-": "red", "@": "cyan"}
    kept = lines if full else lines[:DIFF_SHOWN]
    for line in kept:
        text = "    " + shown(line)
        colour = colours.get(line[:1])
        terminal.line(terminal.style(text, colour) if colour else text)
    if len(kept) < len(lines):
        terminal.line(f"    … {len(lines) - len(kept)} more lines: --full")
