"""`skillhouse export`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.clients import (
    Action,
    Exporter,
    ExportRequest,
    ExportState,
    Form,
    difference,
    export,
)
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.runtime import export_source

if TYPE_CHECKING:
    from skillhouse.clients import (
        Item,
    )
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse export pdf --to claude-code,codex,gemini-cli,opencode
  skillhouse export --all --to codex --dry-run     what would be written, and where
  skillhouse export --status                       what is not as it was exported
  skillhouse export --sync                         bring all that is exported up to date
  skillhouse export pdf --remove                   take it back from every client

Directories that skillhouse did not write are never touched; an export that was changed
afterwards is replaced only with --force.
"""

_WORDS = {
    Action.WRITE: ("written", "would be written"),
    Action.REPLACE: ("brought up to date", "would be brought up to date"),
    Action.REMOVE: ("removed", "would be removed"),
    Action.FORGET: ("forgotten", "would be forgotten"),
}
_DIFFERING = (ExportState.NEEDS_SYNC, ExportState.CHANGED_THERE, ExportState.FOREIGN)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skills", nargs="*", metavar="SKILL", help="ids, names, directory names")
    parser.add_argument("--all", action="store_true", help="every skill that an agent sees here")
    parser.add_argument(
        "--to", metavar="CLIENTS", help="claude-code, codex, gemini-cli, opencode; with commas"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="show how exports stand")
    what.add_argument("--sync", action="store_true", help="write again what has changed here")
    what.add_argument("--remove", action="store_true", help="take exports back")
    parser.add_argument("--link", action="store_true", help="link the directory, do not copy it")
    parser.add_argument("--project", action="store_true", help="into the project, not into home")
    parser.add_argument(
        "--own", action="store_true", help="into the client's own folder, not a shared one"
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    parser.add_argument("--diff", action="store_true", help="show differences, change nothing")
    parser.add_argument("--force", action="store_true", help="also over what was changed there")
    add_common(parser)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Export skills; 1 when something stays as it should not be."""
    _check(options)
    request = ExportRequest(
        references=tuple(options.skills),
        clients=tuple(filter(None, (name.strip() for name in (options.to or "").split(",")))),
        everything=options.all,
        form=Form.LINK if options.link else Form.COPY,
        where="project" if options.project else "user",
        own=options.own,
        force=options.force,
        dry_run=options.dry_run or options.diff,
    )
    with house_of(options) as house:
        source = export_source(house)
        exporter = Exporter(source)
        if options.status:
            found = exporter.status()
        elif options.sync:
            found = exporter.sync(request)
        elif options.remove:
            found = exporter.remove(request)
        else:
            found = export(source, request)
        home = str(house.config.places.home)
    if options.json:
        terminal.json([_value(item, with_difference=options.diff) for item in found])
    else:
        _print(found, home, terminal, with_difference=options.diff)
    if options.remove:
        return 0 if all(item.action is not Action.NONE for item in found) else 1
    return 0 if all(item.is_well for item in found) else 1


def _check(options: argparse.Namespace) -> None:
    chosen = bool(options.skills) != options.all
    if options.status or options.sync:
        if options.skills or options.all or options.to or options.link or options.project:
            raise UsageError("--status and --sync are about everything that was exported")
    elif not chosen:
        raise UsageError("expected skills or --all; see `skillhouse export --help`")
    elif not options.remove and not options.to:
        raise UsageError("expected --to with clients; see `skillhouse export --help`")


def _print(found: Sequence[Item], home: str, terminal: Terminal, *, with_difference: bool) -> None:
    for item in found:
        clients = ", ".join(item.clients)
        place = f"  {_short(item.target, home)}" if item.target else ""
        word = _WORDS.get(item.action, (item.state.value,) * 2)[0 if item.done else 1]
        link = ", a link" if item.form is Form.LINK else ""
        terminal.line(f"{shown(item.skill)}: {word}{place}  ({shown(clients)}{link})")
        if item.reason:
            _indented(item.reason, home, terminal)
        for warning in item.warnings:
            _indented(f"note: {warning}", home, terminal)
        if item.also and item.action in (Action.WRITE, Action.REPLACE):
            _indented(f"also read by {', '.join(item.also)}", home, terminal)
        if with_difference:
            for line in _lines(item):
                terminal.line(f"  {shown(line)}")
    if not found:
        terminal.line("nothing is exported")
    elif any(item.action is not Action.NONE and not item.done for item in found):
        terminal.note(f"nothing was changed; {counted(len(found), 'place')} looked at")


def _indented(text: str, home: str, terminal: Terminal) -> None:
    for line in terminal.wrapped(one_line(_short(text, home)), 4):
        terminal.line(f"    {line}")


def _short(text: str, home: str) -> str:
    return shown(text.replace(f"{home}/", "~/")) if len(home) > 1 else shown(text)


def _lines(item: Item) -> list[str]:
    if item.state not in _DIFFERING or not item.target:
        return []
    return difference(Path(item.target), Path(item.source))


def _value(item: Item, *, with_difference: bool) -> dict[str, Any]:
    value: dict[str, Any] = {
        "skill": item.skill,
        "source": item.source,
        "clients": list(item.clients),
        "target": item.target,
        "form": item.form.value,
        "state": item.state.value,
        "action": item.action.value,
        "done": item.done,
        "reason": item.reason,
        "warnings": list(item.warnings),
        "also": list(item.also),
    }
    if with_difference:
        value["difference"] = _lines(item)
    return value


VERBS = {"export": Verb(_EXAMPLES, _configure, _run)}
