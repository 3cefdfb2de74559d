"""Asks the person at the terminal whether a call may happen."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import anyio

from skillhouse.approval import OWNER, Answer, Reply, allowed_answers
from skillhouse.frontends.cli.person import NotAPersonError, coding_agent
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.text import one_line, question_lines

if TYPE_CHECKING:
    from skillhouse.approval import ApprovalRequest

TERMINAL = Path("/dev/tty")
"""The terminal of this process, also where another program holds its stdin and stdout."""
LINE_MAX = 1_000
"""Bytes of an answer; the line discipline gives no more than 4,096 at once."""

_ANSWERS = {
    "y": Answer.ONCE,
    "yes": Answer.ONCE,
    "ok": Answer.ONCE,
    "confirm": Answer.ONCE,
    "approve": Answer.ONCE,
    "s": Answer.SESSION,
    "session": Answer.SESSION,
    "p": Answer.PROJECT,
    "project": Answer.PROJECT,
    "a": Answer.ALWAYS,
    "always": Answer.ALWAYS,
}
"""The words that approve (seeds.md section 1.1); any other denies."""


class TerminalChannel:
    """Asks on the process's terminal; without one, `ask` returns None."""

    def __init__(
        self,
        stdin: TextIO,
        terminal: Terminal,
        *,
        device: Callable[[], TextIO] | None = None,
    ) -> None:
        """Take stdin and where talk goes; `device` opens the terminal where stdin is none."""
        self._stdin = stdin
        self._terminal = terminal
        self._device = device or _device

    async def ask(self, request: ApprovalRequest) -> Reply | None:
        """Show the exact call and read one answer; silence and any other word deny."""
        if coding_agent(os.environ):
            # What types there may be the program that waits for the answer.
            return None
        if self._stdin.isatty():
            return await self._asked(request, self._stdin, self._terminal)
        try:
            file = self._device()
        except OSError:
            return None
        with file:
            # What is asked goes to the terminal too: stderr may be another program's.
            return await self._asked(request, file, Terminal(file, file, os.environ))

    async def _asked(
        self, request: ApprovalRequest, file: TextIO, terminal: Terminal
    ) -> Reply | None:
        if request.out_of_band_only:
            terminal.note(f"\n{one_line(request.title)}")
            terminal.note("  this is not decided here: decide it on the page of `skillhouse up`")
            return None
        show_request(request, terminal.note)
        choices = allowed_answers(request)
        with suppress(termios.error):
            # What was typed before the question was there is no answer to it.
            termios.tcflush(file.fileno(), termios.TCIFLUSH)
        words = "y once, s this session, p this project, a always, n no"
        terminal.prompt(f"Allow? ({words if Answer.ALWAYS in choices else 'y once, n no'}) ")
        # A thread that waits for the line would keep the process alive after Ctrl-C.
        await anyio.wait_readable(file)
        text = _line(file)
        word, _, message = text.strip().partition(" ")
        answer = _ANSWERS.get(text.strip().lower(), Answer.NO)
        if answer is not Answer.NO and answer not in choices:
            terminal.note(f"{answer.value} is not possible here; taken as once")
            answer = Answer.ONCE
        is_no = answer is Answer.NO and word.lower() in ("n", "no")
        return Reply(answer=answer, by=OWNER, channel="terminal", message=message if is_no else "")


def show_request(request: ApprovalRequest, note: Callable[[str], None]) -> None:
    """Show everything a person should see of a question; nothing in it can act on a terminal."""
    title, *lines = question_lines(request)
    note(f"\n{title}")
    for line in lines:
        note(line)
    if request.always:
        note(f"  a standing approval would allow: {one_line(', '.join(request.always))}")


def typed(word: str, terminal: Terminal) -> bool:
    """Whether the person at the terminal types a word.

    Raises:
        NotAPersonError: stdin or stderr is no terminal.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotAPersonError(
            f"expected a person at a terminal to type `{word}`, and stdin or stderr is none: "
            "nothing was changed"
        )
    with suppress(termios.error):
        # What was typed before the question was there is no answer to it.
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    terminal.prompt(f"Type `{word}` to go on: ")
    return sys.stdin.readline().strip().lower() == word


def _line(file: TextIO) -> str:
    """Return the one line that is there."""
    with suppress(OSError):
        return os.read(file.fileno(), LINE_MAX).decode("utf-8", "replace")
    return ""


def _device() -> TextIO:
    """Open the terminal, for both ways.

    Raises:
        OSError: this process has none, or runs in its background and would be stopped.
    """
    handle = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    try:
        if os.tcgetpgrp(handle) != os.getpgrp():
            raise OSError("in the background of its terminal")
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace")
