"""Lets a person tick rows of a list at the terminal: with keys, or with numbers on a plain one."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.cli.question import ask, need_terminal
from skillhouse.frontends.cli.tick_list import FRAME, TickList, TickRow
from skillhouse.frontends.presentation.text import shown, width_of

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

LINES_MIN = FRAME + 2
COLUMNS_MIN = 20
"""A smaller terminal gets numbers."""
ESCAPE_SECONDS = 0.05
"""After which an Esc is a key, and not the begin of one."""
SIZE_SECONDS = 0.25
"""How often it is seen that the terminal has another size."""
_SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "OA": "up",
    "OB": "down",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "page-up",
    "[6~": "page-down",
}
_CONTROLS = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x01": "ctrl-a",
    "\x04": "ctrl-d",
    "\x0e": "down",
    "\x10": "up",
    "\x15": "ctrl-u",
}
_INSTEAD = "name them with --skill"
_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"
_SEQUENCE_MAX = 16
_UNFINISHED = re.compile(r"\x1b(?:[\[O][0-?]*)?$")


def tick(question: str, rows: Sequence[TickRow], terminal: Terminal) -> list[int]:
    """Return the places of the rows that the person chooses, in their order.

    Raises:
        UsageError: they chose nothing, or there is no terminal to choose at.
    """
    need_terminal(_INSTEAD)
    if terminal.is_watched and _is_usable():
        return _by_keys(TickList(question, rows), terminal)
    return _by_numbers(question, rows, terminal)


def _is_usable() -> bool:
    columns, lines = _size()
    return sys.platform != "win32" and columns >= COLUMNS_MIN and lines >= LINES_MIN


def _size() -> tuple[int, int]:
    """Return columns and lines; 80 and 24 where the terminal does not say."""
    try:
        found = os.get_terminal_size(sys.stderr.fileno())
    except OSError:
        return 80, 24
    return found.columns or 80, found.lines or 24


def _by_keys(found: TickList, terminal: Terminal) -> list[int]:
    screen = _Screen(terminal)
    with _keys_one_by_one(sys.stdin.fileno()):
        keys = _keys(sys.stdin.fileno())
        try:
            while not found.is_over:
                screen.draw(found)
                key = next(keys, "ctrl-d")
                if key:
                    found.press(key)
        finally:
            screen.clear()
    if found.is_cancelled:
        raise UsageError("nothing was chosen, nothing was installed")
    return sorted(found.ticked)


class _Screen:
    """Draws at the bottom of the terminal, over what was drawn there before."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._drawn: list[int] = []
        """Columns of each line that is there."""
        self._last: tuple[object, ...] = ()

    def draw(self, found: TickList) -> None:
        columns, height = _size()
        style = self._terminal.style
        plain = found.lines(columns, height, lambda text, _: text)
        lines = found.lines(columns, height, lambda text, name: style(text, name, errors=True))
        if (columns, *lines) == self._last:
            return
        self._last = (columns, *lines)
        back = self._back(columns)
        self._drawn = [width_of(line) for line in plain]
        # A line that is wider than we count must not become two.
        self._terminal.prompt(f"{_WRAP_OFF}{back}" + "\n".join(lines) + _WRAP_ON)

    def clear(self) -> None:
        self._terminal.prompt(self._back(_size()[0]) + _WRAP_ON)
        self._drawn = []

    def _back(self, columns: int) -> str:
        """Return what goes to the first line that is there, and erases all of them."""
        # Lines of a terminal that became narrower are folded by now.
        rows = sum(max(1, -(-width // max(columns, 1))) for width in self._drawn)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J"


def _keys(handle: int) -> Iterator[str]:
    """Yield the names of keys, and an empty one where nothing was pressed for a while."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        if not _waits(handle, SIZE_SECONDS):
            yield ""
            continue
        text = ""
        while not text or (_UNFINISHED.search(text) and _waits(handle, ESCAPE_SECONDS)):
            data = os.read(handle, 1_024)
            if not data:
                return
            text += decoder.decode(data)
        while text:
            key, used = _first(text)
            text = text[used:]
            yield key


def _waits(handle: int, seconds: float) -> bool:
    return bool(select.select([handle], [], [], seconds)[0])


def _first(text: str) -> tuple[str, int]:
    """Return the key that a text begins with, empty for an unknown one, and its length."""
    first = text[0]
    if first != "\x1b":
        return _CONTROLS.get(first, first), 1
    if text[1:2] in ("", "\x1b"):
        return "escape", 1
    if text[1] not in "[O":
        return "", 2
    for length in range(3, min(len(text), _SEQUENCE_MAX) + 1):
        if "@" <= text[length - 1] <= "~":
            return _SEQUENCES.get(text[1:length], ""), length
    return "", len(text)


@contextmanager
def _keys_one_by_one(handle: int) -> Iterator[None]:
    """Let the terminal pass on each key at once and unseen; Ctrl-C still interrupts."""
    import termios  # Not on every platform, and only here.

    before = termios.tcgetattr(handle)
    wanted = termios.tcgetattr(handle)
    wanted[0] &= ~termios.ICRNL
    wanted[3] &= ~(termios.ECHO | termios.ICANON)
    wanted[6][termios.VMIN], wanted[6][termios.VTIME] = 1, 0
    # A shell that is stopped into would get a terminal that shows nothing.
    wanted[6][termios.VSUSP] = b"\0"
    # What was typed before the list was there is no answer to it.
    termios.tcsetattr(handle, termios.TCSAFLUSH, wanted)
    try:
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _by_numbers(question: str, rows: Sequence[TickRow], terminal: Terminal) -> list[int]:
    for number, row in enumerate(rows, start=1):
        fault = f"  refused: {shown(row.fault)}" if row.fault else ""
        terminal.note(f"{number:4}  {shown(row.label)}{fault}")
    line = ask(f"{question} (numbers with blanks, or `all`) ", terminal, instead=_INSTEAD)
    answer = (line or "").split()
    if answer == ["all"]:
        return [place for place, row in enumerate(rows) if not row.fault]
    try:
        numbers = [int(word) for word in answer]
    except ValueError:
        numbers = []
    if not numbers or not all(1 <= number <= len(rows) for number in numbers):
        raise UsageError(f"expected numbers from 1 to {len(rows)}, nothing was installed")
    return [number - 1 for number in dict.fromkeys(numbers)]
