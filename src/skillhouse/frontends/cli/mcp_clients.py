"""What `mcp install` asks about a client's own questions, and `mcp status` says of its own list."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.clients import Change, ClientConfigs, Standing, own_list_of, unattended_of
from skillhouse.floor.structs import replace
from skillhouse.frontends.cli.question import can_ask, confirmed
from skillhouse.presentation.doctor_values import listed_twice
from skillhouse.presentation.text import counted, shown
from skillhouse.tools import BUILTIN_TOOLS

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

ALONE = """\
{clients} can call our tools without asking you. Then skillhouse decides alone: your rules,
questions, sandbox and log are there for each call, as they are in any case. Unattended work needs
it. Another server that takes the name `{name}` in the client is called unasked as well."""
ALONE_LATER = (
    "{clients}: asks about our tools too, and refuses them where no person is; `--decide-alone` "
    "lets skillhouse decide alone, as unattended work needs"
)


def decided_alone(
    options: argparse.Namespace, configs: ClientConfigs, terminal: Terminal
) -> dict[str, bool]:
    """Return which clients are to call our tools unasked, or not: of the flag, or of one answer.

    A client that is not in it stays as it is. Without a person to ask, a new entry is not so.
    """
    if options.action != "install":
        return {}
    where = "project" if options.project else "user"
    if options.decide_alone is not None:
        return dict.fromkeys(options.clients, bool(options.decide_alone))
    new = []
    for client in dict.fromkeys(options.clients):
        rule = unattended_of(client)
        is_there = configs.arguments(client, where=where, name=options.name)
        if rule is not None and rule.is_written and where == "user" and not is_there:
            new.append(client)
    if not new:
        return {}
    names = ", ".join(map(shown, new))
    if options.dry_run or options.json or not can_ask():
        terminal.note(ALONE_LATER.format(clients=names))
        return dict.fromkeys(new, False)
    terminal.note(ALONE.format(clients=names, name=shown(options.name)))
    question = "let skillhouse decide alone? no is usual"
    is_agreed = confirmed(question, terminal, instead="use --no-decide-alone")
    return dict.fromkeys(new, is_agreed)


def print_start(change: Change, terminal: Terminal) -> None:
    """Say what unattended work needs that no file of the client can say."""
    rule = unattended_of(change.client)
    is_there = change.action == "install" or change.standing is Standing.INSTALLED
    if rule is None or not rule.start or not is_there:
        return
    start = rule.start.replace("{name}", shown(change.name))
    terminal.note(f"unattended, {change.client} also needs: {start}")


_OTHER_TOOLS = ",".join(one for one in BUILTIN_TOOLS if not one.startswith("memory"))
_OURS = frozenset((Standing.INSTALLED, Standing.OUTDATED, Standing.CHANGED, Standing.BY_HAND))


def with_own_lists(
    found: tuple[Change, ...], configs: ClientConfigs, house: Skillhouse
) -> tuple[Change, ...]:
    """Return the states with how many skills each client lists by itself beside our list."""
    view, counts, changes = house.view(), dict[str, int](), []
    for change in found:
        if change.standing in _OURS and _lists_skills(change, configs, house):
            if change.client not in counts:
                counts[change.client] = listed_twice(house.config.places, view, change.client)
            change = replace(change, listed_twice=counts[change.client])
        changes.append(change)
    return tuple(changes)


def _lists_skills(change: Change, configs: ClientConfigs, house: Skillhouse) -> bool:
    """Whether the tools of an entry hold our list of skills."""
    is_project = Path(change.file).is_relative_to(house.project)
    where = "project" if is_project else "user"
    words = configs.arguments(change.client, where=where, name=change.name)
    offered = named_tools(words)
    return offered is None or not {"all", "skills", "skill", "search_skills"}.isdisjoint(offered)


def named_tools(words: Sequence[str]) -> list[str] | None:
    """Return what `--tools` has among the words after `mcp`; None where it is not there.

    >>> named_tools(["--tools", "skill,read"]), named_tools(["--agent", "a"])
    (['skill', 'read'], None)
    """
    if "--tools" not in words[:-1]:
        return None
    return words[words.index("--tools") + 1].split(",")


def print_twice(change: Change, terminal: Terminal) -> None:
    client, name = shown(change.client), shown(change.name)
    named = "" if name == "skills" else f" --name {name}"
    own = own_list_of(change.client)
    other = f", or turn its own off: {own}" if own else ""
    terminal.indented(
        f"{client} reads these folders itself: {counted(change.listed_twice, 'skill')} "
        f"{'appears' if change.listed_twice == 1 else 'appear'} twice, and rules about skills do "
        "not reach its own list (`hooks install` does). For one list, leave ours out: "
        f"`skillhouse mcp install {client}{named} --tools {_OTHER_TOOLS}`{other}",
        4,
    )
