"""The verb and the actions that write files of other clients: `export`, and `mcp install`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from skillhouse.answers.client_changes import difference_lines, export_answer
from skillhouse.clients import (
    Action,
    Change,
    ClientConfigs,
    Exporter,
    ExportRequest,
    Form,
    Standing,
    export,
)
from skillhouse.floor import SkillhouseError, isolated
from skillhouse.frontends.cli.hooks import entries_of, said_change, wanted_hooks
from skillhouse.frontends.cli.mcp_clients import (
    decided_alone,
    named_tools,
    print_start,
    print_twice,
    with_own_lists,
)
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.question import ask, can_ask
from skillhouse.house import export_source
from skillhouse.house.config.carried_variables import deciding_variables, refuse_lost_address
from skillhouse.presentation.short_paths import some_of
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.clients import Item
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

_EXAMPLES = """examples:
  skillhouse export pdf --to claude-code,codex,cursor
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


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skills", nargs="*", metavar="SKILL", help="ids, names, directory names")
    parser.add_argument("--all", action="store_true", help="every skill that an agent sees here")
    parser.add_argument(
        "--to", metavar="CLIENTS", help="their names, with commas; `profiles list` has them"
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
    # What only looks leaves nothing, either.
    options.dry_run = request.dry_run
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
        values = [export_answer(item, with_difference=options.diff) for item in found]
        terminal.json_list("exports", values)
    else:
        _print_items(found, home, terminal, with_difference=options.diff)
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


def _print_items(
    found: Sequence[Item], home: str, terminal: Terminal, *, with_difference: bool
) -> None:
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
            _indented(f"also read by {some_of(item.also)}", home, terminal)
        if with_difference:
            for line in difference_lines(item):
                terminal.line(f"  {shown(line)}")
    if not found:
        terminal.line("nothing is exported")
    elif any(item.action is not Action.NONE and not item.done for item in found):
        terminal.note(f"nothing was changed; {counted(len(found), 'place')} looked at")


def _indented(text: str, home: str, terminal: Terminal) -> None:
    terminal.indented(one_line(_short(text, home)), 4)


def _short(text: str, home: str) -> str:
    return shown(text.replace(f"{home}/", "~/")) if len(home) > 1 else shown(text)


FIX = "`skillhouse mcp status --fix` lets unsafe entries start this program safely"


def _refuse_lost_variables(house: Skillhouse, terminal: Terminal) -> None:
    """Raise ConfigError where a client would start us without the state's address, and note what
    else of this terminal it may not have."""
    deciding = deciding_variables(house.config.places.environment)
    # Without a password it is said, and can be set in the file as it is. A client that lacks it is
    # refused, not lax: this process has left a note in the state directory where the state is.
    refuse_lost_address(house.config, deciding, what="a server that a client starts")
    if names := ", ".join(deciding):
        user_file = house.config.places.user_file
        terminal.note(
            f"a client starts skillhouse with its own environment, which may lack {names}: set "
            f"that in `{user_file}`"
        )


def configured(options: argparse.Namespace, house: Skillhouse, terminal: Terminal) -> int:
    """Do what `options.action` says; 1 when a client does not have the server as it should."""
    configs = ClientConfigs(
        places=house.config.places,
        project=house.project,
        state_directory=house.config.state_directory,
        audit=house.audit_log,
    )
    hooked: list[str] = []
    _check_usage(options)
    if options.action == "status":
        found = configs.status(name=options.name, fix=options.fix, dry_run=options.dry_run)
        found = with_own_lists(found, configs, house)
    else:
        if options.action == "install":
            _refuse_lost_variables(house, terminal)
        # Each is asked about before the first is written.
        chosen = _Tools(options, configs, terminal).chosen()
        alone = decided_alone(options, configs, terminal)
        hooked = wanted_hooks(options, house, terminal) if options.action == "install" else []
        found = tuple(
            _isolated(
                options,
                client,
                partial(_of_client, configs, options, client, words, alone=alone.get(client)),
            )
            for client, words in zip(options.clients, chosen, strict=True)
        )
    if options.json:
        terminal.json_list("clients", found)
    elif options.action == "status":
        _print_status(found, terminal)
    else:
        for change in found:
            for one in (change, *change.also):
                _print_change(one, terminal)
            if options.action == "install":
                print_start(change, terminal)
    if hooked and not _hooked(options, house, hooked, terminal):
        return 1
    return 0 if _is_well(options.action, found) else 1


def _check_usage(options: argparse.Namespace) -> None:
    if options.hooks is not None and (options.action != "install" or options.json):
        raise UsageError("expected --hooks and --no-hooks with `mcp install`, and without --json")
    if options.decide_alone is not None and options.action != "install":
        raise UsageError("expected --decide-alone and --no-decide-alone with `mcp install`")
    if options.action == "status":
        if options.clients:
            raise UsageError("expected `mcp status` alone: it is about every client")
    elif not options.clients:
        raise UsageError(f"expected a client, as in `skillhouse mcp {options.action} codex`")
    elif options.fix:
        raise UsageError("expected `mcp status --fix`: `mcp install` fixes its client's entry too")


def _is_well(action: str, found: Sequence[Change]) -> bool:
    """Whether each client has the server as it should after an action."""
    if action == "status":
        return not any(change.fault and not change.done for change in found)
    well = {Standing.INSTALLED, Standing.BY_HAND} if action == "install" else set()
    return all(
        bool(c.action) or (c.standing in well and not c.fault)
        for one in found
        for c in (one, *(also for also in one.also if also.standing is Standing.UNREADABLE))
    )


def _hooked(
    options: argparse.Namespace, house: Skillhouse, clients: Sequence[str], terminal: Terminal
) -> bool:
    """Install hooks for clients; whether all are there."""
    entries, where = entries_of(house), "project" if options.project else "user"
    codes = []
    for client in clients:
        planned = {"where": where, "mode": "enforce", "dry_run": options.dry_run}
        codes.append(said_change(entries.install(client, **planned), options, terminal))
    return not any(codes)


ALL_TOOLS = ("all",)
TOOLS_QUESTION = """\
which tools should the client get?
  skills  those that find, load and read skills. For all else it has its own shell and file tools,
          which skillhouse neither guards nor records.
  all     also read, write, edit, exec, fetch and the others, under your rules. The client's own
          shell stays beside them: skillhouse guards only what goes through skillhouse.
tools [all]: """
_TOOLS_FLAGS = "`--tools skills` or `--tools all`"
_MEANS: dict[tuple[str, ...], str] = {
    ("skills",): "tools: skills. What the client does with its own shell and files is not guarded",
    ALL_TOOLS: "tools: all. The client keeps its own shell beside them: skillhouse guards only "
    "what goes through skillhouse; `--tools skills` offers the tools about skills only",
}


class _Tools:
    """Which tools a client's entry names: of the flag, of the entry that is there, or asked for."""

    def __init__(
        self, options: argparse.Namespace, configs: ClientConfigs, terminal: Terminal
    ) -> None:
        self._options = options
        self._configs = configs
        self._terminal = terminal
        self._answer: tuple[str, ...] = ()

    def chosen(self) -> list[tuple[str, ...]]:
        """Return what follows `mcp` for each client; ConfigError before anything is asked."""
        for client in self._options.clients:
            self._there(client)
        return [self._of(client) for client in self._options.clients]

    def _there(self, client: str) -> tuple[str, ...]:
        where = "project" if self._options.project else "user"
        return self._configs.arguments(client, where=where, name=self._options.name)

    def _of(self, client: str) -> tuple[str, ...]:
        """Return what follows `mcp` in the entry that is to be installed."""
        if self._options.action != "install":
            return ()
        chosen: tuple[str, ...] = self._options.tools or self._kept(client) or self._asked()
        self._terminal.note(_MEANS.get(chosen or ALL_TOOLS, f"tools: {shown(', '.join(chosen))}"))
        return ("--tools", ",".join(chosen)) if chosen else ()

    def _kept(self, client: str) -> tuple[str, ...]:
        return tuple(filter(None, named_tools(self._there(client)) or ()))

    def _asked(self) -> tuple[str, ...]:
        if self._options.dry_run and not can_ask():
            # Nothing is changed: the entry is shown as it would be with all of them.
            return ()
        while not self._answer:
            answer = ask(TOOLS_QUESTION, self._terminal, instead=f"use {_TOOLS_FLAGS}")
            if answer is None:
                raise UsageError(f"nothing was chosen; use {_TOOLS_FLAGS}")
            if answer in ("skills", "all"):
                self._answer = (answer,)
            elif not answer:
                self._answer = ALL_TOOLS
        return self._answer


def _isolated(options: argparse.Namespace, client: str, make: Callable[[], Change]) -> Change:
    """Return the change of one client of many; a refusal of ours is about what was typed."""
    with isolated(passing=(UsageError, SkillhouseError)) as failed:
        return make()
    return Change(
        client=client,
        file="",
        name=options.name,
        standing=Standing.UNREADABLE,
        reason=str(failed[0]),
    )


def _of_client(
    configs: ClientConfigs,
    options: argparse.Namespace,
    client: str,
    tools: Sequence[str],
    *,
    alone: bool | None,
) -> Change:
    where = "project" if options.project else "user"
    common: dict[str, Any] = {
        "where": where,
        "name": options.name,
        "force": options.force,
        "dry_run": options.dry_run,
    }
    if options.action == "uninstall":
        return configs.uninstall(client, **common)
    arguments = ["mcp"]
    if options.agent != "default":
        arguments += ["--agent", options.agent]
    if options.user != "local":
        arguments += ["--user", options.user]
    arguments += tools
    return configs.install(client, arguments=arguments, alone=alone, **common)


def _print_change(change: Change, terminal: Terminal) -> None:
    terminal.line(f"{shown(change.client)}: {_change_word(change)}  {shown(change.file)}")
    _print_fault(change, terminal)
    if change.reason:
        terminal.indented(one_line(change.reason), 4)
    if change.fault and not change.action:
        terminal.note(FIX)
    if change.action and not change.done:
        for line in change.difference:
            terminal.line(f"  {shown(line)}")
    if not change.action and change.standing in (Standing.UNREADABLE, Standing.MISSING):
        for line in change.snippet.splitlines():
            terminal.line(f"  {shown(line)}")
    if change.backup:
        terminal.note(f"the file as it was before our first change: {shown(change.backup)}")
    if change.action and change.note:
        terminal.note(change.note)


def _print_fault(change: Change, terminal: Terminal) -> None:
    if change.fault:
        terminal.indented(one_line(f"unsafe: {change.fault}"), 4)


def _change_word(change: Change) -> str:
    if not change.action:
        return change.standing.value
    done = "fixed" if change.action == "fix" else f"{change.action}ed"
    return done if change.done else f"would be {done}"


def _print_status(found: tuple[Change, ...], terminal: Terminal) -> None:
    first: Change | None = None
    for change in found:
        if change.action:
            _print_change(change, terminal)
            continue
        reason = f"  {one_line(change.reason)}" if change.reason else ""
        is_other = first is not None and (first.client, first.file) == (change.client, change.file)
        name = f"  as `{shown(change.name)}`" if is_other else ""
        alone = ", decides alone" if change.decides_alone else ""
        text = f"{change.standing.value}{alone}{name}  {shown(change.file)}{reason}"
        terminal.rows([(shown(change.client), text)])
        _print_fault(change, terminal)
        if change.listed_twice:
            print_twice(change, terminal)
        first = change
    if any(change.fault and not change.action for change in found):
        terminal.note(FIX)


VERBS = {"export": Verb(_EXAMPLES, _configure, _run)}
