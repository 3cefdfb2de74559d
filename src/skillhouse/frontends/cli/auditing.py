"""`skillhouse audit`."""

from __future__ import annotations

import argparse

from skillhouse.audit import AuditEntry, Verification, find_record, read_records, verify_log
from skillhouse.frontends.cli.options import UsageError, add_json, add_place, house_of, positive
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.plain import entry_value, verification_value
from skillhouse.frontends.text import counted, cut, one_line, shown

EXAMPLES = """examples:
  skillhouse audit list --limit 20
  skillhouse audit list --tool exec --status denied
  skillhouse audit show 01J9ZC
  skillhouse audit verify
"""

_COLOURS = {"ok": "green", "denied": "red", "error": "red", "unknown": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    found = verbs.add_parser("list", help="what was called, newest first")
    found.add_argument("--tool", metavar="NAME", help="only calls of this tool")
    found.add_argument(
        "--status", choices=["ok", "error", "denied", "pending", "unknown"], help="only these"
    )
    found.add_argument("--limit", type=positive, default=30, metavar="N", help="most calls (30)")
    show = verbs.add_parser("show", help="one call, whole")
    show.add_argument("id", help="a record's id or its beginning")
    verify = verbs.add_parser("verify", help="whether a byte of the log was changed")
    for parser_of_verb in (found, show, verify):
        add_json(parser_of_verb)
        add_place(parser_of_verb)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Read the log of this house."""
    path = house_of(options).audit_log.path
    if options.verb == "verify":
        return _verify(verify_log(path), terminal, json=options.json)
    if options.verb == "show":
        entry = find_record(path, options.id)
        if entry is None:
            raise UsageError(f"no record begins with `{options.id}`; see `skillhouse audit list`")
        _show(entry, terminal, json=options.json)
        return 0
    entries = read_records(path, tool=options.tool, status=options.status, limit=options.limit)
    if options.json:
        terminal.json([entry_value(entry) for entry in entries])
        return 0
    for entry in entries:
        terminal.line(_line(entry, terminal))
    if not entries:
        terminal.note("no calls")
    return 0


def _line(entry: AuditEntry, terminal: Terminal) -> str:
    record = entry.record
    wanted = ", ".join(f"{p.action} {p.resource}" for p in record.permissions) or record.reason
    status = terminal.style(entry.status.ljust(7), _COLOURS.get(entry.status, "dim"))
    head = f"{record.id[:10]}  {record.ts[:19].replace('T', ' ')}  "
    room = terminal.width - len(head) - 9
    return f"{head}{status}  {cut(one_line(wanted or record.tool), room)}"


def _show(entry: AuditEntry, terminal: Terminal, *, json: bool) -> None:
    value = entry_value(entry)
    if json:
        terminal.json(value)
        return
    for part in ("record", "outcome"):
        if value[part] is None:
            continue
        terminal.heading(part)
        for key, item in value[part].items():
            if item not in ("", [], {}, None):
                terminal.pair(f"  {key}", one_line(str(item)), label_width=20)
    terminal.line()
    terminal.line(f"status: {entry.status}")


def _verify(found: Verification, terminal: Terminal, *, json: bool) -> int:
    """Print what the log's chain says; 1 when a byte was changed or an outcome is unknown."""
    if json:
        terminal.json(verification_value(found))
    else:
        for problem in found.problems:
            place = f"line {problem.line}: " if problem.line else ""
            terminal.line(f"{place}{shown(problem.message)} [{problem.code}]")
        for record in found.unknown:
            wanted = ", ".join(f"{p.action} {p.resource}" for p in record.permissions)
            terminal.line(f"unknown outcome: {record.id} {one_line(wanted)} at {record.ts}")
        word = "changed or cut" if found.problems else "whole"
        terminal.line(f"{counted(found.records, 'record')}, the log is {word}")
    return 1 if found.problems or found.unknown else 0
