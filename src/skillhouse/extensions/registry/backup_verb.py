"""`skillhouse registry backup` and `restore`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.extensions.registry.hosting.backup import BackupFacts, back_up, restore
from skillhouse.frontends.cli.options import add_common, natural
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal


class BackupAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A backup that was made or brought back."""

    registry: str
    created_at: str
    last_change: Count
    archives: Count
    former: str = ""
    """Where the rows are that a restore replaced."""


def configure_backup(verbs: Any) -> None:
    made = verbs.add_parser("backup", help="copy the registry; it may be served meanwhile")
    made.add_argument("target", metavar="FILE.tar|DIR", help="a new file, or a directory for it")
    back = verbs.add_parser("restore", help="bring a backup back, while no server runs")
    back.add_argument("source", metavar="FILE.tar|DIR", help="as `backup` made it")
    back.add_argument("--seen", type=natural, default=0, metavar="N",
                      help="the last change that a client or mirror saw")  # fmt: skip
    back.add_argument("--go-back", action="store_true",
                      help="though clients saw later changes than it has")  # fmt: skip
    for one in (made, back):
        one.add_argument("--directory", metavar="DIR", help="the registry's (in the user's state)")
        add_common(one)


def run_backup(directory: Path, options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what `backup` or `restore` says."""
    start = Path(options.start or ".")
    now = datetime.now(UTC)
    if options.verb == "backup":
        facts = back_up(directory, (start / options.target).absolute(), now)
        _print(facts, "", "is in the backup", options, terminal)
        return 0
    facts, former = restore(
        (start / options.source).absolute(),
        directory,
        now,
        seen=options.seen,
        go_back=options.go_back,
    )
    _print(facts, former, "is restored", options, terminal)
    if former and not options.json:
        terminal.note(f"the rows of before are in {shown(former)}")
    return 0


def _print(
    facts: BackupFacts, former: str, done: str, options: argparse.Namespace, terminal: Terminal
) -> None:
    text = (
        f"`{shown(facts.registry)}` {done}: {counted(facts.archives, 'archive')}, up to change "
        f"{facts.last_change}"
    )
    value = copied(BackupAnswer, facts, former=former)
    terminal.answer(value, text, as_json=options.json)
