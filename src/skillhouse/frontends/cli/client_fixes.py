"""`doctor --fix`: each mend as a difference, made when the person confirms."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from skillhouse.clients import apply_fix, proposed_fixes
from skillhouse.floor import isolated
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import confirmed, need_terminal
from skillhouse.frontends.presentation.fix_values import fix_value
from skillhouse.frontends.presentation.text import counted, shown

if TYPE_CHECKING:
    from skillhouse.clients import Discard, Fix, Lens
    from skillhouse.frontends.cli.terminal import Terminal


def fix_files(lens: Lens, terminal: Terminal, *, discard: Discard, as_json: bool) -> int:
    """Show each change and make it when the person confirms; 1 when one was not made."""
    fixes = proposed_fixes(lens)
    if as_json:
        # To look only: a program cannot confirm.
        terminal.json_list("fixes", [fix_value(lens, fix) for fix in fixes])
        return 0
    if not fixes:
        terminal.note("nothing that can be mended without you; `skillhouse doctor` has the rest")
        return 0
    refuse_agents("doctor --fix")
    instead = "`doctor --fix --json` shows the changes"
    need_terminal(instead)
    made = 0
    for fix in fixes:
        terminal.line()
        for line in fix.difference:
            terminal.line(shown(line))
        question = f"Make this change ({', '.join(fix.codes)})?"
        if confirmed(question, terminal, instead=instead):
            made += _applied(lens, fix, discard, terminal)
    terminal.note(f"{made} of {counted(len(fixes), 'change')} made")
    return 0 if made == len(fixes) else 1


def _applied(lens: Lens, fix: Fix, discard: Discard, terminal: Terminal) -> bool:
    with isolated() as failed:
        apply_fix(fix, discard=discard)
    for error in failed:
        terminal.error(f"not changed: {lens.short(fix.path)}: {shown(str(error))}")
        return False
    if fix.discarded:
        undo = f"skillhouse delete --undo {shlex.quote(fix.discarded)}"
        terminal.note(
            f"to put it back{', after the link is removed' if fix.target else ''}: {undo}"
        )
    return True
