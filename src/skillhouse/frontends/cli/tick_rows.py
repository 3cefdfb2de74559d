"""Lets a person tick rows of a list at the terminal: with keys, or with numbers on a plain one."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.cli.question import ask, need_terminal
from skillhouse.presentation.text import cut, shown, width_of

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

FILTER_MAX = 64
"""Characters of the text that rows are looked for by."""
FRAME = 3
"""Lines around the rows: what is asked, what the keys do, and a message."""
KEYS = "space ticks, Enter goes on, letters filter, Ctrl-A ticks all, Esc ends"


class TickRow(Struct, frozen=True, kw_only=True):
    """One thing that can be chosen; its texts may be from anywhere."""

    label: str
    fault: str = ""
    """Why it cannot be chosen."""


Style = Callable[[str, str], str]
"""Takes a text and the name of a weight or colour, and returns what the terminal gets."""


class TickList:
    """The rows, those ticked, and those that the filter leaves."""

    def __init__(self, question: str, rows: Sequence[TickRow]) -> None:
        self._question = question
        self._rows = rows
        self._folded = [shown(row.label).casefold() for row in rows]
        self._filter = ""
        self._matching = list(range(len(rows)))
        self._at = 0
        """Place of the cursor among the matching rows."""
        self._top = 0
        """The first matching row that is shown."""
        self._height = 1
        self._message = ""
        self.ticked: set[int] = set()
        self.is_over = False
        self.is_cancelled = False

    def press(self, key: str) -> None:
        """Do what a key does; `key` is its name, such as `up`, or the character that it writes."""
        self._message = ""
        action = self._actions.get(key)
        if action is not None:
            action(self)
        elif len(key) == 1 and key.isprintable() and len(self._filter) < FILTER_MAX:
            self._look_for(self._filter + key)

    def _move(self, by: int) -> None:
        self._at = max(0, min(len(self._matching) - 1, self._at + by))

    def _toggle(self) -> None:
        if not self._matching:
            return
        row = self._matching[self._at]
        if self._rows[row].fault:
            self._message = f"refused: {self._rows[row].fault}"
            return
        self.ticked ^= {row}
        self._move(1)

    def _toggle_all(self) -> None:
        usable = {row for row in self._matching if not self._rows[row].fault}
        self.ticked = self.ticked - usable if usable <= self.ticked else self.ticked | usable

    def _accept(self) -> None:
        if self.ticked:
            self.is_over = True
        else:
            self._message = "nothing is ticked yet: the space bar ticks a line"

    def _cancel(self) -> None:
        if self._filter:
            self._look_for("")
        else:
            self.is_over = self.is_cancelled = True

    def _look_for(self, text: str) -> None:
        before = self._matching[self._at] if self._matching else 0
        self._filter = text
        wanted = text.casefold()
        self._matching = [row for row, label in enumerate(self._folded) if wanted in label]
        self._at = self._matching.index(before) if before in self._matching else 0

    _actions: dict[str, Callable[[TickList], None]] = {  # noqa: RUF012 - never changed
        "up": lambda self: self._move(-1),
        "down": lambda self: self._move(1),
        "page-up": lambda self: self._move(-self._height),
        "page-down": lambda self: self._move(self._height),
        "home": lambda self: self._move(-len(self._rows)),
        "end": lambda self: self._move(len(self._rows)),
        " ": _toggle,
        "ctrl-a": _toggle_all,
        "enter": _accept,
        "escape": _cancel,
        "ctrl-d": _cancel,
        "backspace": lambda self: self._look_for(self._filter[:-1]),
        "ctrl-u": lambda self: self._look_for(""),
    }

    def lines(self, columns: int, height: int, style: Style) -> list[str]:
        """Return what to show on a terminal of so many columns and lines."""
        self._height = max(1, min(len(self._rows), height - FRAME - 1))
        self._top = max(self._at - self._height + 1, min(self._top, self._at))
        self._top = max(0, min(self._top, len(self._matching) - self._height))
        room = columns - 1
        head = f"{self._question} {len(self.ticked)} of {len(self._rows)} ticked"
        window = self._matching[self._top : self._top + self._height]
        hidden = len(self._matching) - len(window)
        if hidden:
            head += f", {hidden} more with the arrows"
        lines = [style(cut(head, room), "bold")]
        lines += [self._line(row, room, style) for row in window]
        lines += [""] * (self._height - len(window))
        found = f"filter: {self._filter}_  ({len(self._matching)} found)" if self._filter else KEYS
        lines.append(style(cut(shown(found), room), "dim"))
        lines.append(style(cut(shown(self._message), room), "yellow") if self._message else "")
        return lines

    def _line(self, row: int, room: int, style: Style) -> str:
        one = self._rows[row]
        is_here = self._matching[self._at] == row
        box = "[-]" if one.fault else "[x]" if row in self.ticked else "[ ]"
        text = cut(f"{'>' if is_here else ' '} {box} {shown(one.label)}", room)
        if is_here:
            return style(text, "bold")
        return style(text, "dim") if one.fault else text


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
