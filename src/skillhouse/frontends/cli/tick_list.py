"""A list of which a person ticks some: what it shows, and what each key does to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from skillhouse.frontends.presentation.text import cut, shown

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
