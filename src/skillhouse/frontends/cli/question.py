"""Asks the person at the terminal; a question that cannot be asked is refused, never skipped."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from skillhouse.frontends.cli.options import UsageError

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

YES = frozenset({"y", "yes"})
"""What agrees; every other line, and no line at all, does not."""


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; one that is closed is none."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def is_typed() -> bool:
    """Return whether what comes on stdin is typed by a person."""
    return is_terminal(sys.stdin)


def can_ask() -> bool:
    """Return whether a person reads what goes to stderr, and answers on stdin."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def need_terminal(instead: str, *, as_json: bool = False) -> None:
    """Refuse what would ask where no one can be asked.

    Args:
        instead: What to do there, as in `use --yes`.
        as_json: Whether what is asked about would be shown as JSON only, after the question.

    Raises:
        UsageError: stdin or stderr is no terminal, or nothing would be shown.
    """
    if not can_ask():
        raise UsageError(f"cannot ask without a terminal; {instead}")
    if as_json:
        raise UsageError(f"cannot ask with --json; {instead}")


def ask(question: str, terminal: Terminal, *, instead: str) -> str | None:
    """Return the line that a person types, without blanks around it; None if the input ends.

    Every question of a verb is asked here. `UsageError` as for `need_terminal`.
    """
    need_terminal(instead)
    terminal.prompt(question)
    try:
        line = sys.stdin.readline()
    except (OSError, UnicodeDecodeError):
        # The terminal went away, or what was typed is no text: no answer.
        line = ""
    if not line.endswith("\n"):
        # A line that was not sent off is no answer.
        terminal.note("")
        return None
    return line.strip()


def answered(question: str, terminal: Terminal, *, instead: str = "use --yes") -> bool | None:
    """Return whether a person says yes, None if the input ends; `UsageError` as above."""
    need_terminal(instead)
    forget_typed(sys.stdin)
    answer = ask(f"{question} (y, n) ", terminal, instead=instead)
    return None if answer is None else answer.lower() in YES


def confirmed(question: str, terminal: Terminal, *, instead: str = "use --yes") -> bool:
    """Return whether a person says yes; `UsageError` as for `need_terminal`."""
    return answered(question, terminal, instead=instead) is True


def all_or_each(question: str, terminal: Terminal, *, instead: str) -> str:
    """Return `all`, `each` or `none`: one answer for many changes; `UsageError` as above."""
    need_terminal(instead)
    forget_typed(sys.stdin)
    answer = (ask(f"{question} (y all, e each, n no) ", terminal, instead=instead) or "").lower()
    return "all" if answer in {*YES, "all"} else "each" if answer in ("e", "each") else "none"


def typed(word: str, terminal: Terminal, *, instead: str, to: str = "go on") -> bool:
    """Return whether a person types just this word; `UsageError` as for `need_terminal`."""
    need_terminal(instead)
    forget_typed(sys.stdin)
    return ask(f"Type `{word}` to {to}: ", terminal, instead=instead) == word


def forget_typed(file: TextIO) -> None:
    """Drop what was typed before the question was there: it is no answer to it."""
    if sys.platform == "win32":
        return
    import termios  # Not on every platform, and only here.

    with suppress(termios.error):
        termios.tcflush(file.fileno(), termios.TCIFLUSH)
