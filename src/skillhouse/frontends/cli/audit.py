"""`skillhouse audit`."""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from skillhouse.answers.audit import (
    AcceptedServerAnswer,
    all_logs_answer,
    code_lists,
    entry_answer,
    listed_entry,
    seen_logs,
    stats_answer,
    subject_of,
    verification_answer,
)
from skillhouse.answers.errors import error_code
from skillhouse.answers.json_form import copied
from skillhouse.approval import OWNER
from skillhouse.audit import (
    Query,
    csv_lines,
    entries_of,
    find_record,
    json_lines,
    stats_of,
    troubles,
    write_gate_lines,
)
from skillhouse.audit.peer_pages import LOG_PAGE_MAX, LogQuestion
from skillhouse.audit.server_logs import LOG_PATTERN, entries_of_all, find_logs, verify_all
from skillhouse.audit.state_heads import StateHeads, heads_by_log
from skillhouse.floor import SkillhouseError, structs
from skillhouse.floor.regex import regex
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_json,
    add_place,
    house_of,
    positive,
    utc_time,
)
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import confirmed
from skillhouse.presentation.findings import verification_lines
from skillhouse.presentation.text import counted, fitted, one_line, shown
from skillhouse.store import STATE_FILE, state_server

if TYPE_CHECKING:
    from skillhouse.audit import AuditEntry, AuditLog, Stats, Trouble, Verification
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import AllLogs, Skillhouse

T = TypeVar("T")

_EXAMPLES = """examples:
  skillhouse audit list --limit 20
  skillhouse audit list --tool exec --status denied --since 7d
  skillhouse audit list --sort duration --since 1d
  skillhouse audit list --skill pdf     what this skill was loaded and used for
  skillhouse audit show 01J9ZC
  skillhouse audit stats --since 30d
  skillhouse audit export --format csv --output calls.csv
  skillhouse audit list --all
  skillhouse audit verify
  skillhouse audit verify --all /mnt/logs
  skillhouse audit list --all /mnt/logs --server core-a
  skillhouse audit accept core-a        after its machine, and so its log, was replaced
"""

_COLOURS = {"ok": "green", "denied": "red", "error": "red", "unknown": "yellow"}
_STATUSES = (
    "ok success error denied pending timeout escalated emergency-stopped stopped unknown".split()
)
_FORMATS = {"csv": csv_lines, "json": json_lines, "write-gate": write_gate_lines}
_ID = regex("[0-9A-Z]{26}")
_PROGRESS_BYTES = 32 * 1024 * 1024
"""Size of a log that takes long enough to verify for a person to wonder."""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    found = verbs.add_parser("list", help="what was called, newest first")
    _add_filters(found)
    found.add_argument(
        "--sort",
        choices=["time", "duration"],
        default="time",
        help="the newest first (default), or the call that ran longest first",
    )
    found.add_argument("--limit", type=positive, default=30, metavar="N", help="most calls (30)")
    show = verbs.add_parser("show", help="one call, whole")
    show.add_argument("id", help="a record's id or its beginning")
    stats = verbs.add_parser("stats", help="how many calls there were, by what they were")
    _add_filters(stats)
    export = verbs.add_parser("export", help="calls for other programs, newest first")
    _add_filters(export)
    export.add_argument(
        "--format",
        choices=list(_FORMATS),
        default="json",
        help="csv, json, or write-gate: the verdicts of the write gate as JSON lines",
    )
    export.add_argument("--output", metavar="FILE", help="write a new FILE instead of stdout")
    export.add_argument("--limit", type=positive, metavar="N", help="most calls (all)")
    verify = verbs.add_parser("verify", help="whether a byte of the log was changed")
    found.add_argument(
        "--all",
        metavar="DIR",
        nargs="?",
        const="",
        help="the logs of all servers of the state, which are asked; with DIR, every log below it",
    )
    found.add_argument(
        "--before", metavar="ID", help="with --all: the records before this one, as a list ends"
    )
    verify.add_argument(
        "--all", metavar="DIR", help="every log below DIR, a copy of each server's own"
    )
    accept = verbs.add_parser("accept", help="take the new log of a server that was replaced")
    accept.add_argument("server", metavar="NAME", help="the server's name, as `list --all` has it")
    accept.add_argument("--yes", action="store_true", help="do not ask")
    for parser_of_verb in (found, show, stats, verify, accept):
        add_json(parser_of_verb)
    for parser_of_verb in (found, show, stats, export, verify, accept):
        add_place(parser_of_verb)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tool", metavar="NAME", help="only calls of this tool")
    parser.add_argument("--skill", metavar="NAME", help="only calls that loaded or used this skill")
    parser.add_argument("--status", choices=_STATUSES, metavar="STATUS", help=", ".join(_STATUSES))
    parser.add_argument("--agent", metavar="NAME", help="only calls of this agent")
    parser.add_argument("--user", metavar="NAME", help="only calls of this user")
    parser.add_argument("--client", metavar="NAME", help="only calls of this client")
    parser.add_argument(
        "--server", metavar="NAME", help="only records of this server, as `list --all` names it"
    )
    parser.add_argument("--tier", choices=["none", "3", "2", "1"], help="only calls of this tier")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=utc_time,
        help="from a UTC time (2026-01-31), one of RFC 3339, or 12h, 7d ago",
    )
    parser.add_argument("--until", metavar="TIME", type=utc_time, help="up to such a time")


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Read the audit log; 1 when it was changed or an outcome is unknown."""
    house = house_of(options)
    log = house.audit_log
    if options.verb == "verify":
        if options.all is not None:
            return _verify_all(house, Path(options.all), terminal, json=options.json)
        return _verify(log, terminal, json=options.json)
    if options.verb == "show":
        entry = find_record(log.path, options.id, key=log.key)
        if entry is None:
            raise UsageError(f"no record begins with `{options.id}`; see `skillhouse audit list`")
        _show(entry, terminal, json=options.json)
        return 0
    if options.verb == "accept":
        return _accept(house, options, terminal)
    if options.verb == "list" and options.all == "":
        return _list_all(house, options, terminal)
    if options.verb == "list" and options.before is not None:
        raise UsageError("`--before` goes on with a list of `--all`, without a DIR")
    entries = _entries(options, log, house.config.shown_server)
    if options.verb == "stats":
        _stats(stats_of(entries), troubles(log), terminal, json=options.json)
        return 0
    if options.verb == "export":
        _export(entries, options, terminal)
        return 0
    return terminal.listing(
        list(entries),
        listed_entry,
        lambda entry: _line(entry, terminal, has_duration=options.sort == "duration"),
        name="records",
        as_json=options.json,
        nothing="no calls",
    )


def _all_logs(house: Skillhouse) -> AllLogs:
    try:
        # It verifies signatures, with a library of the extra `server`.
        return house.all_logs
    except ImportError as error:
        raise UsageError(f"asking other servers needs the extra `server`: {error}") from error


def _named(asked: Callable[[], T]) -> T:
    """Return what servers answer; UsageError where there is none of the name that was given."""
    try:
        return asked()
    except SkillhouseError as error:
        if error_code(error) != "unknown-server":
            raise
        raise UsageError(str(error)) from error


def _accept(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    """Have a server's name be that of the log which it has now; 1 where a person does not agree."""
    refuse_agents("audit accept")
    logs = _all_logs(house)
    if not logs.is_shared:
        raise UsageError("the state is in a file, and has one log: there is none to accept")
    found = _named(lambda: logs.replaced(options.server))
    name, before = one_line(found.server), ", ".join(found.given_up)
    if not options.yes:
        terminal.note(
            f"`{name}` answers with the log {found.log}; {before} had its name. Whoever writes the "
            "state could have taken the name. On this machine the records of the new log count as "
            "the server's then, and what the old one had and is in no copy is given up"
        )
        if not confirmed(f"Accept {found.log} as `{name}`?", terminal):
            terminal.note("nothing was changed")
            return 1
    arguments = {"server": found.server, "log": found.log, "given_up": list(found.given_up)}
    house.services.enforcement.event("server-accepted", user=OWNER, arguments=arguments)
    logs.accept(found)
    answer = copied(AcceptedServerAnswer, found, given_up=list(found.given_up))
    terminal.answer(
        answer, f"`{name}` is the log {found.log}, and no more {before}", as_json=options.json
    )
    return 0


def _list_all(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    """Ask every server for its log; 1 when one did not answer, or a log is not as it was."""
    if options.before is not None and not _ID.fullmatch(options.before):
        raise UsageError("expected `--before` to be the id that the list before ended with")
    if options.sort == "duration":
        raise UsageError("servers answer by time; copy their logs, and use `--all DIR`")
    logs = _all_logs(house)
    question = LogQuestion(
        query=_query(options), before=options.before or "", limit=min(options.limit, LOG_PAGE_MAX)
    )
    found = _named(lambda: logs.page(question))
    answer = seen_logs(found)
    if options.json:
        terminal.json(answer)
        return 0 if found.is_whole else 1
    for one in found.entries:
        name = one_line(one.server)
        terminal.line(f"{_line(one.entry, terminal, room=len(name) + 12)}  {name}  {one.standing}")
    if not found.entries:
        terminal.line("no calls")
    for server in found.servers:
        if server.state not in ("answered", "empty") or server.said:
            said = f": {one_line(server.said)}" if server.said else ""
            terminal.note(
                f"{one_line(server.name)} ({one_line(server.log) or 'no log'}) {server.state}{said}"
            )
    if found.following:
        terminal.note(f"older ones: --before {found.following}")
    return 0 if found.is_whole else 1


def _entries(options: argparse.Namespace, log: AuditLog, own: str) -> Iterator[AuditEntry]:
    """Yield what is wanted; UsageError for a server of which no record is. `own` is this one."""
    folder = getattr(options, "all", None)

    def read(query: Query) -> Iterator[AuditEntry]:
        if folder is not None:
            return entries_of_all(_logs(Path(folder)), query)
        return entries_of(log.path, structs.replace(query, own_server=own), key=log.key)

    entries = read(_query(options))
    first = next(entries, None)
    if first is not None:
        entries = itertools.chain([first], entries)
    elif options.server is not None:
        known = {one.record.server for one in read(Query())} - {""}
        known |= set() if folder is not None else {own}
        if options.server not in known:
            named = ", ".join(f"`{one_line(one)}`" for one in sorted(known)) or "none"
            others = "" if folder is not None else "; `audit list --all` asks all servers"
            text = f"no record is of a server `{options.server}`: known are {named}{others}"
            raise UsageError(text)
    limit: int | None = getattr(options, "limit", None)
    if limit is not None and getattr(options, "sort", "") == "duration":
        # Of equal ones the newest first; no more than the limit are held of a long log.
        return iter(heapq.nlargest(limit, entries, key=_duration_ms))
    return itertools.islice(entries, limit)


def _query(options: argparse.Namespace) -> Query:
    return Query(
        tool=options.tool,
        skill=options.skill,
        status=options.status,
        since=options.since,
        until=options.until,
        agent=options.agent,
        user=options.user,
        client=options.client,
        server=options.server,
        tier=options.tier,
        judged=getattr(options, "format", "") == "write-gate",
    )


def _duration_ms(entry: AuditEntry) -> int:
    return (entry.outcome or entry.record).duration_ms


def _logs(folder: Path) -> tuple[Path, ...]:
    try:
        found = find_logs(folder)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot look for logs in `{folder}`: {reason}") from None
    if not found:
        raise UsageError(f"no log is below `{folder}`: expected files `{LOG_PATTERN}`")
    return found


def _stats(stats: Stats, wrong: Sequence[Trouble], terminal: Terminal, *, json: bool) -> None:
    if json:
        terminal.json(stats_answer(stats, wrong))
        return
    period = f", {stats.first[:19]} to {stats.last[:19]} UTC" if stats.total else ""
    terminal.line(f"{counted(stats.total, 'call')}{period}")
    for title, counts in (
        ("status", stats.by_status),
        ("tool", stats.by_tool),
        ("denied, by tool", stats.denied_by_tool),
        ("user", stats.by_user),
        ("agent", stats.by_agent),
        ("client", stats.by_client),
        ("tier", stats.by_tier),
        ("day", stats.by_day),
    ):
        if any(counts):
            terminal.heading(title)
            for name, count in counts.items():
                terminal.line(f"  {count:>8}  {one_line(name or '(none)')}")
    if stats.outages:
        terminal.heading("the log itself")
        cost = f"{counted(stats.refused, 'effect')} refused"
        lost = f", {counted(stats.dropped, 'record')} lost" if stats.dropped else ""
        terminal.line(f"  {stats.outages:>8}  could not be written: {cost}{lost}")
    for trouble in wrong:
        terminal.note(f"{terminal.style('warning:', 'yellow', errors=True)} {trouble.message}")


def _export(entries: Iterator[AuditEntry], options: argparse.Namespace, terminal: Terminal) -> None:
    lines = _FORMATS[options.format](entries)
    if options.output is None:
        for line in lines:
            terminal.write(line)
        return
    # A new file for its owner alone: it holds what the log holds.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        handle = os.open(Path(options.output), flags, 0o600)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot write `{options.output}`: {reason.lower()}") from None
    with open(handle, "w", encoding="utf-8", newline="") as file:
        for line in lines:
            file.write(line)


def _line(
    entry: AuditEntry, terminal: Terminal, *, room: int = 0, has_duration: bool = False
) -> str:
    record = entry.record
    status = terminal.style(entry.status.ljust(7), _COLOURS.get(entry.status, "dim"))
    head = f"{record.id[:10]}  {record.ts[:19].replace('T', ' ')}  "
    if has_duration:
        head += f"{_duration_ms(entry):>9,} ms  "
    room = terminal.width - len(head) - 9 - room
    return f"{head}{status}  {fitted(one_line(subject_of(entry)), room)}"


def _show(entry: AuditEntry, terminal: Terminal, *, json: bool) -> None:
    answer = entry_answer(entry)
    if json:
        terminal.json(answer)
        return
    for part, fields in (("record", answer.record), ("outcome", answer.outcome)):
        if fields is None:
            continue
        terminal.heading(part)
        for key, item in structs.asdict(fields).items():
            if key == "detail" and isinstance(item, dict):
                # What a skill's code logged and printed has lines of its own, below.
                lists = code_lists(item)
                item = {name: one for name, one in item.items() if name not in lists}
            if item not in ("", [], {}, None):
                terminal.pair(f"  {key}", one_line(str(item)), label_width=20)
        for name, lines in code_lists(fields.detail).items():
            terminal.line(f"  {name}")
            for line in lines:
                terminal.line(f"    | {shown(line)}")
    terminal.line()
    terminal.line(f"status: {entry.status}")


def _verify(log: AuditLog, terminal: Terminal, *, json: bool) -> int:
    found = log.verify(progress=_progress(terminal))
    if json:
        terminal.json(verification_answer(found))
    else:
        _say_verified(found, terminal)
    return 1 if found.problems or found.unknown else 0


def _say_verified(found: Verification, terminal: Terminal) -> None:
    for line in verification_lines(found):
        terminal.line(line)


def _verify_all(house: Skillhouse, folder: Path, terminal: Terminal, *, json: bool) -> int:
    heads = house.audit_log.state_heads()
    if heads is None and state_server(house.config.state_directory / STATE_FILE) is not None:
        # Who collects the logs of others has often no name, and no log, of its own.
        heads = heads_by_log(StateHeads(house.config.state_directory).all()) or None
    found = verify_all(_logs(folder), heads=heads)
    if json:
        terminal.json(all_logs_answer(found, folder))
    else:
        for path, one in found.logs:
            names = ", ".join(map(one_line, one.servers)) or "no name of a server"
            terminal.heading(f"{one_line(str(path.relative_to(folder)))} ({names})")
            _say_verified(one, terminal)
        for head in found.absent:
            said = f"the state knows {counted(head.seq, 'record')} of a log of"
            place = f"`{one_line(head.server)}`, which is not below `{folder}`"
            terminal.line(f"{said} {place} [log-missing]")
        if found.is_alone:
            terminal.note("no state has heads of these logs: a rewritten one would not show")
    is_wrong = found.absent or any(one.problems or one.unknown for _, one in found.logs)
    return 1 if is_wrong else 0


def _progress(terminal: Terminal) -> Callable[[int, int], None]:
    last = -1

    def tell(done: int, of: int) -> None:
        nonlocal last
        percent = done * 100 // of if of else 100
        if of >= _PROGRESS_BYTES and percent >= last + 10 and terminal.is_watched:
            last = percent
            terminal.note(f"verified {percent}%")

    return tell


VERBS = {"audit": Verb(_EXAMPLES, _configure, _run, without="list")}
