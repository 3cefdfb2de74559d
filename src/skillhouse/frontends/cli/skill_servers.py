"""`skillhouse mcp servers list`, `refresh`, `add` and `forget`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

import anyio

from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import counted, moment, one_line, shown
from skillhouse.runtime import Skillhouse
from skillhouse.runtime.mcp_servers import McpAsked, McpServers, McpServerState

WORDS = {"list": (0, 0), "refresh": (0, 1), "add": (2, 2), "forget": (1, 1)}
"""Each sub-verb, with the least and most words behind it."""
USAGE = "list, refresh [LABEL], add LABEL ADDRESS or forget LABEL"


def served(options: argparse.Namespace, house: Skillhouse, terminal: Terminal) -> int:
    """Do what the words after `mcp servers` say; 1 when a server could not be asked for all."""
    # The SDK logs what a server does wrong; here it is said in one line.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    verb, words = _words(options.clients)
    servers = McpServers(house.config, house.mcp_host, house.audit_log, house.refresh)
    if verb == "list":
        return _list(servers.states(), terminal, json=options.json)
    if verb == "forget":
        count = servers.forget(words[0])
        if options.json:
            terminal.json({"label": words[0], "skills": count})
        else:
            terminal.line(f"{shown(words[0])}: {counted(count, 'skill')} forgotten")
        return 0
    done: tuple[McpAsked, ...]
    if verb == "add":
        done = (anyio.run(servers.add, words[0], words[1]),)
    else:
        done = anyio.run(servers.refresh, words[0] if words else "")
    if options.json:
        terminal.json([_asked_value(asked) for asked in done])
    else:
        for asked in done:
            _print(asked, terminal)
    return 0 if all(asked.is_whole for asked in done) else 1


def _words(given: Sequence[str]) -> tuple[str, list[str]]:
    verb, *words = given or ["list"]
    least, most = WORDS.get(verb, (1, 0))
    if not least <= len(words) <= most:
        raise UsageError(f"expected `mcp servers` and {USAGE}")
    return verb, words


def _list(states: Sequence[McpServerState], terminal: Terminal, *, json: bool) -> int:
    if json:
        terminal.json([_state_value(state) for state in states])
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


def _print(asked: McpAsked, terminal: Terminal) -> None:
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


def _state_value(state: McpServerState) -> dict[str, Any]:
    return {
        "label": state.label,
        "where": state.where or None,
        "skills": list(state.skills),
        "asked_at": moment(state.asked_at) or None,
    }


def _asked_value(asked: McpAsked) -> dict[str, Any]:
    report = asked.report
    if report is None:
        return {"label": asked.label, "error": asked.error}
    return {
        "label": asked.label,
        "added": list(report.added),
        "changed": list(report.changed),
        "removed": list(report.removed),
        "problems": list(report.problems),
    }
