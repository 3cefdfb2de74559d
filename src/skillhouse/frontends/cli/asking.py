"""Asks the person at the terminal whether a call may happen."""

from __future__ import annotations

from typing import TextIO

import anyio

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.text import one_line, shown

FACT_LINES = 30
"""Lines of one fact that are shown; more is said to be there."""

_ANSWERS = {"y": Answer.ONCE, "yes": Answer.ONCE, "a": Answer.ALWAYS, "always": Answer.ALWAYS}


class TerminalChannel:
    """Asks on a terminal; where stdin is none, every answer is no."""

    def __init__(self, stdin: TextIO, terminal: Terminal) -> None:
        self._stdin = stdin
        self._terminal = terminal

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Show the exact call and read one answer; only y and a are a yes."""
        if not self._stdin.isatty():
            return Answer.NO
        self._show(request)
        # A thread that waits for the line would keep the process alive after Ctrl-C.
        await anyio.wait_readable(self._stdin)
        text = self._stdin.readline()
        answer = _ANSWERS.get(text.strip().lower(), Answer.NO)
        if answer is Answer.ALWAYS and not request.always:
            self._terminal.note("an always is not possible here; taken as once")
            return Answer.ONCE
        return answer

    def _show(self, request: ApprovalRequest) -> None:
        note = self._terminal.note
        note(f"\n{one_line(request.title)}")
        for label, value in request.facts:
            first, *rest = shown_lines(value)
            note(f"  {shown(label)}: {first}")
            for line in rest[:FACT_LINES]:
                note(f"    {line}")
            if len(rest) > FACT_LINES:
                note(f"    … {len(rest) - FACT_LINES} more lines")
        for reason in request.reasons:
            note(f"  why: {one_line(reason)}")
        if request.always:
            note(f"  always would allow: {one_line(', '.join(request.always))}")
        choices = "y once, a always, n no" if request.always else "y once, n no"
        self._terminal.prompt(f"Allow? ({choices}) ")


def shown_lines(text: str) -> list[str]:
    """Return the lines of an untrusted text, safe to show."""
    return [shown(line) for line in text.split("\n")]
