"""`doctor --fix`: each fix as a difference, made when the person confirms."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillhouse.clients import apply_fix, proposed_fixes
from skillhouse.floor import isolated
from skillhouse.frontends.answers.client_changes import fix_answer, fix_groups
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import all_or_each, confirmed, need_terminal
from skillhouse.frontends.presentation.text import counted, shown

if TYPE_CHECKING:
    from skillhouse.clients import ClientReport, Discard, Fix
    from skillhouse.frontends.cli.terminal import Terminal


def fix_files(report: ClientReport, terminal: Terminal, *, discard: Discard, as_json: bool) -> int:
    """Show each change and make it when the person confirms; 1 when one was not made."""
    fixes = proposed_fixes(report)
    if as_json:
        # To look only: a program cannot confirm.
        terminal.json_list("fixes", [fix_answer(report, fix) for fix in fixes])
        return 0
    if not fixes:
        terminal.note("nothing that can be fixed without you; `skillhouse doctor` has the rest")
        return 0
    refuse_agents("doctor --fix")
    instead = "`doctor --fix --json` shows the changes"
    need_terminal(instead)
    made = 0
    for group in fix_groups(fixes):
        answer = "each"
        if len(group) > 1:
            _show_all(report, group, terminal)
            count = counted(len(group), "change")
            question = f"Make these {count} ({', '.join(group[0].codes)})?"
            answer = all_or_each(question, terminal, instead=instead)
        for fix in group if answer != "none" else ():
            if answer == "each":
                terminal.line()
                for line in fix.difference:
                    terminal.line(shown(line))
                question = f"Make this change ({', '.join(fix.codes)})?"
                if not confirmed(question, terminal, instead=instead):
                    continue
            made += _applied(report, fix, discard, terminal)
    terminal.note(f"{made} of {counted(len(fixes), 'change')} made")
    return 0 if made == len(fixes) else 1


def _show_all(report: ClientReport, group: Sequence[Fix], terminal: Terminal) -> None:
    """Print each change of a kind, without the lines of a file that stay as they are."""
    for fix in group:
        terminal.line()
        if not fix.after:
            for line in fix.difference:
                terminal.line(shown(line))
            continue
        terminal.line(shown(report.short(fix.path)))
        # INVARIANT: each line that changes is shown; the first two name the file.
        for line in fix.difference[2:]:
            if line.startswith(("+", "-", "…")):
                terminal.line(f"  {shown(line)}")


def _applied(report: ClientReport, fix: Fix, discard: Discard, terminal: Terminal) -> bool:
    with isolated() as failed:
        apply_fix(fix, discard=discard)
    for error in failed:
        terminal.error(f"not changed: {report.short(fix.path)}: {shown(str(error))}")
        return False
    if fix.discarded:
        undo = f"skillhouse delete --undo {shlex.quote(fix.discarded)}"
        terminal.note(
            f"to put it back{', after the link is removed' if fix.target else ''}: {undo}"
        )
    return True
