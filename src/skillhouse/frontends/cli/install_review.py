"""Shows a person what a skill is and would do, before it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.mentions import print_mentions
from skillhouse.frontends.presentation.text import counted, one_line, shown, some_names

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.install import InstallReport, RepositoryOffer

LABEL = 13
FILES_SHOWN = 30
DIFF_SHOWN = 60
"""Files and lines of a diff that are shown without --full."""


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


def report_pairs(report: InstallReport) -> Iterator[tuple[str, str]]:
    """Yield what is known of a skill, by a label each; verdicts of rules are not among them."""
    facts, entry = report.facts, report.entry
    yield from _source_pairs(report)
    if entry.digest:
        yield "archive", entry.digest
    yield "digest", entry.tree_digest
    yield "licence", one_line(facts.license) or "none given"
    tree = report.tree
    yield "size", f"{tree.size} bytes in {counted(len(tree.files), 'file')}"
    yield "files", some_names([one.path for one in tree.files], FILES_SHOWN)
    for text in report.lacking:
        yield "not there", shown(text)
    if report.effects.executables:
        yield "executable", ", ".join(map(shown, report.effects.executables))
    for path, why in report.effects.obeyed:
        yield "obeyed", f"{shown(path)}: {why}"
    if facts.allowed_tools:
        yield "asks for", f"{one_line(', '.join(facts.allowed_tools))} (this grants nothing)"
    for tool in facts.tools:
        yield "own tool", f"{shown(tool.name)}, level {tool.level}"
    if facts.env:
        yield "variables", one_line(", ".join(facts.env))
    if facts.dependencies:
        yield "needs", one_line(", ".join(facts.dependencies))
    for name, hidden in report.effects.hidden:
        yield "hidden", f"{shown(name)}: {shown(hidden)}"
    for found in facts.diagnostics:
        yield found.severity.value, f"{shown(found.message)} [{found.code}]"
    yield "goes to", shown(str(report.place.target(report.name)))


def _source_pairs(report: InstallReport) -> Iterator[tuple[str, str]]:
    inside = f" in {shown(report.inside)}" if report.inside else ""
    yield "source", f"{shown(report.entry.resolved)}{inside}"
    if report.moved_from:
        yield "moved", f"at its source, from {shown(report.moved_from)}"
    if report.rewritten:
        yield "history", f"warning: {shown(report.rewritten)}"
    if report.entry.resolved.startswith(("http://", "git+http://")):
        yield "connection", "not encrypted: others on the way could have changed it"
    if report.near:
        yield "near name", f"warning: {one_line(report.near)}"
    if report.offer is not None:
        yield from _offer_pairs(report, report.offer)
    yield "publisher", publisher_text(report)
    yield from _build_pairs(report)
    for text in () if report.publisher is None else report.publisher.warnings:
        yield "warning", shown(text)


def _build_pairs(report: InstallReport) -> Iterator[tuple[str, str]]:
    if report.attested is not None:
        for origin in report.attested.origins:
            yield "attested", shown(origin.text)
        for problem in report.attested.problems:
            yield "attested", f"warning: {shown(problem)}"
    if report.unexpected:
        yield "provenance", f"warning: {shown(report.unexpected)}"


def _offer_pairs(report: InstallReport, offer: RepositoryOffer) -> Iterator[tuple[str, str]]:
    settings, installed = offer.settings, report.installed
    if settings.trusted:
        yield "repository", settings.name
    else:
        signed = "unsigned" if report.publisher is None else publisher_text(report)
        said = f"warning: `{settings.name}` is not trusted; published {_age(offer)}, {signed}"
        yield "repository", said
    if offer.owners == ():
        yield "owner", "the name is unclaimed: whoever has a token of the repository publishes it"
    yield "published", f"{_age(offer)}, as the repository says"
    if offer.newer_yanked:
        yield "taken back", f"newer versions: {one_line(', '.join(offer.newer_yanked))}"
    if installed is not None and report.is_downgrade:
        versions = f"{shown(installed.version)}, and this one is {shown(report.entry.version)}"
        yield "downgrade", f"warning: installed is the newer {versions}"


def _age(offer: RepositoryOffer) -> str:
    days = offer.age_days(datetime.now(UTC))
    if days is None:
        return "at no known time"
    return f"{counted(days, 'day')} ago" if days else "today"


def publisher_text(report: InstallReport) -> str:
    publisher = report.publisher
    if publisher is None:
        return "unknown: it is unsigned"
    name = f"{one_line(publisher.handle)} of {one_line(publisher.registry)}"
    return f"{name}, by certificate {publisher.certificate[:16]}"


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
