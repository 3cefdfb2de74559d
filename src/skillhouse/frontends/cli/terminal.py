"""What a person sees: plain lines of the terminal's width, in which untrusted text stays text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO, TypeVar

from skillhouse.approval import rows_of
from skillhouse.presentation.text import cut, fitted, is_copied, shown, width_of, wrapped

if TYPE_CHECKING:
    from msgspec import Struct

    from skillhouse.answers.json_form import JsonAnswer
    from skillhouse.floor import Diagnostic

T = TypeVar("T")

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
EFFECT_COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
SEVERITY_COLOURS = {"error": "red", "warning": "yellow", "info": "dim"}

WIDTH_MAX = 100
"""Columns beyond which lines become hard to read."""


COLUMNS_UNKNOWN = 80


class Terminal:
    """Writes data to one stream and talk to another."""

    def __init__(self, output: TextIO, errors: TextIO, environment: Mapping[str, str]) -> None:
        """Take the streams; colours are used on a terminal unless NO_COLOR is set."""
        self._output = output
        self._errors = errors
        self._coloured = {
            stream: stream.isatty()
            and not environment.get("NO_COLOR")
            and environment.get("TERM") != "dumb"
            for stream in (output, errors)
        }
        for stream in (output, errors):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                # A name that the terminal's encoding lacks must not end the program.
                reconfigure(errors="backslashreplace")
        self.is_watched = errors.isatty() and environment.get("TERM") != "dumb"
        """Whether a line of talk can be written over."""
        self.is_styled = self._coloured[output]
        self.width = min(_columns(sys.__stdout__, os.environ.get("COLUMNS", "")), WIDTH_MAX)
        self.has_json = False
        """Whether a JSON value was written."""
        self.last_error = ""
        """The last error that was written, without its colour."""
        self._has_status = False

    def write(self, text: str) -> None:
        self.clear_status()
        self._output.write(text)

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def note(self, text: str) -> None:
        """Write one line of talk to stderr."""
        self.clear_status()
        self._errors.write(text + "\n")

    def line_rows(self, text: str) -> None:
        """Write a line with untrusted text in rows that the terminal does not break itself."""
        self.line(self.framed(text))

    def note_rows(self, text: str) -> None:
        """Write such a line of talk to stderr."""
        self.note(_framed(text, self._errors))

    def framed(self, text: str) -> str:
        """Return a line for stdout in such rows."""
        return _framed(text, self._output)

    def prompt(self, text: str) -> None:
        """Write a question to stderr and stay on its line."""
        self.clear_status()
        self._errors.write(text)
        self._errors.flush()

    def status(self, text: str) -> None:
        """Write a line of talk over the last such line; whatever is written next removes it."""
        self._has_status = True
        self._errors.write(f"\r{text}\x1b[K")
        self._errors.flush()

    def clear_status(self) -> None:
        if self._has_status:
            self._has_status = False
            self._errors.write("\r\x1b[K")
            self._errors.flush()

    def error(self, message: str) -> None:
        self.clear_status()
        self.last_error = message
        self._errors.write(self.style("skillhouse: ", "red", errors=True) + shown(message) + "\n")

    def json(self, value: Struct) -> None:
        """Write one answer to stdout."""
        # What prints nothing as JSON starts without msgspec.
        from skillhouse.answers.json_form import json_text

        self.has_json = True
        self.write(json_text(value, indent=2) + "\n")

    def json_list(
        self,
        name: str,
        items: Sequence[Struct | str],
        more: JsonAnswer | None = None,
        *,
        total: int | None = None,
    ) -> None:
        """Write a list; `total` counts all of it, and `more` is what a verb says besides."""
        from skillhouse.answers.json_form import listed

        self.json(listed(name, items, more, total=len(items) if total is None else total))

    def style(self, text: str, *names: str, errors: bool = False) -> str:
        """Return `text` in a colour or weight; colour never carries meaning alone."""
        if not self._coloured[self._errors if errors else self._output]:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"

    def answer(self, value: Struct, text: str, *, as_json: bool) -> None:
        """Write what came of a verb: as JSON, or else as one line."""
        if as_json:
            self.json(value)
        else:
            self.line(text)

    def listing(
        self,
        found: Sequence[T],
        value: Callable[[T], Struct | str],
        line: Callable[[T], str],
        *,
        name: str,
        as_json: bool,
        nothing: str = "",
    ) -> int:
        """Write each item's value as a JSON list, or else its line, `nothing` for none; return 0.

        `name` is the key of the JSON list.
        """
        if as_json:
            self.json_list(name, [value(item) for item in found])
            return 0
        for item in found:
            self.line(line(item))
        if not found and nothing:
            self.note(nothing)
        return 0

    def heading(self, text: str) -> None:
        self.line(self.style(text, "bold"))

    def effect(self, effect: str) -> str:
        return self.style(effect, EFFECT_COLOURS[effect])

    def pair(self, label: str, value: str, *, label_width: int) -> None:
        """Write a label with its value; a long value is wrapped beside the label."""
        mark = self.style(cut(label, label_width - 1).ljust(label_width), "dim")
        self.indented(value, label_width, mark)

    def wrapped(self, text: str, indent: int) -> list[str]:
        """Return the lines of a text; a path or a digest stays whole, so that it can be copied."""
        return wrapped(text, self.width - indent, whole=is_copied)

    def indented(self, text: str, indent: int, mark: str = "") -> None:
        """Write the lines of a text `indent` columns from the left, the first after a mark."""
        first, *rest = self.wrapped(text, indent)
        self.line(mark.rjust(indent) + first)
        for line in rest:
            self.line(" " * indent + line)

    def document(self, text: str) -> None:
        """Write a whole untrusted text: as it is into a pipe, controls shown on a terminal."""
        if self._output.isatty():
            text = "\n".join(shown(line) for line in text.split("\n"))
        self.write(text if text.endswith("\n") else text + "\n")

    def rows(self, rows: Sequence[tuple[str, str]], *, indent: int = 2, most: int = 28) -> None:
        """Write two columns: a bold name, and a text cut to the rest of the line."""
        column = min(max((width_of(name) for name, _ in rows), default=0), most)
        for name, text in rows:
            room = self.width - indent - column - 2
            label = fitted(name, column)
            padding = " " * (column - width_of(label) + 2)
            self.line(" " * indent + self.style(label, "bold") + padding + fitted(text, room))


def _columns(stream: TextIO | None, said: str = "") -> int:
    """Return the width that is said (COLUMNS of environ(7)), else that of a terminal, else 80.

    `shutil.get_terminal_size` loads three packers of archives with it.
    """
    if said.isdecimal() and len(said) < 6 and int(said) > 0:
        return int(said)
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream else 0
    except (OSError, ValueError):
        columns = 0
    # One that does not know its size says 0.
    return columns or COLUMNS_UNKNOWN


def _framed(text: str, stream: TextIO) -> str:
    """Return a text in rows; as it is where no terminal would break it."""
    if not stream.isatty():
        return text
    columns = _columns(stream)
    return "\n".join(row for line in text.split("\n") for row in rows_of(line, columns))


def finding_line(found: Diagnostic, terminal: Terminal) -> str:
    """Return a finding as one line: place, severity, message, code."""
    place = "" if found.path is None else shown(str(found.path)) + ":"
    if found.line is not None:
        place += f"{found.line}:"
    severity = terminal.style(found.severity, SEVERITY_COLOURS[found.severity])
    return f"{place} {severity}: {shown(found.advice)} [{found.code}]".lstrip()
