"""`skillhouse mcp install`, `uninstall` and `status`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from skillhouse.clients import ClientConfigs, Standing
from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.presentation.text import one_line, shown

if TYPE_CHECKING:
    from skillhouse.clients import Change
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import Skillhouse

FIX = "`skillhouse mcp status --fix` lets unsafe entries start this program safely"


def configured(options: argparse.Namespace, house: Skillhouse, terminal: Terminal) -> int:
    """Do what `options.action` says; 1 when a client does not have the server as it should."""
    configs = ClientConfigs(
        places=house.config.places,
        project=house.services.project,
        state_directory=house.config.state_directory,
        audit=house.audit_log,
    )
    if options.action == "status":
        if options.clients:
            raise UsageError("expected `mcp status` alone: it is about every client")
        found = configs.status(name=options.name, fix=options.fix, dry_run=options.dry_run)
    elif not options.clients:
        raise UsageError(f"expected a client, as in `skillhouse mcp {options.action} codex`")
    elif options.fix:
        raise UsageError("expected `mcp status --fix`: `mcp install` mends its client's entry too")
    else:
        found = tuple(_of_client(configs, options, client) for client in options.clients)
    if options.json:
        terminal.json([_value(change) for change in found])
    elif options.action == "status":
        _print_status(found, terminal)
    else:
        for change in found:
            _print(change, terminal)
    if options.action == "status":
        return 1 if any(change.fault and not change.done for change in found) else 0
    well = {Standing.INSTALLED, Standing.BY_HAND} if options.action == "install" else set()
    is_well = [bool(c.action) or (c.standing in well and not c.fault) for c in found]
    return 0 if all(is_well) else 1


def _of_client(configs: ClientConfigs, options: argparse.Namespace, client: str) -> Change:
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
    return configs.install(client, arguments=arguments, **common)


def _print(change: Change, terminal: Terminal) -> None:
    terminal.line(f"{shown(change.client)}: {_word(change)}  {shown(change.file)}")
    if change.fault:
        for line in terminal.wrapped(one_line(f"unsafe: {change.fault}"), 4):
            terminal.line(f"    {line}")
    if change.reason:
        for line in terminal.wrapped(one_line(change.reason), 4):
            terminal.line(f"    {line}")
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
        for line in terminal.wrapped(one_line(f"unsafe: {change.fault}"), 4):
            terminal.line(f"    {line}")


def _word(change: Change) -> str:
    if not change.action:
        return change.standing.value
    done = "fixed" if change.action == "fix" else f"{change.action}ed"
    return done if change.done else f"would be {done}"


def _print_status(found: tuple[Change, ...], terminal: Terminal) -> None:
    first: Change | None = None
    for change in found:
        if change.action:
            _print(change, terminal)
            continue
        reason = f"  {one_line(change.reason)}" if change.reason else ""
        is_other = first is not None and (first.client, first.file) == (change.client, change.file)
        name = f"  as `{shown(change.name)}`" if is_other else ""
        text = f"{change.standing.value}{name}  {shown(change.file)}{reason}"
        terminal.rows([(shown(change.client), text)])
        _print_fault(change, terminal)
        first = change
    if any(change.fault and not change.action for change in found):
        terminal.note(FIX)


def _value(change: Change) -> dict[str, Any]:
    value = dataclasses.asdict(change)
    return {**value, "standing": change.standing.value, "difference": list(change.difference)}
