"""`skillhouse remote` and `skillhouse mcp servers`: the servers whose skills are used here."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillhouse.answers.json_form import copied
from skillhouse.answers.packages import (
    ForgottenServerAnswer,
    McpServerAnswer,
    RemoteAnswer,
    SyncedAnswer,
    SyncReportAnswer,
    UnaskedServerAnswer,
)
from skillhouse.floor import structs
from skillhouse.frontends.cli.event_loop import run_in_loop
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.house.remotes import McpServers
from skillhouse.presentation.text import counted, moment, one_line, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import RemoteState, Skillhouse, Synced
    from skillhouse.house.remotes import McpAsked, McpServerState
    from skillhouse.remote.mcp_host import McpReport

_REMOTE_EXAMPLES = """examples:
  skillhouse remote list
  skillhouse remote sync
  skillhouse remote sync https://skills.example.com

The servers are listed under [[remotes]] in the configuration. Nothing is fetched before
you sync. Skills of other servers are asked about before they are loaded, and again when
they have changed.
"""


def _configure_remote(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list the servers and what is here of each")
    syncing = verbs.add_parser("sync", help="bring what is here up to date")
    syncing.add_argument("url", nargs="?", default="", metavar="URL", help="only this server")
    for verb in (listing, syncing):
        add_common(verb)


def _remote(options: argparse.Namespace, terminal: Terminal) -> int:
    """List the servers, or sync them; 1 when not all that they list could be had."""
    with house_of(options) as house:
        return (
            _list_remotes(house, options, terminal)
            if options.verb == "list"
            else _sync_remotes(house, options, terminal)
        )


def _list_remotes(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    states = house.remotes.states()
    if options.json:
        terminal.json_list("remotes", list(map(_remote_answer, states)))
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
            said = f"the profile {shown(house.policy.profile.name)} has no skills of other servers"
            terminal.pair("  unread", said, label_width=label)
    return 0


def _sync_remotes(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    done = run_in_loop(
        lambda: house.remotes.sync(options.url, progress=lambda line: terminal.note(shown(line)))
    )
    if options.json:
        terminal.json_list("remotes", list(map(_synced_answer, done)))
    else:
        for synced in done:
            _print_synced(synced, terminal)
    return 0 if all(synced.is_whole for synced in done) else 1


def _print_synced(synced: Synced, terminal: Terminal) -> None:
    address = shown(synced.source.url)
    report = synced.report
    if report is None:
        terminal.line(f"{address}: not synced, and what was here is as it was")
        terminal.error(synced.error)
        return
    total = len(report.added) + len(report.changed) + len(report.kept) + len(report.repaired)
    terminal.line(f"{address}: {counted(total, 'skill')}")
    groups = {
        "added": report.added,
        "changed": report.changed,
        "removed": report.removed,
        "repaired": report.repaired,
        "as before": report.kept,
    }
    for label, names in groups.items():
        if names:
            terminal.pair(f"  {label}", one_line(", ".join(names)), label_width=14)
    for problem in report.problems:
        terminal.error(problem)


def _remote_answer(state: RemoteState) -> RemoteAnswer:
    return RemoteAnswer(
        url=state.source.url,
        kind=state.source.kind,
        directory=str(state.directory),
        skills=tuple(state.skills),
        synced_at=moment(state.synced_at) or None,
        read=state.is_read,
    )


def _synced_answer(synced: Synced) -> SyncedAnswer:
    source, report = synced.source, synced.report
    if report is None:
        return SyncedAnswer(url=source.url, kind=source.kind, error=synced.error)
    own = copied(SyncReportAnswer, report)
    return SyncedAnswer(url=source.url, kind=source.kind, report=own)


_WORD_COUNTS = {"list": (0, 0), "refresh": (0, 1), "add": (2, 2), "forget": (1, 1)}
"""Each sub-verb, with the least and most words behind it."""
_MCP_USAGE = "list, refresh [LABEL], add LABEL ADDRESS or forget LABEL"


def served(options: argparse.Namespace, house: Skillhouse, terminal: Terminal) -> int:
    """Do what the words after `mcp servers` say; 1 when a server could not be asked for all."""
    # The SDK logs what a server does wrong; here it is said in one line.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    verb, words = _action_and_words(options.clients)
    servers = McpServers(house.config, house.services.mcp_host, house.audit_log, house.refresh)
    if verb == "list":
        return _list_mcp_servers(servers.states(), terminal, json=options.json)
    if verb == "forget":
        count = servers.forget(words[0])
        text = f"{shown(words[0])}: {counted(count, 'skill')} forgotten"
        terminal.answer(
            ForgottenServerAnswer(label=words[0], skills=count), text, as_json=options.json
        )
        return 0
    done: tuple[McpAsked, ...]
    if verb == "add":
        done = (run_in_loop(servers.add, words[0], words[1]),)
    else:
        done = run_in_loop(servers.refresh, words[0] if words else "")
    if options.json:
        terminal.json_list("servers", list(map(_asked, done)))
    else:
        for asked in done:
            _print_asked(asked, terminal)
    return 0 if all(asked.is_whole for asked in done) else 1


def _action_and_words(given: Sequence[str]) -> tuple[str, list[str]]:
    verb, *words = given or ["list"]
    least, most = _WORD_COUNTS.get(verb, (1, 0))
    if not least <= len(words) <= most:
        raise UsageError(f"expected `mcp servers` and {_MCP_USAGE}")
    return verb, words


def _list_mcp_servers(states: Sequence[McpServerState], terminal: Terminal, *, json: bool) -> int:
    if json:
        terminal.json_list("servers", list(map(_mcp_server, states)))
        return 0
    if not states:
        terminal.line("no MCP servers are configured: add [[mcp_servers]] with a label")
    for state in states:
        where = shown(state.where) or "configured no longer"
        terminal.line(f"{shown(state.label)}  {where}")
        terminal.pair("  asked", moment(state.asked_at) or "never", label_width=10)
        if state.skills:
            terminal.pair("  skills", one_line(", ".join(state.skills)), label_width=10)
    return 0


def _print_asked(asked: McpAsked, terminal: Terminal) -> None:
    label, report = shown(asked.label), asked.report
    if report is None:
        terminal.line(f"{label}: not asked, and what was known is as it was")
        terminal.error(one_line(asked.error))
        return
    groups = {"added": report.added, "changed": report.changed, "removed": report.removed}
    said = ", ".join(f"{len(found)} {word}" for word, found in groups.items() if found)
    terminal.line(f"{label}: {said or 'nothing is different'}")
    for word, found in groups.items():
        if found:
            terminal.pair(f"  {word}", one_line(", ".join(found)), label_width=14)
    for problem in report.problems:
        terminal.error(one_line(problem))


def _mcp_server(state: McpServerState) -> McpServerAnswer:
    return McpServerAnswer(
        label=state.label,
        where=state.where or None,
        skills=tuple(state.skills),
        asked_at=moment(state.asked_at) or None,
    )


def _asked(asked: McpAsked) -> McpReport | UnaskedServerAnswer:
    report = asked.report
    if report is None:
        return UnaskedServerAnswer(label=asked.label, error=asked.error)
    return structs.replace(report, label=asked.label)


VERBS = {
    "remote": Verb(_REMOTE_EXAMPLES, _configure_remote, _remote, without="list"),
}
