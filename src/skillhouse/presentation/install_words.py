"""What is known of a skill that is to be installed, in words: by a label each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from skillhouse.presentation.text import counted, one_line, shown, some_names

if TYPE_CHECKING:
    from skillhouse.install import InstallReport, RepositoryOffer

FILES_SHOWN = 30


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
