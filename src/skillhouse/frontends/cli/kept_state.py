"""The verb `state`: where trust, approvals and the rest are kept, and moving them to a server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse import extension, store
from skillhouse.answers.state import StateAnswer, StateCopyAnswer
from skillhouse.floor import ConfigError, StateError
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, places_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.progress import ReadingProgress
from skillhouse.frontends.cli.question import confirmed
from skillhouse.house.config.config_files import load_config
from skillhouse.house.config.state_settings import check_state_url, state_address
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house.config import Config

TO_FILE = "sqlite"
_EXAMPLES = """examples:
  skillhouse state show
  skillhouse state backup state-copy.sqlite3
  skillhouse state move --to postgresql://skillhouse@db.example/skillhouse
  skillhouse state move --to env:SKILLHOUSE_STATE_URL --yes
  skillhouse state move --to sqlite

The state is one file of this machine, or a PostgreSQL database that several machines share
(`[state] url`). A move copies every row, compares both sides, and only then ends the old one, which
refuses every use from there on. Stop `up`, `mcp` and `chat` before, and start them after you have
set `[state] url`; a process that still runs is refused. A backup is a file of SQLite in both cases:
put in the place of the state's file, `state move` takes it to a server.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = verbs.add_parser("show", help="say where the state is, and how much is in it")
    move = verbs.add_parser("move", help="move it to a server, or back into a file")
    move.add_argument(
        "--to",
        required=True,
        metavar="URL",
        help="postgresql://…, its place (env:NAME, file:PATH), or `sqlite`",
    )
    move.add_argument("--yes", action="store_true", help="do not ask")
    backup = verbs.add_parser("backup", help="write a copy into a new file")
    backup.add_argument("file", help="a file that is not there yet")
    for one in (show, move, backup):
        add_common(one)


def _state(options: argparse.Namespace, terminal: Terminal) -> int:
    config = load_config(places_of(options))
    path = config.state_directory / store.STATE_FILE
    if options.action == "show":
        return _show(config, path, options, terminal)
    refuse_agents(f"state {options.action}")
    progress = ReadingProgress(terminal, what="copying rows")
    try:
        if options.action == "backup":
            return _backup(config, path, options, terminal, progress)
        return _move(config, path, options, terminal, progress)
    finally:
        progress.end()


def _show(config: Config, path: Path, options: argparse.Namespace, terminal: Terminal) -> int:
    if config.state.url:
        found = _module("state_move").look_at_server(path, _address(config))
        answer = StateAnswer(
            place="server",
            file=str(path),
            server=found.place,
            server_version=found.server,
            version=found.version,
            rows=found.rows,
            commits=found.commits,
            listens=_module("state_watch").hears(_listen_address(config)),
        )
        lines = [
            f"on a server: {found.place} (PostgreSQL {found.server})",
            f"version {found.version}, {counted(found.rows, 'row')}, "
            f"{counted(found.commits, 'change')}"
            if found.version
            else "no state there yet; the first use makes one",
        ]
        if found.standing not in ("", "whole"):
            lines.append(f"it is not in use: {found.standing}")
        if answer.listens != "yes":
            lines.append(f"notices do not arrive: {answer.listens}")
    else:
        exists = path.exists()
        counts = store.table_counts(path) if exists else {}
        answer = StateAnswer(
            place="file" if exists else "none",
            file=str(path),
            server="",
            server_version="",
            version=store.STATE.version if exists else 0,
            rows=sum(counts.values()),
            commits=0,
            listens="",
        )
        lines = [
            f"in a file: {path}" if exists else f"no state yet; the first use makes {path}",
            *([f"version {answer.version}, {counted(answer.rows, 'row')}"] if exists else []),
        ]
    if options.json:
        terminal.json(answer)
    else:
        for line in lines:
            terminal.line_rows(shown(line))
    return 0


def _backup(
    config: Config, path: Path, options: argparse.Namespace, terminal: Terminal, progress: Any
) -> int:
    target = Path(options.file).absolute()
    if target.exists() or target.is_symlink():
        raise UsageError(f"expected a file that is not there yet, got `{options.file}`")
    if config.state.url:
        found = _module("state_move").copy_to_file(path, _address(config), target, progress)
        tables, rows = found.tables, found.rows
    else:
        if not path.exists():
            raise StateError("there is no state to copy", path)
        counts = store.copy_file(path, target, progress)
        tables, rows = len(counts), sum(counts.values())
    answer = StateCopyAnswer(place="file", file=str(target), tables=tables, rows=rows)
    text = (
        f"copied: {counted(rows, 'row')} of {counted(tables, 'table')} into "
        f"`{shown(options.file)}`; it holds secrets"
    )
    terminal.answer(answer, text, as_json=options.json)
    return 0


def _move(
    config: Config, path: Path, options: argparse.Namespace, terminal: Terminal, progress: Any
) -> int:
    is_back = options.to == TO_FILE
    if is_back:
        if not config.state.url:
            raise UsageError("the state is in a file: no `[state] url` is set")
        address = _address(config)
        question = "Move the state of the server into a file of this machine?"
    else:
        if config.state.url:
            raise UsageError("the state is on a server already: `skillhouse state show`")
        try:
            check_state_url(options.to, key="--to")
            address = state_address(options.to, config.places.environment, key="--to")
        except ConfigError as error:
            raise UsageError(error.message) from error
        if not path.exists():
            raise StateError(
                "there is no state to move; set `[state] url`, and the first use makes one there",
                path,
            )
        question = "Move the state to the server? Its file on this machine is empty then."
    if not options.yes and not confirmed(question, terminal):
        terminal.note("nothing was moved")
        return 1
    module = _module("state_move")
    found = (module.move_to_file if is_back else module.move_to_server)(path, address, progress)
    store.forget_state(path)
    answer = StateCopyAnswer(
        place="file" if is_back else "server", file=str(path), tables=found.tables, rows=found.rows
    )
    where = "into the file" if is_back else "to the server"
    terminal.answer(
        answer,
        f"moved {where}: {counted(found.rows, 'row')} of {counted(found.tables, 'table')}, "
        "compared on both sides",
        as_json=options.json,
    )
    if is_back:
        terminal.note("now remove `[state]` from the configuration")
    else:
        terminal.note(f'now set `url = "{shown(options.to)}"` below `[state]`')
    return 0


def _module(name: str) -> Any:
    return extension.own_module("postgres", name)


def _address(config: Config) -> str:
    return state_address(config.state.url, config.places.environment, key="url")


def _listen_address(config: Config) -> str:
    if not config.state.listen_url:
        return _address(config)
    return state_address(config.state.listen_url, config.places.environment, key="listen_url")


VERBS = {"state": Verb(_EXAMPLES, _configure, _state, without="show")}
