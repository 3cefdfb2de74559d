"""`skillhouse remote`."""

from __future__ import annotations

import argparse
from typing import Any

import anyio

from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import counted, moment, one_line, shown
from skillhouse.runtime import RemoteState, Skillhouse, Synced

EXAMPLES = """examples:
  skillhouse remote list
  skillhouse remote sync
  skillhouse remote sync https://skills.example.com

The servers are listed under [[remotes]] in the configuration. Nothing is fetched before
you sync. Skills of other servers are asked about before they are loaded, and again when
they have changed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list the servers and what is here of each")
    syncing = verbs.add_parser("sync", help="bring what is here up to date")
    syncing.add_argument("url", nargs="?", default="", metavar="URL", help="only this server")
    for verb in (listing, syncing):
        add_json(verb)
        add_place(verb)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """List the servers, or sync them; 1 when not all that they list could be had."""
    with house_of(options) as house:
        return (
            _list(house, options, terminal)
            if options.verb == "list"
            else _sync(house, options, terminal)
        )


def _list(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    states = house.remotes.states()
    if options.json:
        terminal.json([_state_value(state) for state in states])
        return 0
    if not states:
        terminal.line("no remotes are configured: add [[remotes]] with a url")
    for state in states:
        terminal.line(f"{shown(state.source.url)}  {state.source.kind}")
        label = 10
        terminal.pair("  synced", moment(state.synced_at) or "never", label_width=label)
        if state.skills:
            terminal.pair("  skills", one_line(", ".join(state.skills)), label_width=label)
        if not state.is_read:
            said = f"the profile {shown(house.profile.name)} has no skills of other servers"
            terminal.pair("  unread", said, label_width=label)
    return 0


def _sync(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    def told(line: str) -> None:
        terminal.note(shown(line))

    async def work() -> tuple[Synced, ...]:
        return await house.remotes.sync(options.url, told=told)

    done = anyio.run(work)
    if options.json:
        terminal.json([_synced_value(synced) for synced in done])
    else:
        for synced in done:
            _print(synced, terminal)
    return 0 if all(synced.is_whole for synced in done) else 1


def _print(synced: Synced, terminal: Terminal) -> None:
    address = shown(synced.source.url)
    report = synced.report
    if report is None:
        terminal.line(f"{address}: not synced, and what was here is as it was")
        terminal.error(synced.error)
        return
    total = len(report.added) + len(report.changed) + len(report.kept)
    terminal.line(f"{address}: {counted(total, 'skill')}")
    groups = {
        "added": report.added,
        "changed": report.changed,
        "removed": report.removed,
        "as before": report.kept,
    }
    for label, names in groups.items():
        if names:
            terminal.pair(f"  {label}", one_line(", ".join(names)), label_width=14)
    for problem in report.problems:
        terminal.error(problem)


def _state_value(state: RemoteState) -> dict[str, Any]:
    return {
        "url": state.source.url,
        "kind": state.source.kind,
        "directory": str(state.directory),
        "skills": list(state.skills),
        "synced_at": moment(state.synced_at) or None,
        "read": state.is_read,
    }


def _synced_value(synced: Synced) -> dict[str, Any]:
    value: dict[str, Any] = {"url": synced.source.url, "kind": synced.source.kind}
    report = synced.report
    if report is None:
        return value | {"error": synced.error}
    return value | {
        "added": list(report.added),
        "changed": list(report.changed),
        "removed": list(report.removed),
        "kept": list(report.kept),
        "problems": list(report.problems),
    }
